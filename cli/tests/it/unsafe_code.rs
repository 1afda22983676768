//! `docs/unsafe.md` lists the files with unsafe code that ships, and is what the sources say.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// Folders whose code ships.
const SHIPPED: [&str; 11] = [
    "bench",
    "cli",
    "engine",
    "figures",
    "host",
    "image",
    "image-uefi",
    "lab",
    "pool",
    "pool-cli",
    "workloads",
];

const HEAD: &str = "\
# Unsafe code

Every file with unsafe code that ships, with the first sentence of what it is. Each block has a `SAFETY` comment that
answers the contract it relies on (`make check`); the engine's run under Miri (`make miri`). Tests, benches and ports are
not listed. Written by `UPDATE=1 cargo test -p firstlight-cli --test it unsafe_code`.

| file | unsafe | what it is |
|---|---|---|
";

/// All sources below a folder, in order.
fn sources(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.contains("test") {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

/// Where lines begin something unsafe: a block, a function, an implementation. What tests inside the file have does not
/// count.
fn unsafe_lines(source: &str) -> usize {
    let shipped = source
        .split("#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default();
    let code = shipped
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let words = [
        "unsafe {",
        "unsafe fn ",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait ",
    ];
    code.filter(|line| words.iter().any(|word| line.contains(word)))
        .count()
}

/// The first sentence of what a file says of itself.
fn sentence(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text: Vec<&str> = lines
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let text = text.join(" ");
    let text = text.split(". ").next().unwrap_or_default();
    let plain = text.replace("[`", "`").replace("`]", "`");
    plain.trim_end_matches(['.', ':']).replace('|', "\\|")
}

#[test]
fn the_list_of_unsafe_code_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for folder in SHIPPED {
        sources(&root.join(folder).join("src"), &mut paths);
    }
    let mut list = HEAD.to_owned();
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        let count = unsafe_lines(&source);
        if count == 0 {
            continue;
        }
        let name = path.split_once("/../").unwrap().1;
        let what = sentence(&source);
        assert!(!what.is_empty(), "{name} does not say what it is");
        writeln!(list, "| `{name}` | {count} | {what} |").unwrap();
    }
    let file = root.join("docs/unsafe.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, &list).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == list,
        "docs/unsafe.md is not what the sources say: UPDATE=1 cargo test -p firstlight-cli --test it unsafe_code"
    );
}
