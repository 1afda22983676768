//! `firstlight layout` against what real Linux printed.

#![expect(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod common;

use common::{document, testdata, told};
use serde_json::Value;

/// The keys that have to agree, as the record of a boot spells them.
const KEYS: [&str; 12] = [
    "hash",
    "memory_block_size",
    "memory_blocks",
    "block_runs",
    "node_ranges_pfn",
    "max_pfn",
    "zones",
    "movable_start",
    "unavailable",
    "deferred_nodes",
    "model_first_deferred_pfn",
    "model_eager_pages",
];

fn boots() -> Vec<Value> {
    let text = std::fs::read_to_string(testdata("golden/linux_boots.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A zone without what only the allocator knows.
fn without_managed(value: &Value) -> Value {
    let mut value = value.clone();
    for zone in value.as_array_mut().into_iter().flatten() {
        if let Some(zone) = zone.as_object_mut() {
            zone.remove("managed");
        }
    }
    value
}

#[test]
fn every_fifth_boot_is_told_as_linux_told_it() {
    // The library's own tests do all of them; here the way through the command counts.
    let mut compared = 0;
    for boot in boots().iter().step_by(5) {
        let name = boot["name"].as_str().unwrap();
        let log = testdata("golden/logs").join(format!("{name}.log"));
        // Memory plugged in after the boot is in the record, not in the log's map.
        if !log.is_file() || name.contains("_hp_") {
            continue;
        }
        let kernel = format!("linux-{}", boot["kernel"].as_str().unwrap());
        let cpus = boot["input"]["cpus"].to_string();
        let arguments = [
            "layout",
            log.to_str().unwrap(),
            "--as",
            &kernel,
            "--cpus",
            &cpus,
            "--hypervisor",
            // What the processor says is in no line of the log.
            match boot["input"]["hypervisor_bit"].as_bool().unwrap() {
                true => "yes",
                false => "no",
            },
            "--json",
        ];
        let answer = document(&arguments);
        assert_eq!(answer["schema"], "firstlight.layout/1");
        for key in KEYS {
            let expected = without_managed(&boot["expect"][key]);
            if !expected.is_null() {
                assert_eq!(answer[key], expected, "{name}: {key}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "only {compared} values were compared");
}

#[test]
fn a_person_sees_nodes_zones_and_deferral() {
    let log = testdata("golden/logs/A_6.12_16G_n4_c4.log");
    let (code, report, stderr) = told(&["layout", log.to_str().unwrap(), "--as", "linux-6.12"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in [
        "as linux-6.12",
        "Node ranges",
        "Zones",
        "DMA32",
        "Holes",
        "Descriptors",
        "Hash tables",
        "128 blocks of 128 MiB in 6 runs",
    ] {
        assert!(report.contains(part), "{part:?} is missing in\n{report}");
    }
}

#[test]
fn wrong_input_has_its_exit_code() {
    let log = testdata("machines/35-sgi-uv48-216nodes-deferred-init-timing.txt");
    let (code, _, stderr) = told(&["layout", log.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(stderr.contains("BIOS-e820:"), "{stderr}");
    let (code, _, stderr) = told(&["layout", log.to_str().unwrap(), "--as", "plan9"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("linux-6.12"), "{stderr}");
    let (code, _, _) = told(&["layout", log.to_str().unwrap(), "--cpus", "0"]);
    assert_eq!(code, 2);
    let (code, _, _) = told(&["layout", "/nowhere/boot.log"]);
    assert_eq!(code, 3);
}

#[test]
fn however_much_is_wrong_the_layout_is_still_to_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("boot.log");
    let usable = "BIOS-e820: [mem 0x0000000000100000-0x000000003fffffff] usable\n";
    let log = usable.to_owned() + &"BIOS-e820: [mem 0x2-0x1]\n".repeat(20_000);
    std::fs::write(&file, log).unwrap();
    let path = file.to_str().unwrap();
    let (code, report, _) = told(&["layout", path]);
    assert_eq!(code, 0);
    assert!(report.lines().count() < 60, "{report}");
    assert!(report.contains("more (--json)") && report.contains("Zones"));
    let notices = document(&["layout", "--json", path])["notices"].clone();
    let notices = notices.as_array().unwrap();
    assert_eq!(notices.len(), 1001);
    assert_eq!(notices[1000], "and 19000 more");
}
