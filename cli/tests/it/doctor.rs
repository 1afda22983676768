//! `firstlight doctor`: its document, its page, and what it refuses.

use crate::common;

use common::{document, files, told};

#[test]
fn a_document_has_every_log_and_every_field() {
    let logs = files("logs", ".log");
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(logs.iter().map(|log| log.to_str().unwrap()));
    let report = document(&arguments);
    assert_eq!(report["schema"], "firstlight.doctor/1");
    let entries = report["logs"].as_array().unwrap();
    assert_eq!(entries.len(), logs.len());
    for (entry, path) in entries.iter().zip(&logs) {
        assert_eq!(entry["file"], path.to_str().unwrap());
        assert_eq!(entry["boots"], 1);
        for finding in entry["findings"].as_array().unwrap() {
            let keys: Vec<&String> = finding.as_object().unwrap().keys().collect();
            let expected = [
                "cost", "cost_ms", "cure", "evidence", "fixed_in", "id", "line", "why",
            ];
            assert_eq!(keys, expected);
        }
    }
}

#[test]
fn a_page_says_what_it_costs_and_what_to_do() {
    let log = &files("logs", ".log")[1];
    let (code, page, _) = told(&["doctor", log.to_str().unwrap()]);
    assert_eq!(code, 0);
    for part in [
        "deferral-serial",
        "4,765 ms, measured",
        "node 7 initialised",
        "why",
        "cure",
        "Gaps",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let healthy = files("logs", "hashdist.log");
    let (_, page, _) = told(&["doctor", healthy[0].to_str().unwrap()]);
    assert!(page.contains("nothing found"), "{page}");
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let (code, _, stderr) = told(&["doctor", "/nowhere/at/all.log"]);
    assert_eq!(code, 3);
    assert!(stderr.contains("/nowhere/at/all.log"), "{stderr}");
    let (code, _, _) = told(&["doctor"]);
    assert_eq!(code, 2);
}

#[test]
fn what_holds_no_kernel_line_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let random: Vec<u8> = (0..100_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    for file in [
        "/dev/null".to_owned(),
        write(
            "a.json",
            b"{\"schema\": \"x/1\", \"figures\": [0.5, 1.25]}\n",
        ),
        write("random.log", &random),
        write(
            "prose.txt",
            b"The kernel boots.\nIt took 2 s [see below].\n",
        ),
        write("empty.log", b""),
    ] {
        let (code, _, stderr) = told(&["doctor", &file]);
        assert_eq!(code, 3, "{file}");
        assert!(stderr.contains(&file), "{stderr}");
        assert!(stderr.contains("no kernel line"), "{stderr}");
    }
}

#[test]
fn packed_logs_are_read() {
    for ending in [".gz", ".xz", ".zst"] {
        let file = &files("packed", ending)[0];
        let report = document(&["doctor", "--json", file.to_str().unwrap()]);
        let id = &report["logs"][0]["findings"][0]["id"];
        assert_eq!(id, "deferral-serial", "{ending}");
    }
}

#[test]
fn packed_logs_that_are_cut_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for ending in [".gz", ".xz", ".zst"] {
        let packed = std::fs::read(&files("packed", ending)[0]).unwrap();
        let path = folder.path().join("cut.log");
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let (code, _, stderr) = told(&["doctor", path.to_str().unwrap()]);
        assert_eq!(code, 3, "{ending}");
        assert!(stderr.contains("cannot unpack"), "{stderr}");
    }
}
