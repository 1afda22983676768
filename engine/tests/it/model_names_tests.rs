//! Every numbered invariant of MODEL.md ends with the tests that would fail if it were broken:
//! *Shown by*, and their names. They must exist, be tests, and be run.
//!
//! A name that several files have is written with its file's: `frames_machine::a_test`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where tests of what the model says are.
const CRATES: [&str; 3] = ["engine", "bench", "lab"];
/// What comes before their names.
const SHOWN_BY: &str = "Shown by ";

/// A paragraph, or an item of a numbered list.
#[derive(Debug)]
struct Rule {
    part: String,
    number: Option<u32>,
    line: usize,
    text: String,
}

/// Files that have a test of this name.
type Tests = BTreeMap<String, Vec<PathBuf>>;

fn number_of(line: &str) -> Option<u32> {
    line.split_once(". ")?.0.parse().ok()
}

/// Cuts a page at empty lines and at numbers.
fn rules(page: &str) -> Vec<Rule> {
    let (mut rules, mut part, mut is_open) = (Vec::<Rule>::new(), String::new(), false);
    for (at, line) in page.lines().enumerate() {
        if let Some(title) = line.strip_prefix("# ") {
            part = title.to_owned();
        }
        let number = number_of(line);
        if line.is_empty() {
            is_open = false;
        } else if let Some(rule) = rules.last_mut().filter(|_| is_open && number.is_none()) {
            rule.text.push(' ');
            rule.text.push_str(line.trim());
        } else {
            is_open = true;
            rules.push(Rule {
                part: part.clone(),
                number,
                line: at + 1,
                text: line.to_owned(),
            });
        }
    }
    rules
}

/// The names after *Shown by*, which nothing may follow; `None` if there are none.
fn shown_by(text: &str) -> Option<Vec<&str>> {
    let (_, list) = text.split_once(SHOWN_BY)?;
    let names = list.strip_suffix('.')?.split(", ");
    names
        .map(|name| name.strip_prefix('`')?.strip_suffix('`'))
        .collect()
}

/// Tests of a source that are not ignored.
fn tests_in(source: &str) -> Vec<&str> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            names.extend(rest.split_once('(').map(|(name, _)| name));
            is_test = false;
        }
    }
    names
}

fn collect(folder: &Path, tests: &mut Tests) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, tests);
        } else if path.extension().is_some_and(|end| end == "rs") {
            for name in tests_in(&fs::read_to_string(&path).unwrap()) {
                let files = tests.entry(name.to_owned()).or_default();
                files.push(path.clone());
            }
        }
    }
}

/// What is wrong with a name.
fn check_name(name: &str, tests: &Tests) -> Result<(), String> {
    let (file, test) = match name.rsplit_once("::") {
        Some((file, test)) => (Some(file), test),
        None => (None, name),
    };
    let of_file = |path: &&PathBuf| file.is_none_or(|file| path.with_extension("").ends_with(file));
    let files = tests.get(test).into_iter().flatten().filter(of_file);
    match files.count() {
        0 => Err(format!(
            "there is no test `{name}` that is run: was it renamed?"
        )),
        1 => Ok(()),
        _ => Err(format!(
            "`{test}` is in several files: write `file::{test}`"
        )),
    }
}

/// All errors, as text.
fn errors_in(page: &str, tests: &Tests) -> Vec<String> {
    let mut errors = Vec::new();
    let mut last = BTreeMap::new();
    for rule in rules(page) {
        let Rule {
            part, line, text, ..
        } = &rule;
        let place = match rule.number {
            Some(number) => format!("MODEL.md:{line}, {part} {number}"),
            None => format!("MODEL.md:{line}"),
        };
        if let Some(number) = rule.number {
            let before = last.insert(part.clone(), number).unwrap_or(0);
            if number != before + 1 {
                errors.push(format!("{place}: follows {before}"));
            }
        } else if !text.contains(SHOWN_BY) {
            continue;
        }
        match shown_by(text) {
            Some(names) => {
                let wrong = names.iter().filter_map(|name| check_name(name, tests).err());
                errors.extend(wrong.map(|wrong| format!("{place}: {wrong}")));
            }
            None => errors.push(format!(
                "{place}: must end with `{SHOWN_BY}` and the tests that fail if it is broken, each in \
                 backticks, separated by commas, and a full stop"
            )),
        }
    }
    errors
}

#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn every_invariant_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("MODEL.md")).unwrap();
    let mut tests = Tests::new();
    for name in CRATES {
        collect(&root.join(name), &mut tests);
    }
    let found = errors_in(&page, &tests);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    // Every part has invariants: this test reads what people read.
    let mut parts = page.lines().filter_map(|line| line.strip_prefix("# "));
    assert_eq!(parts.next(), Some("The model"));
    for part in parts {
        let rules = rules(&page);
        let mut own = rules.iter().filter(|rule| rule.part == part);
        assert!(own.any(|rule| rule.number.is_some()), "{part} has none");
    }
}

