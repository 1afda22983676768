//! What a test needs of the machine and may lack.
//!
//! A test that lacks something says so and ends. Where `FIRSTLIGHT_REQUIRE` names what it
//! lacks, it fails instead: `FIRSTLIGHT_REQUIRE=root,hugepages,qemu,browser,linux`. All that was
//! skipped stands in the file that `FIRSTLIGHT_SKIPPED` names: `make test` prints it at its end.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// The variable that lists what must not be lacking, separated by commas.
pub const REQUIRE: &str = "FIRSTLIGHT_REQUIRE";

/// The variable that names the file to which what is skipped is written.
pub const SKIPPED: &str = "FIRSTLIGHT_SKIPPED";

/// Says that a test is skipped, for want of what.
///
/// # Panics
/// If the variable names it.
pub fn skip(need: &str, why: impl Display) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    if let Some(text) = refusal(&required, need, &why) {
        panic!("{text}");
    }
    let test = std::thread::current();
    let test = test.name().unwrap_or("a test");
    let line = format!("skipped, no {need}: {test}: {why}\n");
    // Not by a macro: what those print is hidden when a test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(SKIPPED) {
        let file = File::options().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

fn refusal(required: &str, need: &str, why: &impl Display) -> Option<String> {
    let named = required.split(',').any(|name| name.trim() == need);
    named.then(|| format!("{REQUIRE} names {need}, and there is none: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_required() {
        for (required, need, fails) in [
            ("", "root", false),
            ("root, qemu", "qemu", true),
            ("root,qemu", "hugepages", false),
            ("hugepages", "huge", false),
        ] {
            let refused = refusal(required, need, &"why");
            assert_eq!(refused.is_some(), fails, "{required:?} {need}");
        }
    }
}
