//! `firstlight doctor --record`, and what two logs are beside each other.

use crate::common;

use common::{document, files, testdata, told};
use std::fs;

fn path(name: &str) -> String {
    testdata(name).to_str().unwrap().to_owned()
}

#[test]
fn every_log_becomes_a_record() {
    let mut logs = files("logs", ".log");
    logs.extend(files("machines", ".txt"));
    for log in logs {
        let record = document(&["doctor", "--record", log.to_str().unwrap(), "--json"]);
        assert_eq!(record["schema"], "firstlight.run/1");
        assert_eq!(record["kind"], "log");
        let gaps = record["gaps"].as_array().unwrap();
        assert!(gaps.len() <= 10);
        let lengths: Vec<u64> = gaps.iter().map(|gap| gap["ns"].as_u64().unwrap()).collect();
        assert!(lengths.is_sorted_by(|a, b| a >= b), "{log:?}");
        // What is not understood is kept.
        let text = fs::read(&log).unwrap();
        let lines = text.split(|byte| *byte == b'\n').count();
        assert!(
            record["log"].as_array().unwrap().len() + 2 >= lines,
            "{log:?}"
        );
    }
}

#[test]
fn the_published_regression_is_between_two_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        fs::read_to_string(testdata("machines/30-vmware-1tb-zone-regression-seed.txt")).unwrap();
    let (good, bad) = text.split_once("# bad").unwrap();
    let mut paths = Vec::new();
    for (name, text) in [("good.log", good), ("bad.log", bad)] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        paths.push(path.to_str().unwrap().to_owned());
    }
    let record = document(&["doctor", "--record", &paths[1], "--json"]);
    let gap = &record["gaps"][0];
    assert_eq!(gap["ns"], 2_001_575_000_u64);
    assert_eq!(
        gap["before"]["text"],
        "Normal zone: 89391104 pages, LIFO batch:63"
    );
    assert_eq!(gap["after"]["text"], "ACPI: PM-Timer IO Port: 0x448");
    assert_eq!(gap["phase"], "memmap early");
    let report = document(&["doctor", &paths[0], &paths[1], "--json"]);
    let slower = report["beside"]["slower"].as_array().unwrap();
    let gap = slower
        .iter()
        .find(|loss| loss["kind"] == "gap" && loss["name"].as_str().unwrap().contains("PM-Timer"));
    let ns = |side: &str| gap.unwrap()[side].as_f64().unwrap();
    assert!(ns("b_ns") > 700.0 * ns("a_ns"), "{gap:?}");
}

#[test]
fn boots_of_one_file_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let both = folder.path().join("both.log");
    let log = |release: &str, ms: u32| {
        format!("[    0.000000] Linux version {release}\n[    0.100000] a\n[    0.{ms}000] b\n")
    };
    fs::write(&both, log("6.1", 150) + &log("6.12", 900)).unwrap();
    let both = both.to_str().unwrap();
    let second = document(&["doctor", "--record", both, "--boot", "2", "--json"]);
    assert_eq!(second["source"]["kernel"]["release"], "6.12");
    assert_eq!(second["gaps"][0]["ns"], 800_000_000);
    let (code, _, stderr) = told(&["doctor", "--record", both, "--boot", "3"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("has 2"), "{stderr}");
    let (code, _, stderr) = told(&["doctor", "--record", both, both]);
    assert!(code == 2 && stderr.contains("expected one"), "{stderr}");
}

#[test]
fn a_journal_adds_up_the_whole_restart() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.txt");
    let line = "Nov 21 07:00:05 host systemd[1]: Startup finished in 73s (firmware) + 58s (kernel) \
        + 4min 13s (userspace) = 6min 30s.";
    fs::write(&journal, line).unwrap();
    let record = document(&["doctor", "--record", journal.to_str().unwrap(), "--json"]);
    assert_eq!(record["totals"]["services_ns"], 253_000_000_000_u64);
    assert_eq!(record["totals"]["not_explained_ns"], 6_000_000_000_u64);
    let (_, page, _) = told(&["doctor", "--record", journal.to_str().unwrap()]);
    assert!(
        page.contains("not explained") && page.contains("390.000"),
        "{page}"
    );
}

#[test]
fn a_log_without_times_still_has_its_machine() {
    let record = document(&[
        "doctor",
        "--record",
        &path("machines/24-linux72-new-e820-format-gaps.txt"),
        "--json",
    ]);
    assert_eq!(record["gaps"].as_array().unwrap().len(), 0);
    assert!(!record["regions"].as_array().unwrap().is_empty());
}
