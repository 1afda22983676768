//! The action for GitHub (`packaging/github-action`): its own commands, with the files and
//! variables that a runner gives them, and no network.

use crate::common;
use crate::linux_kernels::kernels;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn action() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/github-action")
}

/// `KEY: value` of a line.
fn pair(line: &str) -> Option<(&str, &str)> {
    line.trim()
        .split_once(':')
        .map(|(key, value)| (key, value.trim()))
}

/// Inputs with their defaults, the variables of its step, its command.
fn parts() -> (BTreeMap<String, String>, BTreeMap<String, String>, String) {
    let text = fs::read_to_string(action().join("action.yml")).unwrap();
    let (inputs, steps) = text.split_once("\noutputs:").unwrap();
    let (_, inputs) = inputs.split_once("\ninputs:\n").unwrap();
    let (mut defaults, mut name) = (BTreeMap::new(), String::new());
    for line in inputs.lines() {
        match pair(line) {
            Some((key, "")) => key.clone_into(&mut name),
            Some(("default", value)) => {
                defaults.insert(name.clone(), value.trim_matches('"').to_owned());
            }
            _ => {}
        }
    }
    let (mut variables, mut run) = (BTreeMap::new(), String::new());
    for line in steps.lines() {
        match pair(line) {
            Some(("run", value)) => value.clone_into(&mut run),
            Some((key, value)) if key.chars().all(|c| c.is_ascii_uppercase() || c == '_') => {
                let input = value.strip_prefix("${{ inputs.").unwrap();
                let input = input.strip_suffix(" }}").unwrap();
                variables.insert(key.to_owned(), input.to_owned());
            }
            _ => {}
        }
    }
    (defaults, variables, run)
}

/// What came of the action with these inputs.
struct Done {
    code: Option<i32>,
    log: String,
    summary: String,
    outputs: String,
    folder: tempfile::TempDir,
}

fn run(with: &[(&str, &str)]) -> Done {
    run_in(tempfile::tempdir().unwrap(), with)
}

fn run_in(folder: tempfile::TempDir, with: &[(&str, &str)]) -> Done {
    let (mut inputs, variables, command) = parts();
    inputs.insert("firstlight".into(), env!("CARGO_BIN_EXE_firstlight").into());
    for (key, value) in with {
        let known = inputs.insert((*key).into(), (*value).into());
        assert!(known.is_some(), "no input {key}");
    }
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c", &command])
        .current_dir(folder.path());
    for (variable, input) in variables {
        let value = inputs
            .get(&input)
            .unwrap_or_else(|| panic!("no input {input}"));
        bash.env(variable, value);
    }
    let (summary, outputs) = (folder.path().join("summary"), folder.path().join("outputs"));
    for of_last_step in [&summary, &outputs] {
        let _ = fs::remove_file(of_last_step);
    }
    let output = bash
        .env("GITHUB_ACTION_PATH", action())
        .env("GITHUB_STEP_SUMMARY", &summary)
        .env("GITHUB_OUTPUT", &outputs)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done {
        code: output.status.code(),
        log: text(&output.stdout) + &text(&output.stderr),
        summary: fs::read_to_string(summary).unwrap_or_default(),
        outputs: fs::read_to_string(outputs).unwrap_or_default(),
        folder,
    }
}

fn folder(path: &Path, ms: u64) -> String {
    let record: Value = json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
        "source": {"kind": "linux", "kernel": {"release": "6.12.0"}},
        "machine": {"asked": {"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 1}},
        "milestones": {}, "phases": [{"name": "SMP", "start_ns": 0, "end_ns": ms * 1_000_000}],
    });
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("r.json"), record.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn two_folders_are_judged_annotated_summarized_and_reported() {
    let folders = tempfile::tempdir().unwrap();
    let make = |name: &str, ms| folder(&folders.path().join(name), ms);
    let (a, b) = (make("a", 10), make("b", 20));
    let slower = run(&[("a", &a), ("b", &b)]);
    assert_eq!(slower.code, Some(7), "{}", slower.log);
    assert!(
        slower
            .log
            .contains("::error title=Boot is slower::total: 10.000 -> 20.000 ms"),
        "{}",
        slower.log
    );
    assert!(
        slower.summary.starts_with("### Boot time: regressed")
            && slower.summary.contains("| total "),
        "{}",
        slower.summary
    );
    assert_eq!(slower.outputs, "verdict=regressed\n");
    let artifact = slower.folder.path().join("firstlight-boot");
    let page = fs::read_to_string(artifact.join("report.html")).unwrap();
    assert!(page.contains("6.12.0"), "{page}");
    assert!(artifact.join("gate.xml").is_file());

    let same = run(&[("a", &a), ("b", &a)]);
    assert_eq!(
        (same.code, &*same.outputs),
        (Some(0), "verdict=pass\n"),
        "{}",
        same.log
    );
    let relaxed = run(&[("a", &a), ("b", &b), ("options", "--threshold 200%")]);
    assert_eq!(relaxed.code, Some(0), "{}", relaxed.log);
    let nothing = run(&[("a", &a)]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.log);
    assert!(
        nothing
            .log
            .contains("::error::b: nothing is no folder of records"),
        "{}",
        nothing.log
    );
    let (code, ..) = common::told(&["gate", &a, &b]);
    assert_eq!(code, 7);
}

#[test]
fn what_an_earlier_use_left_is_not_judged() {
    let folders = tempfile::tempdir().unwrap();
    let make = |name: &str, ms| folder(&folders.path().join(name), ms);
    let (a, b) = (make("a", 10), make("b", 10));
    let first = run(&[("a", &a), ("b", &b)]);
    assert_eq!(first.code, Some(0), "{}", first.log);
    let failed =
        json!({"schema": "firstlight.failed/1", "cell": "c", "message": "it hung", "log": []});
    fs::remove_file(Path::new(&b).join("r.json")).unwrap();
    fs::write(Path::new(&b).join("r.failed"), failed.to_string()).unwrap();
    let second = run_in(first.folder, &[("a", &a), ("b", &b)]);
    assert_eq!(
        (second.code, &*second.outputs),
        (Some(7), "verdict=regressed\n"),
        "{}",
        second.log
    );
    // Nor what came of it, where the next use ends before a verdict.
    let third = run_in(
        second.folder,
        &[("a", &a), ("b", &a), ("options", "--threshold much")],
    );
    assert_eq!(
        (third.code, &*third.summary),
        (Some(2), ""),
        "{}",
        third.log
    );
    // Records below the output would be removed with it.
    let own = third.folder.path().join("firstlight-boot/records/a");
    let own = run_in(third.folder, &[("a", own.to_str().unwrap()), ("b", &b)]);
    assert!(
        own.code == Some(2) && own.log.contains("expected it outside"),
        "{}",
        own.log
    );
}

#[test]
fn two_kernels_are_booted_and_judged() {
    let Some([old, new]) = kernels() else { return };
    let done = run(&[
        ("kernel-a", &old),
        ("kernel-b", &new),
        ("memory-mib", "256"),
    ]);
    let release = done.summary.contains("Linux 6\\.1") || done.summary.contains("Linux 6.1");
    assert!(
        [Some(0), Some(7)].contains(&done.code) && release,
        "{}{}",
        done.log,
        done.summary
    );
    let records = done.folder.path().join("firstlight-boot/records");
    for side in ["a", "b"] {
        assert!(fs::read_dir(records.join(side)).unwrap().count() >= 2);
    }
}
