//! QEMU for tests, or a visible line why not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::common::here;
use firstlight_lab::boot::{Accelerator, Launch, Machine, Ports, Processor, System};

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
    qemu_is_here() && has_one(&folders, "OVMF (Debian's package ovmf)")
}

/// Whether QEMU for aarch64 and UEFI for its machines are here.
#[allow(dead_code, clippy::allow_attributes, reason = "one test file uses it")]
pub(crate) fn arm_uefi_is_here() -> bool {
    let folders = ["/usr/share/AAVMF", "/usr/share/edk2/aarch64"];
    here::is_here("qemu-system-aarch64")
        && has_one(&folders, "UEFI for Arm (Debian's package qemu-efi-aarch64)")
}

/// Whether one of the folders is here, which `what` brings.
fn has_one(folders: &[&str], what: &str) -> bool {
    let is_here = |folder: &&str| Path::new(folder).is_dir();
    folders.iter().any(is_here) || here::missing(what)
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

/// QEMU's arguments for a machine that starts an image with these words, for tests that talk to QEMU themselves: with
/// `extra` ones, and where its log and its events go.
pub(crate) fn arguments(
    machine: &Machine,
    kernel: &Path,
    append: &str,
    extra: &[String],
    log: &str,
    events: &str,
) -> Vec<OsString> {
    let launch = Launch {
        machine,
        accelerator: Accelerator::Tcg,
        system: System::Image,
        kernel,
        initrd: None,
        append,
        uefi: None,
        extra,
    };
    launch.arguments(&Ports {
        log: log.to_owned(),
        events: events.to_owned(),
        markers: "null".to_owned(),
        protocol: None,
    })
}
