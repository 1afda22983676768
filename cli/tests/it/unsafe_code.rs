//! `docs/unsafe.md` lists the files with unsafe code that ships, and is what the sources say.

use crate::documents::{read, root};
use crate::sources::{code, sources};

use std::fmt::Write;
use std::{env, fs};

const HEAD: &str = "\
# Unsafe code

Every file with unsafe code that ships, with the first sentence of what it is. Each block has a `SAFETY` comment that
answers the contract it relies on (`make check`); the engine's run under Miri (`make miri`). Tests, benches and ports are
not listed. Written by `UPDATE=1 cargo test -p firstlight-cli --test it unsafe_code`.

| file | unsafe | what it is |
|---|---|---|
";

/// Where lines begin something unsafe: a block, a function, an implementation. What tests inside the file have does not
/// count.
fn unsafe_lines(source: &str) -> usize {
    let words = [
        "unsafe {",
        "unsafe fn ",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait ",
    ];
    code(source)
        .filter(|line| words.iter().any(|word| line.contains(word)))
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
    let mut list = HEAD.to_owned();
    for name in sources() {
        let source = read(&name);
        let count = unsafe_lines(&source);
        if count == 0 {
            continue;
        }
        let what = sentence(&source);
        assert!(!what.is_empty(), "{name} does not say what it is");
        writeln!(list, "| `{name}` | {count} | {what} |").unwrap();
    }
    let file = root().join("docs/unsafe.md");
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, &list).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == list,
        "docs/unsafe.md is not what the sources say: UPDATE=1 cargo test -p firstlight-cli --test it unsafe_code"
    );
}
