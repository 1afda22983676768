//! `firstlight gate`, with real guests on the instruction clock and with records.

use crate::common;
use crate::common::guest;

use common::{document, told};
use firstlight_pool::os::need::skip;
use guest::{image, qemu_is_here};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

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
        options("496M", "descriptors=eager"),
        options("502M", "descriptors=eager"),
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
    let moved = |at: usize| found["moved"][at].as_str().unwrap();
    assert!(
        moved(0).starts_with("total: ") && moved(1).starts_with("phase \"memmap\""),
        "{found}"
    );
    let junit = folders.path().join("gate.xml");
    let (code, page, stderr) = told(&[
        "gate",
        &a,
        &b,
        "--export",
        &format!("junit={}", junit.display()),
    ]);
    assert_eq!(code, 7);
    assert!(
        page.contains("64 GiB") && stderr.contains("total"),
        "{page}{stderr}"
    );
    let junit = fs::read_to_string(junit).unwrap();
    // Total and phase of two machines, and the verdict.
    assert_eq!(junit.matches("<failure").count(), 5, "{junit}");
    assert!(
        junit.contains("<testsuite name=\"64 GiB, Linux, 1 node, 1 CPU\""),
        "{junit}"
    );
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
    let rows = found["groups"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "memmap").unwrap();
    assert_eq!(row["state"], "regressed");
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
    // Ten runs move it, and none confirm it; nine say nothing. Neither is green.
    let (good, bad) = (
        make("good10", 18_170_000_000, 10),
        make("bad10", 21_600_000_000, 10),
    );
    let found = verdict(&["gate", &good, &bad, "--json"], 11);
    assert_eq!(found["groups"][0]["rows"][0]["state"], "unconfirmed");
    assert!(
        found["unclear"][0]
            .as_str()
            .unwrap()
            .contains("expected 20 runs a side"),
        "{found}"
    );
    let nine = make("good9", 1_000_000_000, 9);
    let few = verdict(&["gate", &nine, &bad, "--json"], 11);
    assert_eq!(few["verdict"], "unclear");
    verdict(&["gate", &nine, &bad, "--json", "--allow-unclear"], 0);
    // What is slower stays so.
    let (good, bad) = (folders.path().join("good"), folders.path().join("bad"));
    let words = [
        "gate",
        good.to_str().unwrap(),
        bad.to_str().unwrap(),
        "--json",
        "--allow-unclear",
    ];
    verdict(&words, 7);
    let junit = folders.path().join("gate.xml");
    let export = format!("junit={}", junit.display());
    let (code, _, stderr) = told(&["gate", &nine, &nine, "--export", &export]);
    assert_eq!(code, 11, "{stderr}");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(
        junit.contains("<error") && junit.contains("errors=\"2\""),
        "{junit}"
    );
    // Each of its tests stands alone elsewhere: none that decides has passed.
    let kcidb = folders.path().join("kcidb.json");
    let export = format!("kcidb={}", kcidb.display());
    told(&["gate", &nine, &nine, "--export", &export]);
    let kcidb = fs::read_to_string(kcidb).unwrap();
    assert!(
        kcidb.contains("firstlight.total") && !kcidb.contains("PASS"),
        "{kcidb}"
    );
}

/// A boot with a phase of each of `ms`, on the exact clock.
fn phases(words: &str, ms: &[(&str, u64)]) -> Value {
    let mut at = 0;
    let phases = ms.iter().map(|(name, ms)| {
        let start = at;
        at += ms * 1_000_000;
        json!({"name": name, "start_ns": start, "end_ns": at})
    });
    let phases: Vec<Value> = phases.collect();
    json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
        "source": {"kind": "image", "command_line": words, "kernel": {"release": "1"}},
        "machine": {"asked": {"board": "q35", "memory_bytes": 1_u64 << 30, "nodes": 1, "cpus": 1}},
        "milestones": {}, "phases": phases,
    })
}

#[test]
fn set_ups_of_a_folder_are_judged_one_by_one() {
    let folders = tempfile::tempdir().unwrap();
    let make = |name: &str, times: [u64; 3]| {
        let runs = ["a", "b", "c"].into_iter().zip(times);
        let runs = runs.map(|(words, ms)| phases(words, &[("kernel", ms)]));
        folder(&folders.path().join(name), runs)
    };
    let (a, b) = (make("before", [10, 20, 30]), make("after", [10, 20, 60]));
    let found = verdict(&["gate", &a, &b, "--json"], 7);
    assert_eq!(found["groups"].as_array().unwrap().len(), 3, "{found}");
    assert_eq!(found["moved"][0], "total: 30.000 -> 60.000 ms (+100.0 %)");
    let junit = folders.path().join("gate.xml");
    told(&[
        "gate",
        &a,
        &b,
        "--export",
        &format!("junit={}", junit.display()),
    ]);
    let junit = fs::read_to_string(junit).unwrap();
    for words in ["a", "b", "c"] {
        let suite = format!("<testsuite name=\"1 GiB, our image 1, 1 node, 1 CPU, {words}\"");
        assert_eq!(junit.matches(&suite).count(), 1, "{suite} in {junit}");
    }
}

