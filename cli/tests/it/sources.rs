//! The sources of what ships, as tests that read them want them.

use crate::documents::root;

use std::fs;
use std::path::Path;

/// Folders whose code ships.
const SHIPPED: [&str; 18] = [
    "bench",
    "cli",
    "engine",
    "engine/blocks",
    "engine/boot",
    "engine/frames",
    "engine/memmap",
    "engine/memory",
    "engine/workers",
    "figures",
    "host",
    "image",
    "image-uefi",
    "lab",
    "pool",
    "pool-cli",
    "wire",
    "workloads",
];

/// All of these, by their paths from the root, in order.
pub(crate) fn sources() -> Vec<String> {
    let mut found = Vec::new();
    for folder in SHIPPED {
        below(&root().join(folder).join("src"), &mut found);
    }
    let names = found.iter().filter_map(|path| path.split_once("/../"));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// All sources below a folder, in order.
fn below(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.contains("test") {
                below(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

/// The lines of code, without comments and without the tests that a source ends with.
pub(crate) fn code(source: &str) -> impl Iterator<Item = &str> {
    let shipped = source
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default();
    let lines = shipped.lines();
    lines.filter(|line| !line.trim_start().starts_with("//"))
}
