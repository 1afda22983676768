//! The pages on trust name tests: each is there.

use std::path::{Path, PathBuf};

/// The folders that names of files are from.
const FOLDERS: [&str; 7] = [
    "pool/src/",
    "cli/tests/it/pool_serve/",
    "cli/tests/it/",
    "pool-cli/tests/it/",
    "pool/tests/it/",
    "scripts/systemd/",
    "",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of a file, or of all files of a folder.
fn text_of(name: &str) -> Option<String> {
    let path = FOLDERS.iter().map(|folder| root().join(folder).join(name));
    let path = path.into_iter().find(|path| path.exists())?;
    if path.is_file() {
        return std::fs::read_to_string(path).ok();
    }
    let files = std::fs::read_dir(path).ok()?;
    Some(
        files
            .filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok())
            .collect(),
    )
}

/// Checks the tests that a cell names: files in backticks, each followed by beginnings of names.
fn check(cell: &str) -> usize {
    let mut parts = cell.split('`').skip(1);
    let mut checked = 0;
    while let (Some(file), Some(names)) = (parts.next(), parts.next()) {
        let is_source = file.ends_with(".rs") || file.ends_with(".sh") || file.ends_with('/');
        if !is_source {
            continue;
        }
        let text = text_of(file).unwrap_or_else(|| panic!("there is no {file}"));
        let names = names.split([',', ';', ' ', '(', ')', '.', ':']);
        for name in names.filter(|name| name.contains('_')) {
            let is_there =
                text.contains(&format!("fn {name}")) || text.contains(&format!("\n{name}"));
            assert!(is_there, "{file} has no test {name}");
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_test_that_the_pages_on_trust_name_is_there() {
    for page in ["threats", "safety", "reasons"].map(|name| format!("docs/pool-{name}.md")) {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
        let checked: usize = cells.map(check).sum();
        assert!(checked > 10, "{page} names {checked} tests");
    }
}

#[test]
fn every_row_on_principals_names_a_test() {
    let text = std::fs::read_to_string(root().join("docs/pool-threats.md")).unwrap();
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    for row in rows.filter(|row| !row.starts_with("| principal")) {
        let cell = row
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .unwrap_or_default();
        assert!(check(cell) > 0, "{row}");
    }
}

/// What an invariant stands against is a principal or a line of the threat model.
#[test]
fn every_invariant_stands_against_something_on_the_page_on_threats() {
    let read = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let threats =
        ["", "-memory", "-waits", "-fill"].map(|part| read(&format!("docs/pool-threats{part}.md")));
    let threats = threats.concat().to_lowercase();
    let safety = read("docs/pool-safety.md");
    let rows = safety.lines().filter(|line| line.starts_with("| S"));
    let mut named = 0;
    for row in rows {
        let against = row.split('|').nth(3).unwrap_or_default();
        let names = against.split([',', ';', ':']);
        for name in names.map(|name| name.replace('*', "").trim().to_lowercase()) {
            let name = name.trim_start_matches("line ");
            // A crash and all clients are no principals of their own.
            let is_one = ["all", "a crash alone", "also in a user namespace"].contains(&name);
            assert!(is_one || threats.contains(name), "{name:?} of {row}");
            named += 1;
        }
    }
    assert!(named > 22, "{named}");
}
