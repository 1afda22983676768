//! All commands say the same total of the boots in a folder: `report` in each of its forms that has
//! one, `history`, `compare`, `gate`, and `doctor` of two records.

use crate::common;

use common::guest::{image, qemu_is_here};
use common::{document, told};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MS: u64 = 1_000_000;

/// The only row of kind "total", by its column.
fn total(rows: &Value, column: &str) -> f64 {
    let rows = rows.as_array().unwrap();
    let mut totals = rows.iter().filter(|row| row["kind"] == "total");
    let row = totals.next().unwrap();
    assert!(totals.next().is_none(), "{rows:?}");
    let figure = &row[column];
    figure.as_f64().or(figure["median_ns"].as_f64()).unwrap()
}

/// Milliseconds that stand right in front of `unit` in the line of `text` that has `name`.
fn printed(text: &str, name: &str) -> f64 {
    let mut lines = text
        .lines()
        .filter(|line| line.trim_start().starts_with(name));
    let line = lines.next().unwrap_or_else(|| panic!("{name} in {text}"));
    let figure = line.split_whitespace().nth(1).unwrap();
    figure.parse().unwrap()
}

/// Every command about the record in `folder`, the only one there.
fn totals(folder: &Path, record: &Path) -> Vec<(&'static str, f64)> {
    let [folder, record] = [folder, record].map(|path| path.to_str().unwrap());
    let report = document(&["report", folder, "--json"]);
    let setups = report["setups"].as_array().unwrap();
    assert_eq!(setups.len(), 1, "{report}");
    let history = document(&["history", folder, "--json"]);
    let mut series = history["series"].as_array().unwrap().iter();
    let series = series.find(|series| series["figure"] == "total").unwrap();
    let compared = document(&["compare", record, record, "--json"]);
    // One run on the wall clock is unclear, and has its figures all the same.
    let (_, gated, _) = told(&["gate", record, record, "--json"]);
    let gated: Value = serde_json::from_str(&gated).unwrap();
    let (_, folders, _) = told(&["gate", folder, folder, "--json"]);
    let folders: Value = serde_json::from_str(&folders).unwrap();
    let (_, table, _) = told(&["report", folder, "--format", "table"]);
    let (_, entries, _) = told(&["report", folder, "--format", "benchmark-action"]);
    let entries: Value = serde_json::from_str(&entries).unwrap();
    let mut entries = entries.as_array().unwrap().iter();
    let entry = entries.find(|entry| entry["name"].as_str().unwrap().ends_with("total"));
    vec![
        (
            "report",
            setups[0]["total"]["median_ns"].as_f64().unwrap() / 1e6,
        ),
        ("report, a table", printed(&table, "all")),
        (
            "report, for github-action-benchmark",
            entry.unwrap()["value"].as_f64().unwrap(),
        ),
        ("history", series["ms"][0].as_f64().unwrap()),
        ("compare", total(&compared["rows"], "a") / 1e6),
        (
            "gate of two records",
            total(&gated["groups"][0]["rows"], "b_ns") / 1e6,
        ),
        (
            "gate of two folders",
            total(&folders["groups"][0]["rows"], "a_ns") / 1e6,
        ),
    ]
}

#[track_caller]
fn are_one(totals: &[(&str, f64)]) {
    let first = totals[0].1;
    assert!(first > 0.0, "{totals:?}");
    for (_, ms) in totals {
        // A page has three digits behind the point.
        assert!((ms - first).abs() < 0.000_6, "{totals:?}");
    }
}

#[test]
fn of_a_boot_that_is_timed_from_power_on_or_by_its_own_clock() {
    for (from, start_ns) in [("power-on", 0), ("clock", 300 * MS)] {
        let folder = tempfile::tempdir().unwrap();
        let record = json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
            "time_base": {"from": from, "unclocked": []},
            "source": {"kind": "linux", "kernel": {"kind": "linux", "release": "6.12.0"}},
            "machine": {"asked": {"board": "q35", "memory_bytes": 1_u64 << 30, "nodes": 1, "cpus": 1}},
            "log": ["[    0.400000] Linux version 6.12.0", "[    1.200000] Run /init as init process"],
            "milestones": {"entry_ns": 400 * MS, "all_allocatable_ns": 900 * MS},
            "phases": [
                {"name": "memmap early", "start_ns": start_ns, "end_ns": 800 * MS},
                {"name": "drivers", "start_ns": 800 * MS, "end_ns": 1_234_567_890_u64},
            ],
        });
        let file = folder.path().join("a.json");
        fs::write(&file, record.to_string()).unwrap();
        let totals = totals(folder.path(), &file);
        are_one(&totals);
        let file = file.to_str().unwrap();
        let doctor = document(&["doctor", file, file, "--json"]);
        let total = doctor["beside"]["total_ns"][0].as_f64().unwrap() / 1e6;
        are_one(&[totals[0], ("doctor", total)]);
        let expected = 1_234.567_89 - start_ns as f64 / 1e6;
        assert!((totals[0].1 - expected).abs() < 1e-6, "{totals:?}");
    }
}

/// The folder of README's example, with our image.
#[test]
fn of_the_folder_that_a_matrix_leaves() {
    if image().is_none() || !qemu_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("MATRIX.toml");
    let matrix =
        "clocks = [\"instructions\"]\n[[kernel]]\nname = \"image\"\n[[shape]]\nmemory_mib = 256\n";
    fs::write(&file, matrix).unwrap();
    let runs = folder.path().join("runs");
    document(&[
        "matrix",
        file.to_str().unwrap(),
        "-o",
        runs.to_str().unwrap(),
        "--json",
    ]);
    are_one(&totals(
        &runs,
        &runs.join("image-256m-1n-1c-w0-instructions-0000.json"),
    ));
}
