//! Extracts the first Rust block of each page of the guide for kernels that begins with one, so that the test
//! `kernel_guide` compiles and runs the code of those pages.

use std::path::Path;
use std::{env, fs};

/// A page, and the file of its code.
const PAGES: [(&str, &str); 2] = [
    ("../docs/kernel.md", "kernel_ten_lines.rs"),
    ("../docs/kernel-memory.md", "kernel_guide.rs"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (page, file) in PAGES {
        println!("cargo::rerun-if-changed={page}");
        // Without the page, in a checkout of this crate alone, only that test has no code.
        let guide = fs::read_to_string(page).unwrap_or_default();
        let block = guide
            .split_once("```rust\n")
            .and_then(|(_, rest)| rest.split_once("```\n"))
            .map_or("", |(block, _)| block);
        fs::write(Path::new(&env::var("OUT_DIR")?).join(file), block)?;
    }
    Ok(())
}
