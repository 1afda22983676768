//! `firstlight blocks`: what it prints, and what it refuses.

mod common;

use common::{document, testdata, told};

#[test]
fn a_person_sees_runs_a_reason_and_other_sizes() {
    let arguments = ["blocks", "--shape", "memory=2T", "--size", "128M"];
    let (code, report, stderr) = told(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in [
        "16,384 blocks of 128 MiB",
        "as was given",
        "32-16391",
        "Other sizes",
        "14.166",
    ] {
        assert!(report.contains(part), "{part:?} is missing in\n{report}");
    }
    // Runs, not a line a block.
    assert!(report.lines().count() < 20, "{report}");
}

#[test]
fn programs_get_the_same_for_each_kernel() {
    let log = testdata("golden/logs/C_bs_65G.log");
    let log = log.to_str().unwrap();
    for kernel in ["linux-6.1", "linux-6.12", "firstlight"] {
        let answer = document(&["blocks", "--json", log, "--as", kernel]);
        assert_eq!(answer["schema"], "firstlight.blocks/1");
        assert_eq!(answer["size_bytes"], 2u64 << 30, "{kernel}");
        assert_eq!(answer["blocks"], 33);
        let reason = answer["reason"].as_str().unwrap();
        assert!(
            reason.contains("divides the end of memory, 66 GiB"),
            "{reason}"
        );
        let runs = answer["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[0]["zones"].as_array().unwrap().len(), 0);
        assert_eq!(
            (&runs[2]["zones"][0], &runs[2]["nodes"][0]),
            (&"Normal".into(), &0.into())
        );
        assert_eq!(
            (&runs[2]["first"], &runs[2]["last"]),
            (&2.into(), &32.into())
        );
        assert!(answer["fragmentation"].is_null());
    }
    let bare = document(&[
        "blocks",
        "--json",
        "--shape",
        "memory=65G",
        "--hypervisor",
        "no",
    ]);
    assert!(
        bare["reason"]
            .as_str()
            .unwrap()
            .contains("without hypervisor")
    );
}

#[test]
fn plugged_memory_and_firmware_s_windows_count() {
    let log = testdata("golden/logs/B_hp_4G_dimm384M_n2.log");
    let plug = ["--plug", "384M@0x140000000,node=1"];
    let log = log.to_str().unwrap();
    let answer = document(&[&["blocks", "--json", log, "--as", "linux-6.1"][..], &plug].concat());
    let last = answer["runs"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["first"], &last["last"]), (&40.into(), &42.into()));
    assert_eq!(
        (&last["state"], &last["zones"][1]),
        (&"offline".into(), &"Movable".into())
    );
    // Where memory is already it is left out, with a note.
    let answer = document(&["blocks", "--json", log, "--plug", "1G@2G"]);
    let notes = answer["notices"].to_string();
    assert!(notes.contains("plugged in is left out"), "{notes}");

    // One window of 1.25 GiB from 5 GiB on.
    let mut table = b"CEDT\x48\0\0\0\x01\0FIRST FIRSTLIT\x01\0\0\0FRST\x01\0\0\0".to_vec();
    table.extend([1, 0, 36, 0, 0, 0, 0, 0]);
    table.extend((5u64 << 30).to_le_bytes());
    table.extend((5u64 << 28).to_le_bytes());
    table.resize(72, 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("CEDT");
    std::fs::write(&file, table).unwrap();
    let arguments = [
        "blocks",
        "--json",
        "--shape",
        "memory=2T",
        "--cedt",
        file.to_str().unwrap(),
    ];
    let answer = document(&arguments);
    assert_eq!(answer["size_bytes"], 256u64 << 20);
    assert!(
        answer["reason"]
            .as_str()
            .unwrap()
            .contains("advise at most 256 MiB")
    );
}

#[test]
fn after_fragmentation_small_blocks_can_leave_more_often() {
    let answer = document(&[
        "blocks",
        "--json",
        "--shape",
        "memory=64G",
        "--fragmentation=1G",
    ]);
    let rows = answer["fragmentation"]["rows"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0]["size_bytes"], 128u64 << 20);
    assert!(rows[0]["in_use"]["movable_only"].as_u64().unwrap() > 0);
    assert_eq!(rows[4]["in_use"]["free"], 0);
}

#[test]
fn wrong_use_has_its_exit_code() {
    let shape = ["blocks", "--shape", "memory=2T"];
    for (more, part) in [
        (["--size", "100M"], "power of two"),
        (["--size", "64M"], "128 MiB"),
        (["--plug", "4G"], "SIZE@ADDRESS"),
        (["--plug", "4G@5G,node=x"], "SIZE@ADDRESS"),
        (["--plug", "0@5G"], "SIZE@ADDRESS"),
        (["--hypervisor", "maybe"], "yes or no"),
        (["--fragmentation=1T", "--json"], "1G to 64G"),
    ] {
        let (code, _, stderr) = told(&[&shape[..], &more].concat());
        assert_eq!(code, 2, "{more:?}");
        assert!(stderr.contains(part), "{more:?}: {stderr}");
    }
    let (code, _, _) = told(&["blocks"]);
    assert_eq!(code, 2);
    let srat = testdata("machines/acpi/X99.srat.bin");
    let (code, _, stderr) = told(&[
        "blocks",
        "--shape",
        "memory=2T",
        "--cedt",
        srat.to_str().unwrap(),
    ]);
    assert_eq!(code, 1);
    assert!(stderr.contains("expected table CEDT"), "{stderr}");
}