#[test]
fn errors_in_a_model_are_reported() {
    let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let tests = Tests::from([
        ("one".to_owned(), files(&["a/x.rs"])),
        ("two".to_owned(), files(&["a/x.rs", "b/y.rs"])),
    ]);
    let errors = |page: &str| errors_in(page, &tests).join("; ");
    let good =
        "# P\n\n1. *A.* B\n   c. Shown by `one`,\n   `x::two`.\n2. D. Shown by `y::two`.\n\nText.";
    assert_eq!(errors(good), "");
    for (page, wanted) in [
        ("# P\n1. A.\n", "MODEL.md:2, P 1: must end"),
        ("# P\n1. A. Shown by one.\n", "must end"),
        ("# P\n1. A. Shown by `one`. B.\n", "must end"),
        ("1. A. Shown by `one`, `none`.", "no test `none`"),
        ("1. A. Shown by `y::one`.", "no test `y::one`"),
        ("1. A. Shown by `two`.", "write `file::two`"),
        ("2. A. Shown by `one`.", "follows 0"),
        ("Text. Shown by `none`.", "MODEL.md:1: there is no test"),
    ] {
        assert!(errors(page).contains(wanted), "{page}: {}", errors(page));
    }
    let source = "#[test]\n#[cfg(x)]\nfn a() {}\nfn b() {}\n#[test]\n#[ignore]\nfn c() {}\n    #[test]\n    fn d(\n";
    assert_eq!(tests_in(source), ["a", "d"]);
}

/// The table of all pairs of writers: its cells are models, or say in words why there is none.
#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn every_pair_of_writers_names_a_model_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let frames = root.join("frames/src/frames");
    let table = fs::read_to_string(frames.join("tests/loom/writers.md")).unwrap();
    let mut models = Tests::new();
    collect(&frames, &mut models);
    let names: Vec<_> = table.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 50, "{}", names.len());
    let wrong = names
        .iter()
        .filter_map(|name| check_name(name, &models).err());
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    // Each pair once: no empty cell right of the diagonal.
    for (at, row) in table
        .lines()
        .filter(|line| line.starts_with("| "))
        .enumerate()
    {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let first = cells.iter().skip(1).position(|cell| !cell.is_empty());
        let rest = cells.iter().skip(1 + first.unwrap_or(cells.len()));
        assert!(rest.clone().all(|cell| !cell.is_empty()), "{at}: {row}");
    }
}

/// What `make miri` leaves out has nothing that only Miri would see.
#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn what_miri_skips_denies_unsafe_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recipes = fs::read_to_string(root.join("../Makefile")).unwrap();
    let list = |name: &str| -> Vec<&str> {
        let mut lines = recipes.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().unwrap().split(' ').collect()
    };
    let (crates, run, skipped) = (list("ENGINE := "), list("UNSAFE := "), list("SAFE = "));
    assert!(skipped.len() > 5 && run.len() > 3, "{skipped:?} {run:?}");
    let source_of = |name: &str| match name.strip_prefix("firstlight-") {
        Some(folder) => root.join(folder).join("src"),
        None => root.join("src"),
    };
    let skipped = skipped.into_iter().flat_map(|module| {
        let module = module.replace("::", "/");
        let places = run.iter().map(|name| source_of(name).join(&module));
        let places = places.flat_map(|place| [place.join("mod.rs"), place.with_extension("rs")]);
        let places: Vec<_> = places.filter(|place| place.exists()).collect();
        assert!(!places.is_empty(), "no {module}");
        places
    });
    // Whole crates that are not run.
    let whole = crates.iter().filter(|name| !run.contains(name));
    let whole: Vec<_> = whole.map(|name| source_of(name).join("lib.rs")).collect();
    assert!(!whole.is_empty(), "{crates:?}");
    for file in skipped.chain(whole) {
        let source = fs::read_to_string(&file).unwrap();
        assert!(
            source.contains("\n#![deny(unsafe_code)]\n"),
            "{}",
            file.display()
        );
        // Nor is it allowed again further down, but for loom's.
        let place = match file.file_name() {
            Some(name) if name == "mod.rs" || name == "lib.rs" => file.parent().unwrap(),
            _ => &file,
        };
        let mut left = vec![place.to_owned()];
        while let Some(path) = left.pop() {
            if let Ok(entries) = fs::read_dir(&path) {
                left.extend(entries.map(|entry| entry.unwrap().path()));
            } else if !path.ends_with("loom_tests.rs") {
                let source = fs::read_to_string(&path).unwrap_or_default();
                for word in [
                    "allow(unsafe_code",
                    "expect(unsafe_code",
                    "warn(unsafe_code",
                ] {
                    assert!(!source.contains(word), "{}: {word}", path.display());
                }
            }
        }
    }
}
