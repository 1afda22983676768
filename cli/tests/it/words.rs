//! Words that users must not meet again: in help, documents, examples, and what programs print.

use crate::documents::{commands_of, documents, groups_of, help, read, root};
use crate::sources::{code, sources};

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of sentences that were hard to read once; in their place: the state, and what has it.
const NOT_THESE: [&str; 13] = [
    "nobody",
    "somebody",
    "whoever",
    "silent for so long",
    "a take takes",
    "anew",
    "made-up",
    "lifeline",
    "let alone",
    "starved",
    "borrower",
    " lent ",
    " lends ",
];

/// Those that `text` has.
fn found(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    let mut all = NOT_THESE.to_vec();
    all.retain(|words| text.contains(words));
    all
}

#[test]
fn no_help_has_words_that_were_hard_to_read() {
    let mut helps = BTreeMap::new();
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let text = help(&mut helps, &path);
        let list = match path[..] {
            [] => groups_of(&text),
            _ => commands_of(&text),
        };
        paths.extend(list.into_iter().map(|name| [&path[..], &[name]].concat()));
        assert_eq!(found(&text), [""; 0], "firstlight {}", path.join(" "));
    }
    assert!(helps.len() > 25, "{:?}", helps.keys());
}

#[test]
fn no_document_and_no_example_has_them() {
    let examples = ["pool/example.toml", "CONTRIBUTING.md", "ARCHITECTURE.md"];
    let schemas = fs::read_dir(root().join("schemas")).unwrap();
    let schemas = schemas.map(|entry| Path::new("schemas").join(entry.unwrap().file_name()));
    let examples = examples.into_iter().map(PathBuf::from).chain(schemas);
    let paths = documents().into_iter().chain(examples);
    for path in paths {
        assert_eq!(found(&read(&path)), [""; 0], "{}", path.display());
    }
}

/// What is between quotes in a source that ships, but in comments and tests.
fn printed(source: &str) -> String {
    let code = code(source).collect::<Vec<_>>();
    let code = code.join("\n").replace("\\\"", "'");
    let quoted = code.split('"').skip(1).step_by(2);
    quoted.collect::<Vec<_>>().join("\n")
}

#[test]
fn no_program_prints_them() {
    let mut seen = 0;
    let others = ["fuzz/src/lib.rs".to_owned()];
    for path in sources().into_iter().chain(others) {
        assert_eq!(found(&printed(&read(&path))), [""; 0], "{path}");
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn what_is_printed_is_between_quotes() {
    let source =
        "// \"nobody\"\nlet a = \"whoever \\\"it\\\" is\";\n#[cfg(test)]\nmod tests { \"anew\" }";
    assert_eq!(found(&printed(source)), ["whoever"]);
}
