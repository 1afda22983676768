//! Links at the addresses that a loader loads to.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rustc-link-arg-bins=-T{folder}/link.ld");
    println!("cargo::rustc-link-arg-bins=--no-pie");
}
