//! `firstlight gate`, with real guests on the instruction clock and with records.

use crate::common;
use crate::common::guest;

use common::{document, told};
use guest::{image, qemu_is_here};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Options of a guest; `None` where no guest can run.
fn options(memory: &str, more: &str) -> Option<String> {
    let image = image().filter(|_| qemu_is_here())?;
    Some(format!(
        "--memory {memory} --clock instructions --image '{image}' --append '{more}'"
    ))
}

fn verdict(arguments: &[&str], exit_code: i32) -> Value {
    let (code, stdout, stderr) = told(arguments);
    assert_eq!(code, exit_code, "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_change_of_one_percent_is_found_with_one_boot_each() {
    let (Some(a), Some(b)) = (
        options("500M", "descriptors=eager"),
        options("506M", "descriptors=eager"),
    ) else {
        return;
    };
    let found = verdict(&["gate", &a, &b, "--json"], 7);
    assert_eq!(found["schema"], "firstlight.gate/1");
    assert_eq!(found["verdict"], "regressed");
    assert!(
        found["moved"]
            .to_string()
            .contains("phase \\\"descriptors\\\""),
        "{found}"
    );
    let same = verdict(&["gate", "--self", &a, "--json"], 0);
    assert_eq!(
        (&same["verdict"], &same["noise_floor_percent"]),
        (&"pass".into(), &0.0.into())
    );
    let back = verdict(&["gate", &b, &a, "--json"], 0);
    assert_eq!(back["verdict"], "pass");
}

/// A record of a machine whose phase "memmap" took this long.
fn record(memory_gib: u64, clock: &str, ns: u64) -> Value {
    json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": clock,
        "source": {"kind": "linux"},
        "machine": {"asked": {"board": "q35", "memory_bytes": memory_gib << 30, "nodes": 1, "cpus": 1}},
        "milestones": {},
        "phases": [
            {"name": "memmap", "start_ns": 0, "end_ns": ns},
            {"name": "kernel", "start_ns": ns, "end_ns": ns + 700_000_000},
        ],
    })
}

fn folder(path: &Path, records: impl IntoIterator<Item = Value>) -> String {
    fs::create_dir_all(path).unwrap();
    for (number, record) in records.into_iter().enumerate() {
        fs::write(path.join(format!("{number:03}.json")), record.to_string()).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_smallest_machine_that_is_slower_is_named() {
    let folders = tempfile::tempdir().unwrap();
    let sizes = [16_u64, 64, 1024];
    let a = folder(
        &folders.path().join("a"),
        sizes.map(|gib| record(gib, "instructions", gib << 20)),
    );
    // The region beyond the first section costs machines of 64 GiB and more.
    let slower = sizes.map(|gib| {
        let lost = if gib >= 64 { gib << 22 } else { 0 };
        record(gib, "instructions", (gib << 20) + lost)
    });
    let b = folder(&folders.path().join("b"), slower);
    let found = verdict(&["gate", &a, &b, "--json"], 7);
    assert_eq!(found["smallest_regressed_bytes"], 64_u64 << 30);
    assert_eq!(found["groups"].as_array().unwrap().len(), 3);
    assert!(
        found["moved"][0]
            .as_str()
            .unwrap()
            .starts_with("phase \"memmap\""),
        "{found}"
    );
    let junit = folders.path().join("gate.xml");
    let (code, page, stderr) = told(&["gate", &a, &b, "--junit", junit.to_str().unwrap()]);
    assert_eq!(code, 7);
    assert!(
        page.contains("64 GiB") && stderr.contains("memmap"),
        "{page}{stderr}"
    );
    let junit = fs::read_to_string(junit).unwrap();
    assert_eq!(junit.matches("<failure").count(), 2, "{junit}");
    assert!(junit.contains("<testsuite name=\"65536 MiB\""), "{junit}");
}

/// Figures that differ a little from run to run.
fn noisy(base_ns: u64, runs: u64) -> impl Iterator<Item = Value> {
    (0..runs).map(move |run| record(16, "wall", base_ns + run * 7919 % 13 * base_ns / 400))
}

#[test]
fn on_the_wall_clock_half_of_the_runs_confirm_the_other_half() {
    let folders = tempfile::tempdir().unwrap();
    let make = |name: &str, base_ns, runs| folder(&folders.path().join(name), noisy(base_ns, runs));
    let good = make("good", 18_170_000_000, 20);
    let bad = make("bad", 21_600_000_000, 20);
    let found = verdict(&["gate", &good, &bad, "--json"], 7);
    assert_eq!(found["verdict"], "regressed");
    let row = &found["groups"][0]["rows"][0];
    assert_eq!(
        (&row["name"], &row["state"]),
        (&"memmap".into(), &"regressed".into())
    );
    assert!(row["p"].as_f64().unwrap() < 0.01, "{row}");
    assert_eq!(
        verdict(&["gate", &good, &good, "--json"], 0)["verdict"],
        "pass"
    );
    assert_eq!(
        verdict(
            &[
                "gate",
                "--self",
                &make("forty", 1_000_000_000, 40),
                "--json"
            ],
            0
        )["verdict"],
        "pass"
    );
    // Ten runs move it, and none confirm it; nine say nothing.
    let (good, bad) = (
        make("good10", 18_170_000_000, 10),
        make("bad10", 21_600_000_000, 10),
    );
    let found = verdict(&["gate", &good, &bad, "--json"], 0);
    assert_eq!(found["groups"][0]["rows"][0]["state"], "unconfirmed");
    let few = verdict(
        &["gate", &make("good9", 1_000_000_000, 9), &bad, "--json"],
        0,
    );
    assert_eq!(few["verdict"], "unclear");
}

#[test]
fn a_comparison_is_judged_as_it_stands() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str, ns| {
        let path = folders.path().join(name);
        fs::write(&path, record(16, "instructions", ns).to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (path("a.json", 1000), path("b.json", 1010));
    let comparison = document(&["compare", &a, &b, "--json"]);
    let file = path("c.json", 0);
    fs::write(&file, comparison.to_string()).unwrap();
    let found = verdict(&["gate", &file, "--json"], 7);
    assert_eq!(found["groups"][0]["rows"][0]["ratio"], 1.01);
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let folders = tempfile::tempdir().unwrap();
    let empty = folder(&folders.path().join("empty"), []);
    let some = folder(&folders.path().join("some"), [record(16, "wall", 1)]);
    let large = folder(&folders.path().join("large"), [record(32, "wall", 1)]);
    let file = folders.path().join("some/000.json");
    for (arguments, code, part) in [
        (vec!["gate", &empty, &some], 1, "no record in"),
        (vec!["gate", &some, &large], 2, "without a run"),
        (vec!["gate", "/nowhere", &some], 3, "cannot read"),
        (vec!["gate", file.to_str().unwrap()], 1, "firstlight.run/1"),
        (vec!["gate"], 2, "<A>"),
    ] {
        let (exit_code, _, stderr) = told(&arguments);
        assert_eq!(exit_code, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}
