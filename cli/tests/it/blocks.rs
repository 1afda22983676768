//! `firstlight blocks`: what it prints, and what it refuses.

use crate::common;

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
fn plugged_memory_counts() {
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
}

#[test]
fn our_blocks_leave_with_each_dimm() {
    let of = |more: &[&str]| {
        let shape = ["blocks", "--json", "--shape", "memory=80G"];
        document(&[&shape, more].concat())
    };
    let (small, large) = ("384M@0x2000000000", "4G@0x2100000000");
    for (more, mib) in [
        (&["--plug", small][..], 128_u64),
        (&["--plug", large], 2048),
        (&["--plug", "512M@0x2000000000", "--plug", large], 512),
        // A start that is no multiple of the size counts, too.
        (&["--plug", "1G@0x2010000000"], 256),
        // A size that is given is lowered as well.
        (&["--plug", small, "--size", "1G"], 128),
        // Memory that is left out bounds nothing.
        (&["--plug", "384M@1G"], 2048),
        // Linux chooses before DIMMs come.
        (&["--plug", small, "--as", "linux-6.1"], 2048),
        (&["--plug", small, "--as", "linux-6.12"], 2048),
    ] {
        let answer = of(more);
        assert_eq!(answer["size_bytes"], mib << 20, "{more:?}");
    }
    let answer = of(&["--plug", small]);
    let reason = answer["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("in multiples of 128 MiB"), "{reason}");
    // Three whole blocks: nothing is listed that is not there.
    let last = answer["runs"].as_array().and_then(|runs| runs.last());
    let last = last.map(|run| (&run["first"], &run["last"], &run["state"]));
    let expected = (&1024.into(), &1026.into(), &"online".into());
    assert_eq!(last, Some(expected));
}

#[test]
fn firmware_s_windows_count() {
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
    let shape = ["blocks", "--shape", "memory=64G,nodes=2"];
    let arguments = [&shape[..], &["--fragmentation=1G"]].concat();
    let answer = document(&[&arguments[..], &["--json"]].concat());
    let fragmentation = &answer["fragmentation"];
    // On a machine of its own, which both forms say.
    assert_eq!(
        (&fragmentation["nodes"], &fragmentation["memory_bytes"]),
        (&1.into(), &(1_u64 << 30).into())
    );
    let rows = fragmentation["rows"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0]["size_bytes"], 128u64 << 20);
    assert!(rows[0]["in_use"]["movable_only"].as_u64().unwrap() > 0);
    assert_eq!(rows[4]["in_use"]["free"], 0);
    let (code, report, _) = told(&arguments);
    assert_eq!(code, 0);
    let words = "After fragmentation  on one node of 1 GiB, not on the machine above: ";
    assert!(report.contains(words), "{report}");
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
