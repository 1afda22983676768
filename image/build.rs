//! Links the bare-metal image at fixed addresses; a hosted build of it (for tests) is ordinary.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Firmware may be UEFI: there is a loader for it.
    println!("cargo:rustc-check-cfg=cfg(uefi)");
    if var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let of = |name| var(name).unwrap_or_default();
    let (folder, processor) = (of("CARGO_MANIFEST_DIR"), of("CARGO_CFG_TARGET_ARCH"));
    let script = format!("{folder}/src/arch/{processor}/link.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    if processor != "riscv64" {
        println!("cargo:rustc-cfg=uefi");
    }
    let link: &[&str] = match processor.as_str() {
        // By its relocations the UEFI loader moves the image, where its addresses are taken.
        "x86_64" => &["--no-pie", "--emit-relocs"],
        // Linux's boot protocol is for a file that begins with its header and may be anywhere: its first
        // instructions move it, by a list of the words that are addresses.
        "aarch64" => &[
            "--oformat=binary",
            "--pie",
            "--no-dynamic-linker",
            "-znotext",
            "-zpack-relative-relocs",
            "-znorelro",
        ],
        // Some targets' default is position-independent; loaders load to the addresses in the file.
        _ => &["--no-pie"],
    };
    for argument in link {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    let is = |feature| var(feature).is_ok();
    let page_bytes = match (is("CARGO_FEATURE_PAGE_16K"), is("CARGO_FEATURE_PAGE_64K")) {
        (false, false) => 4096,
        (true, false) => 16_384,
        (false, true) => 65_536,
        (true, true) => panic!("page-16k and page-64k: expected one of the two"),
    };
    assert!(
        page_bytes == 4096 || processor == "aarch64",
        "page-16k and page-64k are for aarch64; this is {processor}"
    );
    println!("cargo:rustc-link-arg-bins=--defsym=page_bytes={page_bytes}");
}
