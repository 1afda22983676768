//! Versions agree, and releases have the names under which they are looked for.

use crate::documents::{read, root};

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn manifest(folder: &str) -> toml::Table {
    read(format!("{folder}/Cargo.toml")).parse().unwrap()
}

/// Members of the workspace by the names of their packages.
fn members() -> BTreeMap<String, toml::Table> {
    let workspace = manifest(".");
    let folders = workspace["workspace"]["members"].as_array().unwrap();
    let one = |folder: &toml::Value| {
        let manifest = manifest(folder.as_str().unwrap());
        (
            manifest["package"]["name"].as_str().unwrap().to_owned(),
            manifest,
        )
    };
    folders.iter().map(one).collect()
}

/// The engine's crates, each after those that it needs.
fn engine_line() -> String {
    let makefile = read("Makefile");
    let mut lines = makefile
        .lines()
        .filter_map(|line| line.strip_prefix("ENGINE := "));
    lines.next().unwrap().to_owned()
}

fn engine_crates() -> BTreeSet<String> {
    engine_line().split(' ').map(str::to_owned).collect()
}

fn version() -> String {
    let workspace = manifest(".");
    workspace["workspace"]["package"]["version"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Releases of the changelog, the newest first: name and date.
fn releases() -> Vec<(String, String)> {
    let text = read("CHANGELOG.md");
    let heads = text.lines().filter_map(|line| line.strip_prefix("## "));
    let dated = heads.filter_map(|head| head.split_once(" - "));
    dated
        .map(|(name, date)| (name.to_owned(), date.to_owned()))
        .collect()
}

#[test]
fn all_programs_have_one_version_and_the_changelog_begins_with_it() {
    let members = members();
    for (name, manifest) in &members {
        let own = manifest["package"]["version"].as_str();
        // The engine's crates have their own.
        assert_eq!(own.is_some(), engine_crates().contains(name), "{name}");
    }
    // A workspace of its own.
    let plugin = manifest("kubernetes/plugin");
    assert_eq!(plugin["package"]["version"].as_str(), Some(&*version()));
    let releases = releases();
    assert_eq!(releases[0].0, version());
    let engine = members["firstlight"]["package"]["version"]
        .as_str()
        .unwrap();
    let text = read("CHANGELOG.md");
    let newest = text.split("\n## ").nth(1).unwrap();
    assert!(
        newest.contains(&format!("engine {engine}"))
            || releases
                .iter()
                .any(|(name, _)| *name == format!("Engine {engine}")),
        "the changelog has no engine {engine}"
    );
    let dates: Vec<&String> = releases.iter().map(|(_, date)| date).collect();
    assert!(
        dates.len() > 3 && dates.is_sorted_by(|a, b| a >= b),
        "{dates:?}"
    );
    // What is published names the versions that it needs.
    let workspace = manifest(".");
    for (name, needed) in workspace["workspace"]["dependencies"].as_table().unwrap() {
        let own = match &**name {
            name if engine_crates().contains(name) => engine.to_owned(),
            name if name.starts_with("firstlight-") => version(),
            _ => continue,
        };
        assert_eq!(needed["version"].as_str(), Some(&*own), "{name}");
    }
}

#[test]
fn releases_are_found_under_their_names() {
    let names = Command::new(root().join("packaging/dist/build.sh"))
        .arg("--names")
        .output()
        .unwrap();
    let names = String::from_utf8(names.stdout).unwrap();
    let members = members();
    for package in ["firstlight-cli", "firstlight-pool-cli"] {
        let looked_for = &members[package]["package"]["metadata"]["binstall"];
        for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
            let filled = |key: &str| {
                let text = looked_for[key].as_str().unwrap();
                text.replace("{ version }", &version())
                    .replace("{ target }", target)
            };
            let archive = filled("pkg-url");
            let archive = archive.rsplit('/').next().unwrap();
            assert!(
                names.lines().any(|name| name == archive),
                "{archive}: {names}"
            );
            // Where the script puts programs.
            let folder = archive.strip_suffix(".tar.gz").unwrap();
            assert_eq!(
                filled("bin-dir"),
                format!("{folder}/bin/{{ bin }}{{ binary-ext }}")
            );
        }
    }
    for ending in [
        ".deb",
        "-stick.img.gz",
        "-container-arm64.tar",
        "-kubernetes-arm64.tar",
        ".tgz",
        ".cdx.json",
    ] {
        assert!(
            names.lines().any(|name| name.ends_with(ending)),
            "{ending}: {names}"
        );
    }
}

#[test]
fn crates_are_published_after_those_that_they_need() {
    let makefile = read("Makefile").replace("\\\n", " ");
    let makefile = makefile.replace("$(ENGINE)", &engine_line());
    let order = makefile
        .split("\nPUBLISHED = ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let mut published = BTreeSet::new();
    let members = members();
    for name in order.split_whitespace() {
        let manifest = members
            .get(name)
            .unwrap_or_else(|| panic!("no crate {name}"));
        let package = &manifest["package"];
        assert!(
            package.get("description").is_some(),
            "{name} has no description"
        );
        let needs = manifest.get("dependencies").and_then(toml::Value::as_table);
        for needed in needs.into_iter().flat_map(|table| table.keys()) {
            assert!(
                !members.contains_key(needed) || published.contains(needed),
                "{name} needs {needed}"
            );
        }
        published.insert(name.to_owned());
    }
    let rest = members
        .iter()
        .filter(|(name, _)| !published.contains(*name));
    for (name, manifest) in rest {
        let publish = manifest["package"]
            .get("publish")
            .and_then(toml::Value::as_bool);
        assert_eq!(publish, Some(false), "{name}");
    }
}
