//! QEMU for tests, or a visible line why not.

use std::path::PathBuf;

use crate::common::here;
use firstlight_lab::boot::Processor;

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

/// Whether QEMU for aarch64 and UEFI for its machines are here.
#[allow(dead_code, clippy::allow_attributes, reason = "one test file uses it")]
pub(crate) fn arm_uefi_is_here() -> bool {
    let folders = ["/usr/share/AAVMF", "/usr/share/edk2/aarch64"];
    let here = folders
        .iter()
        .any(|folder| std::path::Path::new(folder).is_dir());
    here::is_here("qemu-system-aarch64")
        && (here || here::missing("UEFI for Arm (Debian's package qemu-efi-aarch64)"))
}

/// QEMU itself, for boots that have to be made: `make test` has a program in its place that tells a boot
/// on the instruction clock from a record of one before.
pub(crate) fn real_qemu(processor: Processor) -> PathBuf {
    let name = format!("qemu-system-{processor}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path)
        .filter(|folder| !folder.ends_with("kept-qemu"))
        .map(|folder| folder.join(&name))
        .filter(|file| file.is_file());
    found.next().unwrap_or_else(|| name.into())
}
