//! No module of a crate imports itself through others, and no folder of its modules either: what a
//! file names lies below it. Crates whose arrows point one way have this file among their tests; between
//! crates cargo sees to it.
//!
//! Edges run from a module to the one that defines the name it uses; re-exports are followed, and
//! are no edges themselves. Unit tests and comments do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// `["layout", "zones"]`; the root is empty.
type Module = Vec<String>;

/// What a module names: the path, and whether it is a re-export.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    path: Vec<String>,
    exported: bool,
}

/// Names of a source, and which of them it defines.
#[derive(Debug, Default)]
struct Source {
    named: Vec<Named>,
    defined: BTreeSet<String>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Without comments and what follows them: unit tests come last.
fn code(text: &str) -> String {
    let text = text.split("mod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::{d, self}}` as the paths it stands for.
fn expand(before: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let (head, inner) = match tree.split_once('{') {
        Some((head, rest)) => (head, rest.rsplit_once('}').map(|(inner, _)| inner)),
        None => (tree.split(" as ").next().unwrap(), None),
    };
    let own = head
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let mut path = before.to_vec();
    path.extend(own.filter(|part| *part != "self").map(str::to_owned));
    let Some(inner) = inner else {
        paths.push(path);
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let item = inner.get(start..at).unwrap().trim();
                if !item.is_empty() {
                    expand(&path, item, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths in a statement or an expression: words joined by `::`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let words = code.split(|c| !is_word(c) && c != ':');
    let paths = words.filter(|word| word.contains("::"));
    let parts = paths.map(|path| path.split("::").map(str::to_owned).collect());
    parts.collect()
}

fn source(text: &str) -> Source {
    const DEFINES: [&str; 8] = [
        "struct", "enum", "fn", "trait", "const", "type", "static", "mod",
    ];
    let code = code(text);
    let words: Vec<_> = code
        .split(|c| !is_word(c))
        .filter(|w| !w.is_empty())
        .collect();
    let defined = words.windows(2).filter(|pair| DEFINES.contains(&pair[0]));
    let mut source = Source {
        defined: defined.map(|pair| pair[1].to_owned()).collect(),
        ..Source::default()
    };
    for statement in code.split_inclusive(';') {
        let used = statement.rsplit_once("use ").filter(|(before, _)| {
            let start = before.rsplit('\n').next().unwrap().trim();
            start.is_empty() || start.starts_with("pub")
        });
        let Some((before, tree)) = used else {
            let paths = paths_in(statement).into_iter();
            let named = paths.map(|path| Named {
                path,
                exported: false,
            });
            source.named.extend(named);
            continue;
        };
        let exported = before
            .rsplit('\n')
            .next()
            .unwrap()
            .trim()
            .starts_with("pub");
        let mut paths = Vec::new();
        expand(&[], tree.trim_end_matches(';'), &mut paths);
        let paths = paths.into_iter().chain(paths_in(before));
        source
            .named
            .extend(paths.map(|path| Named { path, exported }));
    }
    source
}

/// The sources of a crate by module.
fn read(root: &Path, at: &Path, sources: &mut BTreeMap<Module, Source>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(root, &path, sources);
            continue;
        }
        let inside = path.strip_prefix(root).unwrap().with_extension("");
        let mut module: Module = inside
            .iter()
            .map(|part| part.to_str().unwrap().to_owned())
            .collect();
        if module.iter().any(|part| part.contains("tests")) {
            continue;
        }
        module.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
        sources.insert(module, source(&fs::read_to_string(&path).unwrap()));
    }
}

/// The module that defines what `path` names in `module`, if it is one of the crate's.
fn resolve(sources: &BTreeMap<Module, Source>, module: &Module, path: &[String]) -> Option<Module> {
    let mut at = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "super" => {}
        // A child module, whether it is declared here or used further.
        first => {
            at.push(first.to_owned());
            if !sources.contains_key(&at) {
                return None;
            }
            rest = &path[1..];
        }
    }
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            at.pop();
            rest = after;
            continue;
        }
        at.push(name.clone());
        if sources.contains_key(&at) {
            rest = after;
            continue;
        }
        at.pop();
        let source = sources.get(&at)?;
        if source.defined.contains(name) {
            break;
        }
        let exports = source.named.iter().filter(|named| named.exported);
        let export = exports
            .clone()
            .find(|named| named.path.last() == Some(name));
        return export.map_or(Some(at.clone()), |named| resolve(sources, &at, &named.path));
    }
    Some(at)
}

/// Which modules each module uses, itself and the root apart.
fn edges(sources: &BTreeMap<Module, Source>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let used = |(module, source): (&_, &Source)| {
        let imports = source.named.iter().filter(|named| !named.exported);
        let targets = imports.filter_map(|named| resolve(sources, module, &named.path));
        targets
            .filter(|to| to != module && !to.is_empty())
            .collect()
    };
    let each = sources.iter();
    each.map(|(module, source)| (module, used((module, source))))
        .collect()
}

/// Modules that reach themselves.
fn in_cycles(edges: &BTreeMap<&Module, BTreeSet<Module>>) -> Vec<String> {
    let reaches_itself = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            for to in edges.get(module).into_iter().flatten() {
                if to == from {
                    return true;
                }
                if seen.insert(to) {
                    left.push(to);
                }
            }
        }
        false
    };
    let modules = edges.keys().filter(|module| reaches_itself(module));
    modules.map(|module| module.join("::")).collect()
}

