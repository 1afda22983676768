//! A program for tests, or a visible line why not.

use std::io::Write;
use std::process::Command;

/// Whether the QEMU `program` is here; where it is not, that is said where everybody sees it.
pub(crate) fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok();
    here || missing(program)
}

/// Says that a test is skipped for want of `what`, or fails if it must not be; returns `false`.
pub(crate) fn missing(what: &str) -> bool {
    let required = std::env::var("FIRSTLIGHT_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "qemu");
    assert!(
        !required,
        "FIRSTLIGHT_REQUIRE names qemu: {what} is not installed"
    );
    let line = format!("skipped, no qemu: {what} is not installed\n");
    // Not by a macro: what those say is hidden when a test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FIRSTLIGHT_SKIPPED") {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
    false
}
