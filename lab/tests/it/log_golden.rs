//! The log reader on the 125 recorded boots: every row it gives is the one recorded.

use crate::common;

use std::collections::BTreeSet;

use common::{Golden, golden, number};
use firstlight::map::{MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight_lab::log::{E820Kind, KernelLog, MemorySource, read};
use serde_json::Value;

fn each(mut check: impl FnMut(&Golden, &KernelLog)) {
    let boots = golden();
    assert_eq!(boots.len(), 125);
    for boot in &boots {
        check(boot, &read(&common::log(&boot.name)));
    }
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

#[test]
fn nothing_in_a_recorded_boot_is_a_problem() {
    each(|boot, log| assert_eq!(log.problems, [], "{}", boot.name));
}

#[test]
fn what_went_in_is_read() {
    each(|boot, log| {
        let name = &boot.name;
        let kind = |kind| match kind {
            E820Kind::Usable => "usable".to_owned(),
            E820Kind::Reserved => "reserved".to_owned(),
            other => panic!("{name}: {other:?}"),
        };
        let e820: Vec<_> = log
            .e820
            .iter()
            .map(|row| (row.span.start, row.span.last, kind(row.kind)))
            .collect();
        assert_eq!(e820, boot.input.e820, "{name}");

        let flags = |hotplug| if hotplug { "hotplug" } else { "" };
        let srat: Vec<_> = log
            .srat_memory
            .iter()
            .map(|row| {
                (
                    u64::from(row.node),
                    row.span.start,
                    row.span.last,
                    flags(row.hotplug),
                )
            })
            .collect();
        let recorded: Vec<_> = boot
            .input
            .srat
            .iter()
            .map(|row| {
                (
                    number(&row[0]),
                    number(&row[1]),
                    number(&row[2]),
                    row[3].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(srat, recorded, "{name}");

        assert!(
            log.release
                .as_ref()
                .unwrap()
                .starts_with(&format!("{}.", boot.kernel)),
            "{name}"
        );
        let words: BTreeSet<_> = log.command_line.as_ref().unwrap().split(' ').collect();
        for word in boot.input.cmdline_extra.split_whitespace() {
            assert!(words.contains(word), "{name}: {word}");
        }
        assert_eq!(
            log.cpus.brought_up.map(u64::from),
            Some(boot.input.cpus),
            "{name}"
        );
        assert_eq!(
            log.cpus.allowed.map(u64::from),
            Some(boot.input.cpus),
            "{name}"
        );
    });
}

#[test]
fn what_came_out_is_read() {
    each(|boot, log| {
        let name = &boot.name;
        let ranges: Vec<_> = log
            .node_ranges
            .iter()
            .map(|row| {
                [
                    u64::from(row.node),
                    row.span.start >> 12,
                    (row.span.last + 1) >> 12,
                ]
            })
            .collect();
        let recorded: Vec<_> = array(&boot.expect["node_ranges_pfn"])
            .iter()
            .map(|row| [number(&row[0]), number(&row[1]), number(&row[2])])
            .collect();
        assert_eq!(ranges, recorded, "{name}");

        let holes: Vec<_> = log
            .unavailable
            .iter()
            .map(|row| {
                (
                    u64::from(row.node.unwrap()),
                    row.zone.clone().unwrap(),
                    row.pages,
                )
            })
            .collect();
        let recorded: Vec<_> = array(&boot.expect["unavailable"])
            .iter()
            .map(|row| {
                (
                    number(&row[0]),
                    row[1].as_str().unwrap().to_owned(),
                    number(&row[2]),
                )
            })
            .collect();
        assert_eq!(holes, recorded, "{name}");

        let deferred: BTreeSet<_> = log.deferred.iter().map(|row| u64::from(row.node)).collect();
        let recorded = array(&boot.expect["deferred_nodes"])
            .iter()
            .map(number)
            .collect();
        assert_eq!(deferred, recorded, "{name}");

        let movable: Vec<_> = log
            .movable_starts
            .iter()
            .map(|row| (row.node.to_string(), row.start))
            .collect();
        let recorded: Vec<_> = boot.expect["movable_start"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(node, start)| (node.clone(), number(start)))
            .collect();
        assert_eq!(movable, recorded, "{name}");

        // The zones that exist lie inside the bounds printed for them.
        for zone in array(&boot.expect["zones"]) {
            let kind = zone["zone"].as_str().unwrap();
            let start = number(&zone["start_pfn"]) << 12;
            let end = start + (number(&zone["spanned"]) << 12);
            // Memory plugged in after the boot is not in the bounds.
            if kind != "Movable" && !name.contains("_hp_") {
                let bounds = log
                    .zones
                    .iter()
                    .find(|row| row.zone == kind)
                    .unwrap()
                    .span
                    .unwrap();
                assert!(
                    bounds.start <= start && end <= bounds.last + 1,
                    "{name} {kind}"
                );
            }
        }
        assert!(
            log.node_spans
                .iter()
                .filter(|row| row.span.is_some())
                .count()
                > 0,
            "{name}"
        );
    });
}

#[test]
fn deferred_times_are_the_measured_ones() {
    let text = std::fs::read(common::testdata().join("golden/linux_boots.json")).unwrap();
    let records: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let mut compared = 0;
    for record in &records {
        let log = read(&common::log(record["name"].as_str().unwrap()));
        let recorded = record["measured_tcg"]["deferred_ms"].as_object().unwrap();
        assert_eq!(log.deferred.len(), recorded.len(), "{}", record["name"]);
        for row in &log.deferred {
            let measured = number(&recorded[&row.node.to_string()]);
            assert_eq!(row.milliseconds, measured, "{}", record["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 210);
}

#[test]
fn rows_become_the_engines_map() {
    each(|boot, log| {
        let (source, entries) = log.map_entries();
        assert_eq!(source, MemorySource::Firmware, "{}", boot.name);
        let mut scratch = vec![ScratchEntry::default(); entries.len()];
        let mut regions = vec![Region::default(); 4 * entries.len()];
        let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {});
        let map = map.unwrap();
        // Whole pages of what the rows call usable.
        let pages: u64 = boot
            .input
            .e820
            .iter()
            .filter(|row| row.2 == "usable")
            .map(|row| ((row.1 + 1) >> 12) - row.0.div_ceil(4096))
            .sum();
        assert_eq!(
            map.bytes_of(MemoryKind::Usable),
            pages << 12,
            "{}",
            boot.name
        );
    });
}

#[test]
fn a_boot_is_read_the_same_however_it_was_recorded() {
    let plain = common::log("F_pmem_n1");
    let expected = read(&plain);
    assert_eq!(expected.user_map.len(), 10);
    let text = String::from_utf8_lossy(&plain);
    let bare: Vec<&str> = text
        .lines()
        .map(|l| l.split_once("] ").map_or(l, |(_, m)| m))
        .collect();
    let variants = [
        ("carriage returns", text.replace('\n', "\r\n")),
        (
            "system log",
            text.replace("\n[", "\nNov 21 07:00:00 host kernel: ["),
        ),
        ("priorities", text.replace("\n[", "\n<6>[")),
        (
            "colours",
            text.replace("BIOS-e820", "\u{1b}[1mBIOS\u{1b}[0m-e820"),
        ),
        ("callers", text.replace("] BIOS", "][    T0] BIOS")),
        ("lost newlines", text.replace("usable\n[", "usable[")),
        ("no stamps", bare.join("\n")),
    ];
    for (what, text) in variants {
        let log = read(text.as_bytes());
        let rows = |log: &KernelLog| -> Vec<_> {
            log.e820
                .iter()
                .chain(&log.user_map)
                .map(|row| (row.span, row.kind))
                .collect()
        };
        assert_eq!(rows(&log), rows(&expected), "{what}");
        assert_eq!(log.node_ranges.len(), expected.node_ranges.len(), "{what}");
        assert_eq!(log.problems, [], "{what}");
    }
}
