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
    // Not by a macro: what those say is hidden when a test passes.
    let _ = writeln!(std::io::stderr(), "skipped: {what} is not installed");
    false
}
