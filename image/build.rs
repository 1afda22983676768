//! Links the bare-metal image at fixed addresses; a hosted build of it (for tests) is ordinary.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/arch/x86_64/link.ld");
    if var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let folder = var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg-bins=-T{folder}/src/arch/x86_64/link.ld");
        // The target's default is position-independent; PVH loads to the addresses in the file.
        println!("cargo:rustc-link-arg-bins=--no-pie");
    }
}
