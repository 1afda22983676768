//! QEMU for tests, or a visible line why not.

use crate::common::here;

/// The program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// Whether QEMU is here.
pub(crate) fn qemu_is_here() -> bool {
    here::is_here(QEMU)
}

/// Whether QEMU and UEFI for its machines are here.
#[allow(dead_code, clippy::allow_attributes, reason = "one test file uses it")]
pub(crate) fn ovmf_is_here() -> bool {
    let folders = ["/usr/share/OVMF", "/usr/share/edk2"];
    let here = folders
        .iter()
        .any(|folder| std::path::Path::new(folder).is_dir());
    qemu_is_here() && (here || here::missing("OVMF (Debian's package ovmf)"))
}
