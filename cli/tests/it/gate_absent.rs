//! `firstlight gate` where something is not there: a figure, a boot, a second run.

use crate::common::told;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MS: u64 = 1_000_000;

/// Boots of so many milliseconds, all memory allocatable at half of it.
fn boot(clock: &str, ms: u64) -> Value {
    json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": clock,
        "time_base": {"from": "power-on", "unclocked": []},
        "source": {"kind": "linux", "kernel": {"kind": "linux", "release": "6.12.0"}},
        "machine": {"asked": {"board": "q35", "memory_bytes": 1_u64 << 30, "nodes": 1, "cpus": 1}},
        "milestones": {"all_allocatable_ns": ms * MS / 2},
        "phases": [{"name": "kernel", "start_ns": 0, "end_ns": ms * MS}],
    })
}

/// Twenty boots on the wall clock, which differ a little.
fn twenty(ms: u64) -> Vec<Value> {
    (0..20).map(|run| boot("wall", ms + run * 7 % 5)).collect()
}

fn without_phases(mut run: Value) -> Value {
    run["phases"] = json!([]);
    run
}

fn folder(path: &Path, records: impl IntoIterator<Item = Value>) {
    fs::create_dir_all(path).unwrap();
    for (number, record) in records.into_iter().enumerate() {
        fs::write(path.join(format!("{number:03}.json")), record.to_string()).unwrap();
    }
}

/// The exit code and the document of `gate` over two folders of records.
fn gate(a: Vec<Value>, b: Vec<Value>, more: &[&str]) -> (i32, Value) {
    let folders = tempfile::tempdir().unwrap();
    folder(&folders.path().join("a"), a);
    folder(&folders.path().join("b"), b);
    of(folders.path(), more)
}

fn of(folders: &Path, more: &[&str]) -> (i32, Value) {
    let path = |name: &str| folders.join(name).to_str().unwrap().to_owned();
    let (a, b) = (path("a"), path("b"));
    let (code, stdout, stderr) = told(&[&["gate", &*a, &*b, "--json"], more].concat());
    let document = serde_json::from_str(&stdout);
    (
        code,
        document.unwrap_or_else(|_| panic!("{code}: {stderr}")),
    )
}

#[track_caller]
fn is_unclear((code, found): (i32, Value), part: &str) {
    assert_eq!(code, 11, "{found}");
    let why = found["unclear"].to_string();
    assert!(why.contains(part), "{part} in {why}");
}

#[test]
fn a_figure_that_no_run_of_a_side_has_is_no_pass() {
    let never = |mut run: Value| {
        run["milestones"] = json!({});
        run
    };
    let b = twenty(1000).into_iter().map(never).collect();
    is_unclear(
        gate(twenty(1000), b, &[]),
        "milestone \\\"all memory allocatable\\\": 10 of 10 runs of A and 0 of 10 of B have it",
    );
    // Without a phase there is no time of one: 0 would be faster.
    let lost = vec![without_phases(boot("instructions", 1000))];
    let found = gate(vec![boot("instructions", 1000)], lost, &[]);
    is_unclear(
        found.clone(),
        "total: 1 of 1 runs of A and 0 of 1 of B have it",
    );
    assert!(!found.1.to_string().contains("improved"), "{}", found.1);
    // What does not decide may be missing.
    let ignored = gate(
        twenty(1000),
        twenty(1000).into_iter().map(never).collect(),
        &["--ignore", "all memory allocatable"],
    );
    assert_eq!(ignored.0, 0, "{}", ignored.1);
}

#[test]
fn a_figure_that_some_runs_lack_is_no_pass() {
    let lost = |count: usize| -> Vec<Value> {
        let runs = twenty(2000).into_iter().enumerate();
        let cut = |(at, run)| if at < count { without_phases(run) } else { run };
        runs.map(cut).collect()
    };
    is_unclear(
        gate(twenty(1000), lost(11), &["--only", "total"]),
        "of 10 of B have it",
    );
    is_unclear(
        gate(twenty(1000), lost(1), &["--only", "total"]),
        "9 of 10 of B have it",
    );
}

fn fail(folders: &Path, side: &str, cell: &str) {
    let failed =
        json!({"schema": "firstlight.failed/1", "cell": cell, "message": "it hung", "log": []});
    let path = folders.join(side).join(format!("{cell}-0000.failed"));
    fs::write(path, failed.to_string()).unwrap();
}

#[test]
fn a_cell_that_fails_in_b_only_does_not_boot() {
    let folders = tempfile::tempdir().unwrap();
    for side in ["a", "b"] {
        folder(&folders.path().join(side), [boot("instructions", 10)]);
    }
    fail(folders.path(), "a", "64g");
    fail(folders.path(), "b", "64g");
    is_unclear(of(folders.path(), &[]), "a boot of B failed");
    fail(folders.path(), "b", "2g");
    let (code, found) = of(folders.path(), &["--allow-unclear"]);
    assert_eq!(code, 7, "{found}");
    assert_eq!(found["moved"], json!(["2g does not boot: it hung"]));
}

#[test]
fn one_run_cannot_stand_against_itself() {
    let folders = tempfile::tempdir().unwrap();
    folder(&folders.path().join("a"), [boot("instructions", 10)]);
    let a = folders.path().join("a");
    let (code, stdout, stderr) = told(&["gate", "--self", a.to_str().unwrap(), "--json"]);
    assert_eq!(code, 11, "{stderr}");
    assert!(stdout.contains("1 run; expected 2 at least"), "{stdout}");
}

/// A boot of the kernel in this file, in a cell of a matrix if one is named.
fn of_file(file: &str, cell: Option<&str>, ms: u64) -> Value {
    let mut run = boot("instructions", ms);
    run["source"]["kernel"]["file"] = file.into();
    run["source"]["cell"] = cell.into();
    run
}

