//! `firstlight compare` with real guests, on the instruction clock.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot run has failed"
)]

mod common;
#[path = "common/guest.rs"]
mod guest;

use common::{document, told};
use guest::{image, qemu_is_here};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Options of a small guest; `None` where no guest can run.
fn options(more: &str) -> Option<String> {
    let image = image().filter(|_| qemu_is_here())?;
    let machine = "--memory 512M --clock instructions";
    Some(format!("{machine} --image '{image}' {more}"))
}

fn figure<'c>(comparison: &'c Value, kind: &str, name: &str) -> &'c Value {
    let rows = comparison["rows"].as_array().unwrap();
    let mut rows = rows.iter();
    let row = rows.find(|row| row["kind"] == kind && row["name"] == name);
    row.unwrap_or_else(|| panic!("no {kind} {name:?} in {comparison}"))
}

#[test]
fn lazy_hands_out_memory_earlier_than_eager() {
    let (Some(lazy), Some(eager)) = (
        options("--append descriptors=lazy"),
        options("--append descriptors=eager"),
    ) else {
        return;
    };
    let comparison = document(&["compare", &lazy, &eager, "--json"]);
    assert_eq!(comparison["schema"], "firstlight.compare/1");
    assert_eq!(comparison["clock"], "instructions");
    assert!(comparison["notes"][0].as_str().unwrap().contains("enough"));
    for (side, word) in [(0, "first touched"), (1, "every page")] {
        let side = &comparison["sides"][side];
        assert_eq!(
            (&side["system"], &side["runs"]),
            (&"image".into(), &1.into())
        );
        assert!(side["does"].to_string().contains(word), "{side}");
    }
    let row = figure(&comparison, "milestone", "all memory allocatable");
    assert!(row["ratio"].as_f64().unwrap() > 1.5, "{row}");
    assert_eq!(row["a"]["mad_ns"], 0.0);
    // The work is the same, whenever it is done.
    let row = figure(&comparison, "descriptors", "all of it");
    let ratio = row["ratio"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&ratio), "{row}");
}

#[test]
fn a_record_file_stands_for_its_run() {
    let Some(given) = options("") else { return };
    let words = shlex::split(&given).unwrap();
    let mut arguments = vec!["boot", "--json"];
    arguments.extend(words.iter().map(String::as_str));
    let (code, record, stderr) = told(&arguments);
    assert_eq!(code, 0, "{stderr}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    fs::write(&path, record).unwrap();
    let path = path.to_str().unwrap();
    // The same machine on this clock: the same figures.
    let comparison = document(&["compare", path, &given, "--json", "--runs", "2"]);
    assert_eq!(comparison["sides"][0]["runs"], 1);
    assert_eq!(comparison["sides"][1]["runs"], 2);
    assert!(
        comparison["sides"][0]["does"][0]
            .as_str()
            .unwrap()
            .contains("no descriptor")
    );
    for row in comparison["rows"].as_array().unwrap() {
        assert_eq!(row["ratio"], 1.0, "{row}");
    }
    let (code, report, _) = told(&["compare", path, path]);
    assert_eq!(code, 0);
    for part in ["our image 0.1.0, 512 MiB", "Milestones", "Phases", "1.00 x"] {
        assert!(report.contains(part), "{part:?} in {report}");
    }
}

#[test]
fn a_linux_stands_beside_the_image() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/linux/6.12/vmlinuz");
    if !kernel.is_file() {
        eprintln!("skipped: no {} (make linux fetches it)", kernel.display());
        return;
    }
    let Some(ours) = options("--append descriptors=early") else {
        return;
    };
    let linux = format!(
        "--memory 512M --clock instructions --kernel '{}'",
        kernel.display()
    );
    let comparison = document(&["compare", &ours, &linux, "--json"]);
    assert_eq!(comparison["sides"][1]["system"], "linux");
    let release = comparison["sides"][1]["release"].as_str().unwrap();
    assert!(release.starts_with("6.12."), "{release}");
    for (kind, name) in [
        ("descriptors", "all of it"),
        ("milestone", "all memory allocatable"),
    ] {
        let row = figure(&comparison, kind, name);
        assert!(row["ratio"].as_f64().unwrap() > 2.0, "{row}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_boots() {
    for (a, b, code, part) in [
        ("--memory 1.5G", "", 2, "whole MiB"),
        ("", "--append 'x", 2, "quote"),
        ("--clock instructions", "", 2, "--clock"),
        ("/nowhere/record.json", "", 3, "cannot read"),
        (env!("CARGO_MANIFEST_PATH"), "", 1, "no JSON"),
    ] {
        let (seen, stdout, stderr) = told(&["compare", a, b]);
        assert_eq!((seen, stdout.as_str()), (code, ""), "{a:?} {b:?}: {stderr}");
        assert!(stderr.contains(part), "{part:?} in {stderr}");
    }
    let (code, _, _) = told(&["compare", "", "", "--runs", "0"]);
    assert_eq!(code, 2);
}
