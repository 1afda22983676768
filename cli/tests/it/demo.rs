//! `firstlight demo` and what `firstlight` alone says: also without QEMU, without a place to write, in narrow
//! terminals and pipes.

use crate::common::guest;
use crate::common::schema;
use crate::common::{command, told};

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const SCHEMA: &str = "firstlight.demo/1";

/// The demo in `folder`, without programs in PATH.
fn without_qemu(folder: &Path) -> Command {
    let mut demo = command(&["demo", "-o"]);
    demo.arg(folder).env("PATH", "/nonexistent");
    demo.env_remove("FIRSTLIGHT_SOURCE")
        .env("FIRSTLIGHT_IMAGE", "/dev/null");
    demo
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn document(mut demo: Command) -> Value {
    let output = demo.arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = schema::document(&output.stdout);
    assert_eq!(document["schema"], SCHEMA);
    assert_eq!(document["steps"].as_array().unwrap().len(), 4);
    document
}

/// The commands of a step.
fn commands(document: &Value, step: usize) -> Vec<String> {
    let commands = document["steps"][step]["commands"].as_array().unwrap();
    let commands = commands.iter().map(|command| command.as_str().unwrap());
    commands.map(String::from).collect()
}

#[test]
fn without_qemu_a_step_says_what_is_missing_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let output = without_qemu(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
    let page = text(&output.stdout);
    assert!(!page.contains('\u{1b}'), "colours in a pipe: {page}");
    for part in [
        "1  This machine's memory map",
        "all memory allocatable",
        "left out: ",
        "qemu-system-x86",
        "Linux 6.12, its log",
        "661,580,000",
        "deferred memmap",
        "report.html",
    ] {
        assert!(page.contains(part), "{part:?} in {page}");
    }
    let own = page
        .lines()
        .filter(|line| !line.contains("$ ") && !line.contains("report.html"));
    for line in own {
        assert!(
            line.chars().count() <= 60,
            "{line:?} is wider than 60 columns"
        );
    }
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(
        html.contains("firstlight demo") && html.contains("6.12.117"),
        "{html}"
    );
}

#[test]
fn each_command_of_the_demo_repeats_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let document = document(without_qemu(folder.path()));
    for step in 0..4 {
        for line in commands(&document, step) {
            if line.starts_with("firstlight boot") {
                continue;
            }
            let words = shlex::split(&line).unwrap();
            let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
            let (code, _, error) = told(&words);
            assert_eq!(code, 0, "{line}: {error}");
        }
    }
    let (_, page, _) = told(&[
        "doctor",
        "--record",
        &folder
            .path()
            .join("linux-6.12-16g.log")
            .display()
            .to_string(),
    ]);
    assert!(page.contains("661.580"), "{page}");
}

#[test]
fn a_folder_that_cannot_be_made_costs_the_page_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let document = document(without_qemu(&file.path().join("below")));
    assert!(document["folder"].is_null());
    let left_out = |step: usize| document["steps"][step]["left_out"].as_str();
    assert!(
        left_out(3)
            .unwrap()
            .contains("Not a directory (os error 20); --output"),
        "{document}"
    );
    assert_eq!(left_out(2), None, "{document}");
    assert!(commands(&document, 2).is_empty(), "{document}");
}

#[test]
fn our_image_stands_beside_the_linux() {
    if !guest::qemu_is_here() {
        return;
    }
    let Some(image) = guest::image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut demo = command(&["demo", "-o"]);
    demo.arg(folder.path()).env("FIRSTLIGHT_IMAGE", image);
    let document = document(demo);
    let lines = document["steps"][1]["lines"].as_array().unwrap();
    let of = |name: &str| -> u64 {
        let line = lines
            .iter()
            .filter_map(Value::as_str)
            .find(|line| line.contains(name));
        let number = line.unwrap().split_whitespace().next_back().unwrap();
        number.replace(',', "").parse().unwrap()
    };
    let (ours, linux) = (of("our image"), of("Linux 6.12"));
    assert!(ours > 10_000 && ours * 1000 < linux, "{ours} {linux}");
    assert_eq!(document["steps"][1]["left_out"], Value::Null);
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(
        html.contains("firstlight 0.1.0") || html.contains("our image"),
        "the image is not on the page"
    );
}

#[test]
fn firstlight_alone_shows_three_doors() {
    let (code, doors, error) = told(&[]);
    assert_eq!((code, error.as_str()), (0, ""));
    for door in [
        "My virtual machines start slowly",
        "My machine boots slowly",
        "I write a kernel",
        "firstlight --help",
    ] {
        assert!(doors.contains(door), "{door:?} in {doors}");
    }
    assert!(
        doors.lines().count() <= 20 && doors.lines().all(|line| line.len() <= 60),
        "{doors}"
    );
    let (code, _, error) = told(&["dokter"]);
    assert!(code == 2 && error.contains("'doctor'"), "{code}: {error}");
    let (code, _, error) = told(&["--json"]);
    assert!(code == 2 && error.contains("Usage"), "{code}: {error}");
}
