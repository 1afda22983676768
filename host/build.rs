//! Extracts the first Rust block of `docs/kernel.md`, so that the test `kernel_guide`
//! compiles and runs the code of that page.

use std::path::Path;
use std::{env, fs};

const GUIDE: &str = "../docs/kernel.md";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={GUIDE}");
    // Without the page, in a checkout of this crate alone, only that test has no code.
    let guide = fs::read_to_string(GUIDE).unwrap_or_default();
    let block = guide
        .split_once("```rust\n")
        .and_then(|(_, rest)| rest.split_once("```\n"))
        .map_or("", |(block, _)| block);
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("kernel_guide.rs"),
        block,
    )?;
    Ok(())
}
