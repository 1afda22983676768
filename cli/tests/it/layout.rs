//! `firstlight layout` against what real Linux printed.

use crate::common;

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

/// What was plugged into a boot after its log: `device_add` in QEMU's monitor, named in the record's name.
const DIMMS: [(&str, &str); 4] = [
    ("B612_hp_4G_dimm4G", "4G@0x140000000"),
    ("B_hp_4G_dimm4G", "4G@0x140000000"),
    ("B_hp_4G_dimm4G_movable", "4G@0x140000000,node=0"),
    ("B_hp_4G_dimm384M_n2", "384M@0x140000000,node=1"),
];

/// Zones as far as memory reaches that is there at boot: two records have the DIMM's frames, too.
fn at_boot(zones: &Value, max_pfn: u64) -> Value {
    let mut zones = without_managed(zones);
    let rows = zones.as_array_mut().unwrap();
    rows.retain(|zone| zone["start_pfn"].as_u64().unwrap() < max_pfn);
    for zone in rows {
        let count = |key: &str| zone[key].as_u64().unwrap();
        let (spanned, present) = (count("spanned"), count("present"));
        let more = (count("start_pfn") + spanned).saturating_sub(max_pfn);
        zone["spanned"] = (spanned - more).into();
        zone["present"] = (present - more).into();
    }
    zones
}

/// How many keys agree between a record and the command; panics where one does not.
fn compare(boot: &Value) -> usize {
    let name = boot["name"].as_str().unwrap();
    let log = testdata("golden/logs").join(format!("{name}.log"));
    let kernel = format!("linux-{}", boot["kernel"].as_str().unwrap());
    let cpus = boot["input"]["cpus"].to_string();
    let mut arguments = vec![
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
    let dimm = DIMMS.iter().find(|dimm| dimm.0 == name);
    if let Some((_, dimm)) = dimm {
        arguments.extend(["--plug", dimm]);
    }
    let answer = document(&arguments);
    assert_eq!(answer["schema"], "firstlight.layout/1");
    assert!(!answer["notices"].to_string().contains("plugged in"));
    let mut compared = 0;
    for key in KEYS {
        let expected = match key {
            "zones" => at_boot(
                &boot["expect"][key],
                boot["expect"]["max_pfn"].as_u64().unwrap(),
            ),
            _ => boot["expect"][key].clone(),
        };
        if !expected.is_null() {
            assert_eq!(answer[key], expected, "{name}: {key}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn every_fifth_boot_is_told_as_linux_told_it() {
    // The library's own tests do all of them; here the way through the command counts.
    let boots = boots();
    let compared: usize = boots.iter().step_by(5).map(compare).sum();
    assert!(compared > 250, "only {compared} values were compared");
}

#[test]
fn boots_with_a_dimm_agree_with_it_and_not_without() {
    let boots = boots();
    for (name, _) in DIMMS {
        let boot = boots.iter().find(|boot| boot["name"] == name).unwrap();
        assert_eq!(compare(boot), KEYS.len(), "{name}");
        let log = testdata("golden/logs").join(format!("{name}.log"));
        let without = document(&["layout", log.to_str().unwrap(), "--json"]);
        assert_ne!(without["memory_blocks"], boot["expect"]["memory_blocks"]);
    }
    // Where memory is already it is left out, with a note.
    let log = testdata("golden/logs/B_hp_4G_dimm4G.log");
    let arguments = ["layout", log.to_str().unwrap(), "--plug", "1G@2G"];
    let (code, report, _) = told(&arguments);
    assert_eq!(code, 0);
    assert!(report.contains("plugged in is left out"), "{report}");
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
fn a_hash_table_that_is_too_large_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("boot.log");
    let log = "Command line: dhash_entries=1073741824\n\
               BIOS-e820: [mem 0x0000000000100000-0x000000003fffffff] usable\n";
    std::fs::write(&file, log).unwrap();
    let (code, report, _) = told(&["layout", file.to_str().unwrap()]);
    assert_eq!(code, 0);
    let note =
        "note: dhash_entries: table \"dentry\" of 1073741824 buckets: expected at most 4194304";
    assert!(report.contains(note), "{report}");
}

#[test]
fn an_arm_machines_log_is_read_too() {
    let log = testdata("golden/arm64/6.1/6G_n1_dma_31.log");
    let log = log.to_str().unwrap();
    let answer = document(&["layout", log, "--as", "linux-6.1", "--json"]);
    let zones: Vec<_> = answer["zones"].as_array().unwrap().iter().collect();
    let zones: Vec<_> = zones
        .iter()
        .map(|zone| {
            (
                zone["zone"].as_str().unwrap(),
                zone["present"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        zones,
        [("DMA", 1 << 18), ("DMA32", 2 << 18), ("Normal", 3 << 18)]
    );
    let blocks = document(&["blocks", log, "--as", "linux-6.1", "--json"]);
    assert_eq!(
        blocks["reason"],
        "128 MiB, a section: on arm64 Linux has no others"
    );
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
