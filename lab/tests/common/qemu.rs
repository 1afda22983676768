//! QEMU for tests, or a visible line why not.

use std::io::Write;
use std::process::Command;

/// The program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Whether QEMU is here; where it is not, that is said where everybody sees it.
pub(crate) fn qemu_is_here() -> bool {
    let here = Command::new(QEMU).arg("--version").output().is_ok();
    if !here {
        let required = std::env::var("FIRSTLIGHT_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name.trim() == "qemu");
        assert!(
            !required,
            "FIRSTLIGHT_REQUIRE names qemu: {QEMU} is not installed"
        );
        // Not by a macro: what those say is hidden when a test passes.
        let _ = writeln!(std::io::stderr(), "skipped: {QEMU} is not installed");
    }
    here
}
