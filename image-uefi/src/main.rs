//! Starts the bare-metal image where firmware is UEFI, from the stick it came from: reads the
//! image and its command line, ends boot services and enters the image: on x86-64 by PVH, without
//! paging; on aarch64, with the same hand-over, at its second instruction.
//! Started again after the run, it writes the result, which the image left in firmware's
//! variables, to the stick, and switches the machine off.
//!
//! | file | contents |
//! |---|---|
//! | `loader/mod` | the way from firmware to the image, in order |
//! | `loader/stick` | the files on the stick |
//! | `loader/result` | firmware's variables with the result of the last run |
//! | `loader/machine` | what firmware says: root of ACPI, device tree, screen |
//! | `loader/memory` | memory that stays when boot services end |
//! | `loader/start_info` | what the image gets |
//! | `loader/processor` | the image's file, the last instructions |
//! | `loader/error` | why the image cannot be started |
//!
//! Code that needs no firmware is in the library beside it (`lib.rs`).
#![cfg_attr(target_os = "uefi", no_std, no_main)]

#[cfg(target_os = "uefi")]
extern crate alloc;
#[cfg(target_os = "uefi")]
mod loader;

#[cfg(target_os = "uefi")]
#[uefi::entry]
fn main() -> uefi::Status {
    loader::run()
}

/// For tests of the library on a host; there is no program to run there.
#[cfg(not(target_os = "uefi"))]
fn main() {
    eprintln!(
        "this is an EFI application: build it with --target x86_64-unknown-uefi or aarch64-unknown-uefi, boot it with `firstlight boot --firmware uefi`"
    );
    std::process::exit(2);
}