#[test]
fn two_kernels_of_one_release_are_two_set_ups() {
    let sides = |cells: [Option<&str>; 2], ws: &str, debug_ms| {
        let file = |name: &str| format!("/{ws}/{name}/bzImage");
        let old = of_file(&file("old"), cells[0], 1000);
        vec![old, of_file(&file("debug"), cells[1], debug_ms)]
    };
    for cells in [[None; 2], [Some("old-1g"), Some("debug-1g")]] {
        let (code, found) = gate(sides(cells, "ws1", 5000), sides(cells, "ws2", 15000), &[]);
        assert_eq!(code, 7, "{found}");
        let groups = found["groups"].as_array().unwrap();
        let names: Vec<&str> = groups
            .iter()
            .filter_map(|group| group["name"].as_str())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(
            names[0].contains("debug") && names[1].contains("old"),
            "{names:?}"
        );
        assert_eq!(
            found["moved"][0],
            "total: 5000.000 -> 15000.000 ms (+200.0 %)"
        );
    }
}

#[test]
fn records_that_are_not_read_are_named() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str| folders.path().join(name);
    for side in ["a", "b"] {
        folder(&path(side), [boot("instructions", 10)]);
    }
    // A folder of this name is Slurm's only beside a matrix' cells.
    folder(&path("b/slurm"), [boot("instructions", 30)]);
    let (code, found) = of(folders.path(), &[]);
    assert_eq!(code, 7, "{found}");
    fs::write(path("b/cells.json"), "{}").unwrap();
    assert_eq!(of(folders.path(), &[]).0, 0);
    fs::write(path("b/README"), "Boots of a machine.\n").unwrap();
    assert_eq!(of(folders.path(), &[]).0, 0);
    fs::write(
        path("b/dmesg.0"),
        "[    0.000000] Linux version 6.1\n[    9.000000] x\n",
    )
    .unwrap();
    is_unclear(
        of(folders.path(), &[]),
        "dmesg.0 is left out: its name ends with neither",
    );
    fs::remove_file(path("b/dmesg.0")).unwrap();
    folder(&path("b/1/2/3/4/5"), [boot("instructions", 30)]);
    is_unclear(
        of(folders.path(), &[]),
        "b/1/2/3/4/5 is left out: it is more than 4 folders deep",
    );
}

/// Twenty logs of a boot, each with `more` behind the line with which the kernel hands over.
fn logs(path: &Path, ms: u64, end: &str, more: &str) {
    fs::create_dir_all(path).unwrap();
    for run in 0..20 {
        let ms = ms + run * 7 % 5;
        let text = format!(
            "[    0.010000] Linux version 6.1.0\n[    0.{ms:03}000] ACPI: PM-Timer IO Port: 0x608\n{end}{more}"
        );
        fs::write(path.join(format!("{run:02}.log")), text).unwrap();
    }
}

const INIT: &str = "[    3.000000] Run /sbin/init as init process\n";

#[test]
fn the_boot_of_a_log_ends_where_the_kernel_hands_over() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str| folders.path().join(name);
    logs(&path("a"), 500, INIT, "");
    logs(
        &path("b"),
        500,
        INIT,
        "[ 9000.000000] usb 1-1: new device\n",
    );
    let (code, found) = of(folders.path(), &[]);
    assert_eq!(code, 0, "{found}");
    // Systemd's end counts where all logs have it.
    let started =
        "[    8.000000] systemd[1]: Startup finished in 3s (kernel) + 5s (userspace) = 8s.\n";
    logs(&path("b"), 500, INIT, started);
    assert_eq!(of(folders.path(), &[]).0, 0);
    // A log that was cut off did not take less time.
    logs(&path("b"), 500, "", "");
    is_unclear(
        of(folders.path(), &[]),
        "B has no log in which the kernel hands over",
    );
    logs(&path("b"), 500, INIT, "");
    fs::write(
        path("b/19.log"),
        "[    0.010000] Linux version 6.1.0\n[    0.500000] x\n",
    )
    .unwrap();
    is_unclear(
        of(folders.path(), &[]),
        "19.log is left out: it ends before the kernel hands over",
    );
}

#[test]
fn two_logs_in_one_have_no_times() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str| folders.path().join(name);
    logs(&path("a"), 500, INIT, "");
    let mixed = "[   40.000000] a\n[    0.600000] b\n".repeat(8);
    logs(&path("b"), 500, &mixed, INIT);
    let path_a = path("a");
    let (code, _, stderr) = told(&[
        "gate",
        path_a.to_str().unwrap(),
        path("b").to_str().unwrap(),
    ]);
    assert!(
        code == 1 && stderr.contains("stamps in their order"),
        "{stderr}"
    );
    fs::copy(path("a/00.log"), path("b/00.log")).unwrap();
    is_unclear(of(folders.path(), &[]), "stamps in their order");
    let (_, page, _) = told(&[
        "doctor",
        path("a/00.log").to_str().unwrap(),
        path("b/01.log").to_str().unwrap(),
    ]);
    assert!(page.contains("cannot stand beside each other"), "{page}");
}

#[test]
fn a_log_that_ends_early_is_no_equal_boot() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str| folders.path().join(name);
    logs(&path("a"), 500, INIT, "");
    logs(&path("b"), 500, "", "");
    let (a, b) = (path("a/00.log"), path("b/00.log"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    for sides in [[a, b], [b, a]] {
        let (_, page, _) = told(&["doctor", sides[0], sides[1]]);
        let why = "ends at \"ACPI: PM-Timer IO Port: 0x608\", before the kernel hands over, which the other shows";
        assert!(page.contains("unclear") && page.contains(why), "{page}");
    }
}