/// What `kcidb-io` says of a document, where Python has it: KCIDB's published schema.
fn kcidb_refuses(document: &Path) -> Option<String> {
    const CHECK: &str =
        "import json, sys, kcidb_io; kcidb_io.schema.V5_3.validate(json.load(open(sys.argv[1])))";
    let python = |code: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", code]).arg(document).output().ok()
    };
    let here = python("import kcidb_io").is_some_and(|output| output.status.success());
    if !here {
        skip("kcidb", "no Python with kcidb-io (pip install kcidb-io)");
        return None;
    }
    let output = python(CHECK).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

#[test]
fn verdicts_are_written_as_others_read_them() {
    let folders = tempfile::tempdir().unwrap();
    let make = |name: &str, gib: &[u64], ms| {
        let runs = gib.iter().map(|gib| {
            let mut run = phases("", &[("SMP", ms), ("a|b # c", 90)]);
            run["machine"]["asked"]["memory_bytes"] = (gib << 30).into();
            run
        });
        folder(&folders.path().join(name), runs)
    };
    let (a, b) = (make("a", &[1, 2], 10), make("b", &[1], 30));
    let path = |form: &str| folders.path().join(format!("verdict.{form}"));
    let forms = ["ktap", "kcidb", "github", "markdown"];
    let exports = forms.map(|form| format!("{form}={}", path(form).display()));
    let mut words = vec!["gate", &*a, &*b];
    for export in &exports {
        words.extend(["--export", export]);
    }
    let (code, _, stderr) = told(&words);
    assert_eq!(code, 7, "{stderr}");
    let [ktap, kcidb, github, markdown] = forms.map(|form| fs::read_to_string(path(form)).unwrap());

    // One result a line, numbered from 1, as many as the plan says.
    assert!(ktap.starts_with("KTAP version 1\n1..3\n"), "{ktap}");
    let results = |indent: &str| {
        let lines = ktap.lines().filter_map(|line| line.strip_prefix(indent));
        let lines = lines.filter(|line| line.starts_with("ok ") || line.starts_with("not ok "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(results("").len(), 3, "{ktap}");
    assert!(results("")[2].starts_with("not ok 3 verdict"), "{ktap}");
    assert!(
        results("  ").contains(&"not ok 1 total".to_owned()),
        "{ktap}"
    );
    assert!(ktap.contains("1..0\n"), "a set-up without a test: {ktap}");

    let document: Value = serde_json::from_str(&kcidb).unwrap();
    assert_eq!(document["version"], json!({"major": 5, "minor": 3}));
    let tests = document["tests"].as_array().unwrap();
    let status = |path: &str| {
        let test = tests.iter().find(|test| test["path"] == path);
        test.unwrap_or_else(|| panic!("{path} in {document}"))
    };
    assert_eq!(status("firstlight.phase.SMP")["status"], "FAIL");
    assert_eq!(
        status("firstlight.phase.SMP")["number"],
        json!({"value": 0.03, "unit": "s"})
    );
    assert_eq!(status("firstlight.phase.a_b___c")["status"], "PASS");
    assert_eq!(status("firstlight.runs")["status"], "MISS");
    assert_eq!(status("firstlight.verdict")["status"], "FAIL");
    assert_eq!(kcidb_refuses(&path("kcidb")), None);

    assert!(
        github.starts_with("::error title=Boot is slower::total: 100.000 -> 120.000 ms"),
        "{github}"
    );
    assert!(
        github.contains("::warning title=Boot time is unclear::2 GiB"),
        "{github}"
    );
    assert!(
        markdown.starts_with("### Boot time: regressed\n"),
        "{markdown}"
    );
    assert!(
        markdown.contains("B has no run of this machine"),
        "{markdown}"
    );
}

#[test]
fn a_submission_to_kcidb_is_not_merged_into_another() {
    let folders = tempfile::tempdir().unwrap();
    // Names that are one path.
    let run = phases("", &[("a b", 10), ("a_b", 20)]);
    let a = folder(&folders.path().join("a"), [run]);
    let mut ids = std::collections::BTreeSet::new();
    for name in ["one", "other"] {
        let file = folders.path().join(name);
        told(&[
            "gate",
            &a,
            &a,
            "--export",
            &format!("kcidb={}", file.display()),
        ]);
        let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for list in ["checkouts", "builds", "tests"] {
            for row in document[list].as_array().unwrap() {
                let id = (list, row["id"].as_str().unwrap().to_owned());
                assert!(ids.insert(id), "{row} twice");
            }
        }
    }
}

#[test]
fn what_is_missing_failed_or_not_understood_is_named_and_no_pass() {
    let folders = tempfile::tempdir().unwrap();
    let both = [record(16, "instructions", 1), record(64, "instructions", 1)];
    let a = folder(&folders.path().join("a"), both.clone());
    // A machine that B lacks.
    let b = folder(&folders.path().join("b"), both[..1].to_vec());
    let found = verdict(&["gate", &a, &b, "--json"], 11);
    let group = &found["groups"][1];
    assert!(
        group["name"].as_str().unwrap().starts_with("64 GiB"),
        "{found}"
    );
    assert_eq!(group["unclear"][0], "B has no run of this machine");
    // Because it no longer boots.
    let failed =
        json!({"schema": "firstlight.failed/1", "cell": "64g", "message": "it hung", "log": []});
    fs::write(folders.path().join("b/64g-0000.failed"), failed.to_string()).unwrap();
    let found = verdict(&["gate", &a, &b, "--json"], 7);
    assert_eq!(found["moved"][0], "64g does not boot: it hung");
    // A record of a later version, one that was cut off.
    let c = folder(&folders.path().join("c"), both.clone());
    let later = both[1].to_string().replace("run/1", "run/2");
    fs::write(folders.path().join("c/later.json"), later).unwrap();
    fs::write(folders.path().join("c/torn.json"), "{\"schema\"").unwrap();
    let found = verdict(&["gate", &a, &c, "--json"], 11);
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 2, "{found}");
    assert!(
        left_out[0]["why"].as_str().unwrap().contains("run/2"),
        "{found}"
    );
    let (_, page, stderr) = told(&["gate", &a, &c]);
    assert!(
        page.contains("torn.json is left out") && stderr.contains("later.json"),
        "{page}{stderr}"
    );
}

#[test]
fn the_whole_boot_decides_and_an_operator_may_say_otherwise() {
    let folders = tempfile::tempdir().unwrap();
    let make =
        |name: &str, ms: &[(&str, u64)]| folder(&folders.path().join(name), [phases("", ms)]);
    let old = make("old", &[("SMP", 10), ("drivers", 90)]);
    // Shorter as a whole, longer in a part.
    let new = make("new", &[("SMP", 30), ("drivers", 50)]);
    let gate =
        |more: &[&str], code| verdict(&[&["gate", &*old, &*new, "--json"], more].concat(), code);
    assert_eq!(gate(&[], 0)["groups"][0]["rows"][0]["state"], "improved");
    assert_eq!(
        gate(&["--only", "SMP"], 7)["moved"][0],
        "phase \"SMP\": 10.000 -> 30.000 ms (+200.0 %)"
    );
    gate(&["--only", "phase", "--ignore", "phase:S*"], 0);
    gate(&["--only", "SMP", "--threshold", "300%"], 0);
    gate(&["--only", "SMP", "--least", "21ms"], 0);
    gate(&["--only", "SMP", "--least", "20ms"], 7);
    // A figure that is none decides nothing.
    let none = gate(&["--only", "memap"], 11);
    assert!(
        none["unclear"]
            .to_string()
            .contains("no figure is called \\\"memap\\\""),
        "{none}"
    );
    let (code, _, stderr) = told(&["gate", &old, &new, "--threshold", "much"]);
    assert!(code == 2 && stderr.contains("3%"), "{stderr}");
}

#[test]
fn a_comparison_is_judged_as_it_stands() {
    let folders = tempfile::tempdir().unwrap();
    let path = |name: &str, ns| {
        let path = folders.path().join(name);
        fs::write(&path, record(16, "instructions", ns).to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (path("a.json", 1_000_000), path("b.json", 1_010_000));
    let comparison = document(&["compare", &a, &b, "--json"]);
    let file = path("c.json", 0);
    fs::write(&file, comparison.to_string()).unwrap();
    // A hundredth of a millisecond is nothing in a boot of 700 ms; the phase decides.
    let found = verdict(&["gate", &file, "--json"], 7);
    let rows = found["groups"][0]["rows"].as_array().unwrap();
    let memmap = rows.iter().find(|row| row["name"] == "memmap").unwrap();
    assert_eq!(memmap["ratio"], 1.01);
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
        (
            vec!["gate", &some, &large],
            11,
            "no set-up has runs of A and of B",
        ),
        (vec!["gate", "/nowhere", &some], 3, "cannot read"),
        (vec!["gate", file.to_str().unwrap()], 1, "firstlight.run/1"),
        (vec!["gate"], 2, "<A>"),
    ] {
        let (exit_code, _, stderr) = told(&arguments);
        assert_eq!(exit_code, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}
