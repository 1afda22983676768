//! `firstlight stick`, and `firstlight up --result` of what a run left on one.

use crate::common;

use common::{document, testdata, told};
use firstlight_lab::stick;
use std::fs;

#[test]
fn a_stick_is_written_from_the_files_that_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut elf = b"\x7fELF\x02\x01".to_vec();
    elf.resize(64, 0);
    elf[18] = 62;
    fs::write(path("image"), &elf).unwrap();
    fs::write(path("loader"), b"MZ and more").unwrap();
    let (image, loader, output) = (path("image"), path("loader"), path("stick"));
    let mut list = vec!["stick", "--image", &image, "--loader", &loader];
    list.extend(["--output", &output, "--append", " selftest "]);
    let written = document(&[&list[..], &["--json"]].concat());
    assert_eq!(written["schema"], "firstlight.stick/1");
    assert_eq!(
        (&written["bytes"], &written["words"]),
        (&(64 << 20).into(), &"selftest".into())
    );
    assert_eq!(stick::result(output.as_ref()).unwrap(), None);
    let whole = fs::read(&output).unwrap();
    let has = |text: &[u8]| whole.windows(text.len()).any(|part| part == text);
    assert!(has(b"MZ and more") && has(b"selftest\r\n"));
    let (code, report, _) = told(&list);
    assert_eq!(code, 0);
    assert!(
        report.contains("64 MiB") && report.contains("sudo dd if="),
        "{report}"
    );

    // What is no loader, no image, no file to write to.
    for (image, loader, output, expected) in [
        (&image, &image, &output, (3, "an EFI application")),
        (&loader, &loader, &output, (3, "our image")),
        (&path("none"), &loader, &output, (3, "cannot read")),
        (
            &image,
            &loader,
            &"/dev/null".to_owned(),
            (2, "expected a file"),
        ),
    ] {
        let (code, _, stderr) = told(&[
            "stick", "--image", image, "--loader", loader, "--output", output,
        ]);
        assert_eq!(code, expected.0, "{stderr}");
        assert!(stderr.contains(expected.1), "{stderr}");
    }
}

#[test]
fn a_result_is_read_like_the_record_of_a_boot() {
    let recorded = testdata("uefi/ovmf-4g-4-cpus.jsonl").display().to_string();
    let record = document(&["up", "--result", &recorded, "--json"]);
    assert_eq!(
        (&record["kind"], &record["clock"]),
        (&"boot".into(), &"wall".into())
    );
    assert_eq!(record["machine"]["cpus"], 4);
    assert_eq!(record["selftest"]["failures"], 0);
    let at = |name: &str| record["milestones"][name].as_u64();
    let before = [
        "loader_entered_ns",
        "loader_read_ns",
        "boot_services_ended_ns",
        "entry_ns",
    ];
    assert!(before.map(at).is_sorted() && at(before[0]) > Some(1_000_000_000));
    assert!(at("all_allocatable_ns") > at("entry_ns"));
    let (code, report, _) = told(&["up", "--result", &recorded]);
    assert_eq!(code, 0);
    for words in [
        "our image (0.1.0)",
        "firmware starts the loader",
        "Memory map  17 regions",
        "no check failed",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result").display().to_string();
    for (content, code, expected) in [
        ("", 1, "no events in it"),
        ("{\"event\":\"clock\"", 1, "line 1 is no JSON"),
        (
            "[    0.000000] Linux version 6.1\n",
            1,
            "expected the events of a run",
        ),
    ] {
        fs::write(&path, content).unwrap();
        let (seen, _, stderr) = told(&["up", "--result", &path]);
        assert_eq!(seen, code, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    let (code, _, stderr) = told(&["up", "--result", &path, "--shape", "memory=4G"]);
    assert_eq!(code, 2, "{stderr}");
}
