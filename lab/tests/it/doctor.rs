//! `doctor` on real logs: each published diagnosis is found in its line, healthy logs have
//! none, and what is found in recorded boots is true of them.

use crate::common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use common::{golden, testdata};
use firstlight_lab::boot_log;
use firstlight_lab::doctor::{Diagnosis, Report, diagnose};

fn logs(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(testdata().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn of(path: &PathBuf) -> Diagnosis {
    let name = path.file_name().unwrap().to_str().unwrap();
    diagnose(name, &fs::read(path).unwrap())
}

fn ids(diagnosis: &Diagnosis) -> BTreeSet<&'static str> {
    diagnosis
        .findings
        .iter()
        .map(|finding| finding.id)
        .collect()
}

#[test]
fn every_published_diagnosis_is_found_and_healthy_logs_have_none() {
    let cases = fs::read_to_string(testdata().join("logs/cases.tsv")).unwrap();
    let mut seen = 0;
    for case in cases.lines().skip(1) {
        let columns: Vec<&str> = case.split('\t').collect();
        let (file, evidence, basis) = (columns[0], columns[4], columns[5]);
        let diagnosis = of(&testdata().join("logs").join(file));
        seen += 1;
        if basis.starts_with("negative") {
            assert_eq!(diagnosis.findings, [], "{file}");
            continue;
        }
        let found = diagnosis
            .findings
            .iter()
            .any(|finding| finding.evidence.contains(evidence));
        assert!(found, "{file}: {evidence:?} in {diagnosis:#?}");
        for finding in &diagnosis.findings {
            let text = fs::read_to_string(testdata().join("logs").join(file)).unwrap();
            let line = text.lines().nth(finding.line - 1).unwrap();
            assert_eq!(
                finding.evidence.replace(' ', ""),
                line.replace([' ', '\t'], "")
            );
            assert!(finding.cost == "measured" || finding.cost == "estimated");
        }
    }
    assert_eq!(seen, logs("logs", ".log").len());
}

#[test]
fn what_is_found_in_recorded_boots_is_true_of_them() {
    for boot in golden() {
        let text = common::log(&boot.name);
        let mut expected = BTreeSet::new();
        // All of them ran under emulation: nothing of time, nothing of the emulator's own.
        if String::from_utf8_lossy(&text).contains("memoryless") {
            expected.insert("memoryless-node");
        }
        if takes(&boot.input.cmdline_extra) {
            expected.insert("memory-lost-parameter");
        }
        let found = diagnose(&boot.name, &text);
        assert_eq!(ids(&found), expected, "{}", boot.name);
    }
}

/// Whether words of a command line take memory away.
fn takes(extra: &str) -> bool {
    let mut words = extra.split(' ');
    words.any(|word| word.starts_with("mem=") || word.starts_with("memmap="))
}

#[test]
fn machines_have_what_their_authors_say() {
    for (number, expected) in [
        ("01", &[][..]),
        ("03", &[]),
        ("05", &["huge-hole"]),
        ("08", &[]),
        ("11", &[]),
        ("16", &["numa-tables-faulty"]),
        ("17", &[]),
        ("22", &["memoryless-node"]),
        ("23", &[]),
        ("24", &[]),
        ("26", &[]),
        ("28", &[]),
        ("30", &["memmap-eager"]),
        ("35", &["deferral-one-thread", "deferral-uneven"]),
        ("37", &["deferral-one-thread"]),
    ] {
        let logs = logs("machines", ".txt");
        let path = logs.iter().find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(number)
        });
        let found = of(path.unwrap());
        assert_eq!(ids(&found), expected.iter().copied().collect(), "{number}");
    }
}

/// Phases, the longest gaps and findings of every log, as they were last looked at;
/// `FIRSTLIGHT_UPDATE_SNAPSHOTS=1` accepts the new ones.
#[test]
fn phases_gaps_and_findings_are_those_last_looked_at() {
    let mut text = String::new();
    for path in logs("logs", ".log").iter().chain(&logs("machines", ".txt")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        writeln!(text, "{name}").unwrap();
        for record in boot_log::records(name, &fs::read(path).unwrap()) {
            for phase in &record.phases {
                let us = (phase.end_ns - phase.start_ns) / 1000;
                writeln!(text, "  phase {} {us} us", phase.name).unwrap();
            }
            for gap in record.gaps.iter().take(3) {
                let lines = (gap.before.line, gap.after.line);
                writeln!(text, "  gap {} us, lines {lines:?}", gap.ns / 1000).unwrap();
            }
        }
        for finding in of(path).findings {
            let cost = finding
                .cost_ms
                .map_or("?".into(), |ms| format!("{ms:.0} ms"));
            writeln!(
                text,
                "  {} in line {}: {cost}, {}",
                finding.id, finding.line, finding.cost
            )
            .unwrap();
        }
    }
    let path = testdata().join("logs/expected.txt");
    if std::env::var_os("FIRSTLIGHT_UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

#[test]
fn two_boots_in_one_file_are_two_diagnoses() {
    let log = |ms: u32| {
        format!(
            "[    0.000000] Linux version 5.9.0\n[    0.010000] Normal zone: 1 pages, LIFO batch:63\n\
             [    {ms}.000000] ACPI: PM-Timer\n"
        )
    };
    let diagnosis = diagnose("both", (log(2) + &log(3)).as_bytes());
    assert_eq!(diagnosis.boots, 2);
    let lines: Vec<usize> = diagnosis
        .findings
        .iter()
        .map(|finding| finding.line)
        .collect();
    assert_eq!(lines, [3, 6]);
}

#[test]
fn cut_and_damaged_logs_are_read_to_their_end() {
    for path in logs("logs", ".log") {
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(211) {
            diagnose("cut", &whole[..length]);
            let mut damaged = whole.clone();
            damaged[length] ^= 0x5b;
            diagnose("damaged", &damaged);
        }
    }
    let mut endless = b"[    0.1000] ".to_vec();
    endless.resize(8 << 20, b'[');
    assert_eq!(diagnose("endless", &endless).findings, []);
    let numbers =
        "[1.0] node 4294967295 initialised, 18446744073709551615 pages in 18446744073709551615ms\n";
    diagnose("numbers", numbers.repeat(3).as_bytes());
}

#[test]
fn of_a_record_the_log_counts_and_one_that_is_damaged_is_named() {
    let log = "[    0.000000] Linux version 6.1\n[    0.026875] Normal zone: 89391104 pages, LIFO batch:63\n\
        [    2.028450] ACPI: PM-Timer IO Port: 0x448\n";
    let record = serde_json::to_string(&boot_log::records("a.log", log.as_bytes())[0]).unwrap();
    let damaged = record.replacen("\"end_ns\":", "\"end_ns\":NaN,\"x\":", 1);
    assert_ne!(record, damaged);
    let mut report = Report::default();
    report.add("a.json", Ok(record.into_bytes()));
    report.add("nan.json", Ok(damaged.into_bytes()));
    let finding = &report.logs[0].findings[0];
    assert_eq!((finding.id, finding.line), ("memmap-eager", 3));
    assert_eq!(report.unread[0].file, "nan.json");
    assert!(report.unread[0].why.contains("no JSON"), "{report:?}");
}
