//! Links the bare-metal image at fixed addresses; a hosted build of it (for tests) is ordinary.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let of = |name| var(name).unwrap_or_default();
    let (folder, processor) = (of("CARGO_MANIFEST_DIR"), of("CARGO_CFG_TARGET_ARCH"));
    let script = format!("{folder}/src/arch/{processor}/link.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    // Some targets' default is position-independent; loaders load to the addresses in the file.
    println!("cargo:rustc-link-arg-bins=--no-pie");
    if processor == "x86_64" {
        // By these the UEFI loader moves the image, where its addresses are taken.
        println!("cargo:rustc-link-arg-bins=--emit-relocs");
    }
    if processor == "aarch64" {
        // Linux's boot protocol is for a file that begins with its header.
        println!("cargo:rustc-link-arg-bins=--oformat=binary");
    }
}