fn crate_of(files: &[(&str, &str)]) -> Vec<String> {
    let module = |name: &str| name.split("::").map(str::to_owned).collect();
    let sources = files
        .iter()
        .map(|&(name, text)| (module(name), source(text)));
    in_cycles(&edges(&sources.collect()))
}

/// Which of the folders right below the root use which others.
fn folders(edges: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut folders: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        let Some(folder) = from.first() else { continue };
        let others = to.iter().filter_map(|to| to.first());
        let others = others.filter(|other| *other != folder);
        let others = others.map(|other| vec![other.clone()]);
        folders
            .entry(vec![folder.clone()])
            .or_default()
            .extend(others);
    }
    folders
}

#[test]
fn the_crate_has_no_import_cycle() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The engine's folder has those of its crates.
    let below = fs::read_dir(own)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (mut modules, mut uses) = (0, 0);
    for root in below.chain([own.to_owned()]).map(|at| at.join("src")) {
        if !root.exists() {
            continue;
        }
        let mut sources = BTreeMap::new();
        read(&root, &root, &mut sources);
        let edges = edges(&sources);
        modules += sources.len();
        uses += edges.values().map(BTreeSet::len).sum::<usize>();
        let found = in_cycles(&edges);
        assert_eq!(
            found, [""; 0],
            "modules that import themselves through others"
        );
        let folders = folders(&edges);
        let folders = folders.iter().map(|(from, to)| (from, to.clone()));
        let found = in_cycles(&folders.collect());
        assert_eq!(
            found, [""; 0],
            "folders that import themselves through others"
        );
    }
    assert!(modules > 40, "{modules} modules");
    assert!(uses > 2 * modules, "{uses} uses");
}

#[test]
fn cycles_are_found_through_whatever_names_them() {
    let a = "use super::b::{One, self as other};\npub struct Two;";
    for b in [
        "use crate::a::Two;\npub struct One;",
        "pub struct One;\nfn f() -> super::a::Two { todo!() }",
        "pub struct One;\nuse crate::{a::{Two}, c::Three};",
    ] {
        assert_eq!(crate_of(&[("a", a), ("b", b)]), ["a", "b"], "{b}");
    }
    // Through a re-export: the folder's own file uses its part, which uses the folder's.
    let folder = "mod part;\npub use part::Part;\nuse part::Part as P;\npub struct Whole(P);";
    let part = "use super::Whole;\npub struct Part;";
    let found = crate_of(&[("a", folder), ("a::part", part)]);
    assert_eq!(found, ["a", "a::part"]);
}

#[test]
fn code_without_cycles_passes() {
    let part = "use super::Other;\npub struct Part;";
    let other = "pub struct Other; // use super::part::Part;\nmod tests { use super::part::Part; }";
    // Re-exports alone make none.
    let folder = "mod part;\nmod other;\npub use other::Other;\npub use part::Part;";
    let files = [("a", folder), ("a::part", part), ("a::other", other)];
    assert_eq!(crate_of(&files), [""; 0]);
}
