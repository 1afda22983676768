//! `firstlight compare` with real guests, on the instruction clock.

use crate::common;
use crate::common::guest;

use common::{document, told};
use guest::{image, is_here, qemu_is_here};
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
    // One machine on this clock has the same figures each time.
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

/// Each side has the figures of a boot of its own.
#[test]
fn one_processor_stands_beside_another() {
    let Some(image) = image().filter(|_| qemu_is_here() && is_here("qemu-system-aarch64")) else {
        return;
    };
    let machine = "--memory 2G --clock instructions";
    let given = [
        format!("{machine} --image '{image}'"),
        format!("--arch aarch64 {machine}"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let boots = given.each_ref().map(|given| {
        let words = shlex::split(given).unwrap();
        let words = words.iter().map(String::as_str);
        document(
            &["boot", "--json"]
                .into_iter()
                .chain(words)
                .collect::<Vec<_>>(),
        )
    });
    let comparison = document(&["compare", &given[0], &given[1], "--json"]);
    for (side, board) in comparison["sides"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["q35", "virt-aarch64"])
    {
        assert_eq!(side["machine"]["board"], board, "{side}");
        assert_eq!(side["machine"]["memory_bytes"], 2_u64 << 30, "{side}");
    }
    assert!(
        comparison["notes"]
            .to_string()
            .contains("machines are not the same")
    );
    for (name, of_boot) in [
        ("nodes and zones known", "layout_ns"),
        ("first frame handed out", "first_frame_ns"),
        ("all memory allocatable", "all_allocatable_ns"),
        ("all CPUs run", "cpus_started_ns"),
    ] {
        let row = figure(&comparison, "milestone", name);
        let figures = boots.each_ref().map(|boot| {
            let at = |name: &str| boot["milestones"][name].as_f64().unwrap();
            at(of_boot) - at("entry_ns")
        });
        assert_eq!(row["a"]["median_ns"], figures[0], "{row}");
        assert_eq!(row["b"]["median_ns"], figures[1], "{row}");
        // A number's last bit may change as it is written and read.
        let ratio = row["ratio"].as_f64().unwrap();
        assert!((ratio - figures[1] / figures[0]).abs() < 1e-9, "{row}");
    }
    let paths = ["a.json", "b.json"].map(|name| folder.path().join(name).display().to_string());
    for (path, boot) in paths.iter().zip(&boots) {
        fs::write(path, boot.to_string()).unwrap();
    }
    let (code, report, stderr) = told(&["compare", &paths[0], &paths[1]]);
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "A  our image",
        "1 CPU on q35, tcg",
        "B  our image",
        "1 CPU on virt-aarch64, tcg",
    ] {
        assert!(report.contains(part), "{part:?} in {report}");
    }
    let line = report
        .lines()
        .find(|line| line.contains("all memory allocatable"));
    let ratio = &figure(&comparison, "milestone", "all memory allocatable")["ratio"];
    let ratio = format!("{:.2} x", ratio.as_f64().unwrap());
    assert!(line.unwrap().ends_with(&ratio), "{ratio} in {report}");
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
