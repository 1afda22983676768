//! `firstlight history`: records are kept, and changes found.

use crate::common;

use common::{document, told};
use serde_json::json;
use std::fs;

#[test]
fn a_change_is_found_where_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let runs = runs.to_str().unwrap();
    let mut history = json!(null);
    for (label, ns) in [
        ("v1", 1_000_000),
        ("v2", 1_000_000),
        ("v3", 1_010_000),
        ("v4", 1_010_000),
    ] {
        let record = json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
            "source": {"kind": "image"}, "machine": {}, "milestones": {},
            "phases": [{"name": "layout", "start_ns": 0, "end_ns": ns}],
        });
        let file = folder.path().join("now.json");
        fs::write(&file, record.to_string()).unwrap();
        let file = file.to_str().unwrap();
        history = document(&["history", runs, "--add", file, "--label", label, "--json"]);
    }
    assert_eq!(history["schema"], "firstlight.history/1");
    let change = &history["series"][0]["changes"][0];
    assert_eq!((&change["label"], &change["at"]), (&"v3".into(), &2.into()));
    let (code, page, _) = told(&["history", runs]);
    assert!(
        code == 0 && page.contains("+1.0 % at v3") && page.contains('^'),
        "{page}"
    );
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (code, _, stderr) = told(&["history", path]);
    assert!(code == 1 && stderr.contains("no record in"), "{stderr}");
    let (code, _, stderr) = told(&["history", path, "--add", "/nowhere"]);
    assert!(code == 3 && stderr.contains("/nowhere"), "{stderr}");
    let log = folder.path().join("a.log");
    fs::write(&log, "[    1.000000] a\n[    2.000000] b\n").unwrap();
    let log = log.to_str().unwrap();
    let (code, _, stderr) = told(&["history", "/dev/null/x", "--add", log]);
    assert!(code == 3 && stderr.contains("cannot write"), "{stderr}");
}

#[test]
fn a_machine_that_no_longer_boots_is_no_steady_one() {
    let folder = tempfile::tempdir().unwrap();
    let record = json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
        "source": {"kind": "image"}, "machine": {}, "milestones": {},
        "phases": [{"name": "layout", "start_ns": 0, "end_ns": 1_000_000}],
    });
    let failed =
        json!({"schema": "firstlight.failed/1", "cell": "64g", "message": "it hung", "log": []});
    for name in ["a.json", "b.json"] {
        fs::write(folder.path().join(name), record.to_string()).unwrap();
    }
    fs::write(folder.path().join("c.failed"), failed.to_string()).unwrap();
    let path = folder.path().to_str().unwrap();
    let (_, page, _) = told(&["history", path]);
    assert!(page.contains("does not boot: 64g: it hung"), "{page}");
    assert!(
        page.contains("no change among boots that went well"),
        "{page}"
    );
    assert_eq!(
        document(&["history", path, "--json"])["failed"][0]["cell"],
        "64g"
    );
}
