//! Writes `firstlight.h` from the library's comments, or, with `--check`, says whether it is up
//! to date.
//!
//! ```text
//! cargo run -p header              writes it
//! cargo run -p header -- --check   exit code 1 if it differs
//! ```

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            eprintln!("header: unknown argument '{other}': expected --check, or nothing");
            return ExitCode::from(2);
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match run(&folder, check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("header: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path, check: bool) -> Result<(), String> {
    let path = folder.join("firstlight.h");
    let text = header(folder)?;
    if !check {
        return std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
    }
    let seen = std::fs::read_to_string(&path).map_err(|error| format!("firstlight.h: {error}"))?;
    let mut lines = seen.lines().zip(text.lines()).zip(1..);
    if seen == text {
        return Ok(());
    }
    let (first, expected) = lines
        .find_map(|((seen, expected), line)| (seen != expected).then_some((line, expected)))
        .unwrap_or((seen.lines().count() + 1, "another length"));
    Err(format!(
        "firstlight.h is not what the library has, from line {first} on: expected '{expected}'; \
         `cargo run -p header` writes it"
    ))
}

fn header(folder: &Path) -> Result<String, String> {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    // In the order in which a kernel needs them.
    for module in ["error", "request", "frames", "cpu", "drain", "statistics"] {
        builder = builder.with_src(folder.join(format!("src/{module}.rs")));
    }
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    Ok(without_safety(&text))
}

/// Without the `# Safety` of each comment: it is for callers in Rust, and says of pointers what
/// the top of the header says for all functions.
fn without_safety(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut skipping = false;
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("//").map(str::trim);
        if comment == Some("# Safety") {
            skipping = true;
            if kept.last().is_some_and(|last| last.trim() == "//") {
                kept.pop();
            }
        }
        skipping &= comment.is_some();
        if !skipping {
            kept.push(line.trim_end());
        }
    }
    kept.join("\n") + "\n"
}
