//! The layout of every recorded boot, against what its kernel made of it.

use crate::common;

use std::collections::BTreeSet;

use common::{Golden, golden, number};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight_lab::linux::{Flavour, LayoutInput, PluggedMemory, layout_of};
use serde_json::{Value, json};

/// Everything compared, but for `zones`, which needs a word about hotplug.
const KEYS: [&str; 11] = [
    "hash",
    "memory_block_size",
    "memory_blocks",
    "block_runs",
    "node_ranges_pfn",
    "max_pfn",
    "movable_start",
    "unavailable",
    "deferred_nodes",
    "model_first_deferred_pfn",
    "model_eager_pages",
];

/// Boots whose zones were read after memory had been plugged in: it is in no
/// firmware map and above the end of early memory, and is cut off before comparing.
const GREW_LATER: [&str; 2] = ["B612_hp_4G_dimm4G", "B_hp_4G_dimm4G_movable"];

fn flavour(kernel: &str) -> Flavour {
    match kernel {
        "6.1" => Flavour::Linux6_1,
        "6.12" => Flavour::Linux6_12,
        other => panic!("no model of Linux {other}"),
    }
}

fn kind(name: &str) -> MemoryKind {
    match name {
        "usable" => MemoryKind::Usable,
        "reserved" => MemoryKind::Reserved,
        other => panic!("unexpected kind {other}"),
    }
}

/// DIMMs that were plugged into a boot: `device_add` in QEMU's monitor, named in the record's name; they are in no
/// memory map. Node, start and size.
const DIMMS: [(&str, u16, u64, u64); 4] = [
    ("B612_hp_4G_dimm4G", 0, 5 << 30, 4 << 30),
    ("B_hp_4G_dimm4G", 0, 5 << 30, 4 << 30),
    ("B_hp_4G_dimm4G_movable", 0, 5 << 30, 4 << 30),
    ("B_hp_4G_dimm384M_n2", 1, 5 << 30, 384 << 20),
];

fn plugged(name: &str) -> Vec<PluggedMemory> {
    let mine = DIMMS.iter().filter(|dimm| dimm.0 == name);
    let dimm = mine.map(|&(_, node, start, bytes)| PluggedMemory {
        node,
        start,
        last: start + bytes - 1,
    });
    dimm.collect()
}

/// The input as the record has it.
fn recorded(boot: &Golden) -> LayoutInput {
    let rows = boot.input.e820.iter();
    let mut input = LayoutInput {
        map: rows
            .map(|(start, last, name)| MapEntry::inclusive(*start, *last, kind(name)).unwrap())
            .collect(),
        command_line: boot.input.cmdline_extra.clone(),
        cpu_count: boot.input.cpus.try_into().unwrap(),
        hypervisor: boot.input.hypervisor_bit,
        plugged: plugged(&boot.name),
        ..LayoutInput::default()
    };
    for row in &boot.input.srat {
        let node = u32::try_from(row[0].as_u64().unwrap()).unwrap();
        let hotplug = row[3].as_str().unwrap() == "hotplug";
        input.add_memory(node, node, (number(&row[1]), number(&row[2])), hotplug);
    }
    input
}

/// The recorded zones without `managed`, and without what was plugged in later.
fn recorded_zones(boot: &Golden) -> (Value, bool) {
    let max_pfn = boot.expect["max_pfn"].as_u64().unwrap();
    let mut grew = false;
    let mut zones = Vec::new();
    for zone in boot.expect["zones"].as_array().unwrap() {
        let count = |key: &str| zone[key].as_u64().unwrap();
        let mut row =
            json!({ "node": zone["node"], "zone": zone["zone"], "start_pfn": count("start_pfn") });
        // A zone that only *spans* to a limit above the end of memory would be cut too: none does.
        let above = (count("start_pfn") + count("spanned")).saturating_sub(max_pfn);
        grew |= above > 0;
        if above < count("spanned") {
            row["spanned"] = json!(count("spanned") - above);
            row["present"] = json!(count("present") - above);
            zones.push(row);
        }
    }
    (json!(zones), grew)
}

/// What differs between the model and the record, one line a key.
fn differences(boot: &Golden, input: &LayoutInput) -> Vec<String> {
    let answer = match layout_of(input, flavour(&boot.kernel)) {
        Ok(answer) => serde_json::to_value(answer).unwrap(),
        Err(failure) => return vec![format!("{}: {failure}", boot.name)],
    };
    let mut lines = Vec::new();
    let mut compare = |key: &str, want: &Value| {
        if answer[key] != *want {
            lines.push(format!(
                "{} {key}:\n  got  {}\n  want {want}",
                boot.name, answer[key]
            ));
        }
    };
    for key in KEYS {
        compare(key, &boot.expect[key]);
    }
    compare("zones", &recorded_zones(boot).0);
    lines
}

fn assert_none(differences: &[String]) {
    let (count, lines) = (differences.len(), differences.join("\n"));
    assert!(differences.is_empty(), "{count} differences:\n{lines}");
}

#[test]
fn every_recorded_boot_is_laid_out_as_its_kernel_did() {
    let boots = golden();
    assert_eq!(boots.len(), 125);
    let lines: Vec<_> = boots
        .iter()
        .flat_map(|boot| differences(boot, &recorded(boot)))
        .collect();
    assert_none(&lines);
}

#[test]
fn the_logs_of_the_boots_give_the_same() {
    let mut lines = Vec::new();
    for boot in golden() {
        let log = firstlight_lab::log::read(&common::log(&boot.name));
        let mut input = LayoutInput::from_log(&log);
        // Its firmware says that it is virtual; that its processor does not is in no line.
        assert!(input.hypervisor, "{}", boot.name);
        input.hypervisor = boot.input.hypervisor_bit;
        input.plugged = plugged(&boot.name);
        lines.extend(differences(&boot, &input));
    }
    assert_none(&lines);
}

#[test]
fn only_the_named_boots_grew_later() {
    let grew: BTreeSet<_> = golden()
        .iter()
        .filter(|boot| recorded_zones(boot).1)
        .map(|boot| boot.name.clone())
        .collect();
    assert_eq!(grew, GREW_LATER.map(str::to_owned).into());
}

#[test]
fn zones_cover_the_recorded_ranges_exactly() {
    for boot in golden() {
        let frames: u64 = boot.expect["node_ranges_pfn"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[2].as_u64().unwrap() - row[1].as_u64().unwrap())
            .sum();
        for flavour in Flavour::ALL {
            let answer = layout_of(&recorded(&boot), flavour).unwrap();
            let present: u64 = answer.zones.iter().map(|zone| zone.present).sum();
            // Our own kernel keeps the first page, which Linux gives up.
            let own_page = u64::from(!flavour.is_linux());
            assert_eq!(present, frames + own_page, "{} {flavour}", boot.name);
        }
    }
}
