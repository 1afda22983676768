//! The layout of every recorded boot of an arm64 machine, against what its kernel made of it.
//!
//! `testdata/golden/arm64/` has the logs of `scripts/golden-arm64.sh`: Debian's Linux 6.1, 6.12, and 6.12 with
//! pages of 16 KiB. What its `/init` read of `/proc/zoneinfo` and of sysfs stands at the end of each.

use crate::common;

use std::collections::BTreeMap;
use std::fs;

use firstlight_lab::linux::{Flavour, LayoutInput, layout_of};
use firstlight_lab::log::{KernelLog, MemorySource, PageSize, Processor, read};
use serde_json::{Value, json};

/// A kernel that was recorded.
struct Kernel {
    /// Its folder, how its release begins, and how many boots there are.
    folder: &'static str,
    release: &'static str,
    boots: usize,
    flavour: Flavour,
    page_size: PageSize,
}

const KERNELS: [Kernel; 3] = [
    Kernel {
        folder: "6.1",
        release: "6.1.",
        boots: 32,
        flavour: Flavour::Linux6_1,
        page_size: PageSize::Kib4,
    },
    Kernel {
        folder: "6.12",
        release: "6.12.",
        boots: 31,
        flavour: Flavour::Linux6_12,
        page_size: PageSize::Kib4,
    },
    Kernel {
        folder: "6.12-16k",
        release: "6.12.",
        boots: 31,
        flavour: Flavour::Linux6_12,
        page_size: PageSize::Kib16,
    },
];

/// A boot that was recorded.
struct Boot {
    kernel: &'static Kernel,
    name: String,
    text: String,
}

fn boots() -> Vec<Boot> {
    let mut all = Vec::new();
    for kernel in &KERNELS {
        let folder = common::testdata().join("golden/arm64").join(kernel.folder);
        let files = fs::read_dir(folder).unwrap();
        let boots = files.map(|file| file.unwrap().path()).map(|path| Boot {
            kernel,
            name: format!("{}/{}", kernel.folder, path.file_stem().unwrap().display()),
            text: fs::read_to_string(path).unwrap(),
        });
        let before = all.len();
        all.extend(boots);
        assert_eq!(all.len() - before, kernel.boots, "{}", kernel.folder);
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// What stands behind `mark` on each line that has it.
fn after<'t>(text: &'t str, mark: &str) -> Vec<&'t str> {
    let lines = text.lines().filter_map(|line| line.split_once(mark));
    lines.map(|(_, rest)| rest).collect()
}

/// `DMA32 262144 786432 524256 507872`, as numbers and words.
fn words(line: &str) -> Vec<Value> {
    let word = |word: &str| {
        word.parse()
            .map_or(json!(word), |number: u64| json!(number))
    };
    line.split_whitespace().map(word).collect()
}

/// Zones: node, name, first frame, spanned, present; how many are managed only Linux knows.
fn zones(text: &str) -> Value {
    let rows = after(text, "@Z ").into_iter();
    let rows = rows.map(|line| words(line)[..5].to_vec());
    json!(rows.collect::<Vec<_>>())
}

/// Runs of memory blocks: first, last, state, zones, nodes.
fn runs(text: &str) -> Value {
    let rows = after(text, "@B ").into_iter().map(|line| {
        let mut words = line.split(' ');
        let (first, last) = words.next().unwrap().split_once('-').unwrap();
        let mut value = |name: &str| words.next().unwrap().strip_prefix(name).unwrap().to_owned();
        json!({
            "first": first.parse::<u64>().unwrap(),
            "last": last.parse::<u64>().unwrap(),
            "state": value("state="),
            "valid_zones": value("zones=").trim_matches('\''),
            "nodes": value("nodes="),
        })
    });
    json!(rows.collect::<Vec<_>>())
}

/// The large hash tables, as the kernel prints each.
fn hash(text: &str) -> Value {
    const TABLES: [(&str, &str); 8] = [
        ("dentry", "] Dentry cache hash table entries: "),
        ("inode", "] Inode-cache hash table entries: "),
        ("mount", "] Mount-cache hash table entries: "),
        ("mountpoint", "] Mountpoint-cache hash table entries: "),
        ("tcp_est", "] TCP established hash table entries: "),
        ("tcp_bind", "] TCP bind hash table entries: "),
        ("udp", "] UDP hash table entries: "),
        ("futex", "] futex hash table entries: "),
    ];
    let table = |mark| {
        // 16384 (order: 5, 131072 bytes, vmalloc)
        let row = after(text, mark);
        let row = row.first().unwrap().trim_end_matches(')');
        let (entries, rest) = row.split_once(" (order: ").unwrap();
        let parts: Vec<_> = rest.splitn(3, ", ").collect();
        let bytes = parts[1].strip_suffix(" bytes").unwrap();
        json!({
            "entries": entries.parse::<u64>().unwrap(),
            "order": parts[0].parse::<i32>().unwrap(),
            "bytes": bytes.parse::<u64>().unwrap(),
            "kind": parts[2],
        })
    };
    let tables = TABLES.map(|(name, mark)| (name, table(mark)));
    json!(BTreeMap::from(tables))
}

/// What the kernel said, by the keys of an answer.
fn said(Boot { text, kernel, .. }: &Boot, log: &KernelLog) -> BTreeMap<&'static str, Value> {
    let page = kernel.page_size.bytes();
    let ranges = log.node_ranges.iter();
    let ranges = ranges.map(|row| (row.node, row.span.start / page, (row.span.last + 1) / page));
    let movable = log.movable_starts.iter();
    let movable = movable.map(|row| (row.node.to_string(), format!("{:#x}", row.start)));
    let holes = log.unavailable.iter();
    let holes = holes.map(|row| (row.node.unwrap(), row.zone.clone().unwrap(), row.pages));
    let mut deferred: Vec<_> = log.deferred.iter().map(|row| row.node).collect();
    deferred.sort_unstable();
    let block = u64::from_str_radix(after(text, "@@block_size_bytes ")[0], 16).unwrap();
    let blocks: u64 = after(text, "@@memblocks count=")[0].parse().unwrap();
    BTreeMap::from([
        ("node_ranges_pfn", json!(merged(ranges.collect()))),
        ("zones", zones(text)),
        ("movable_start", json!(movable.collect::<BTreeMap<_, _>>())),
        ("unavailable", json!(holes.collect::<Vec<_>>())),
        ("deferred_nodes", json!(deferred)),
        ("hash", hash(text)),
        ("memory_block_size", json!(block)),
        ("memory_blocks", json!(blocks)),
        ("block_runs", runs(text)),
    ])
}

/// Ranges without borders between memory of one node: Linux keeps those of memory that must not
/// be mapped, of which a map of memory knows nothing.
fn merged(ranges: Vec<(u32, u64, u64)>) -> Vec<(u32, u64, u64)> {
    let mut all: Vec<(u32, u64, u64)> = Vec::new();
    for (node, start, end) in ranges {
        match all.last_mut() {
            Some(last) if (last.0, last.2) == (node, start) => last.2 = end,
            _ => all.push((node, start, end)),
        }
    }
    all
}

/// Our answer in the form of the golden one, zones as rows.
fn answered(log: &KernelLog, flavour: Flavour) -> Value {
    let answer = layout_of(&LayoutInput::from_log(log), flavour).unwrap();
    let mut answer = serde_json::to_value(answer).unwrap();
    let zones = answer["zones"].as_array().unwrap().iter().map(|zone| {
        json!([
            zone["node"],
            zone["zone"],
            zone["start_pfn"],
            zone["spanned"],
            zone["present"]
        ])
    });
    answer["zones"] = zones.collect();
    answer
}

/// A table whose size is an estimate may have half as many buckets in the kernel.
fn halve_estimates(answer: &mut Value, want: &Value) {
    for name in answer["hash_estimated"].as_array().unwrap().clone() {
        let name = name.as_str().unwrap();
        let (table, want) = (&mut answer["hash"][name], &want[name]);
        let number = |table: &Value, key: &str| table[key].as_i64().unwrap();
        if number(table, "entries") == 2 * number(want, "entries") {
            for key in ["entries", "bytes"] {
                table[key] = json!(number(table, key) / 2);
            }
            table["order"] = json!(number(table, "order") - 1);
        }
    }
}

#[test]
fn every_recorded_boot_of_an_arm_machine_is_laid_out_as_its_kernel_did() {
    let mut lines = Vec::new();
    for boot in boots() {
        let log = read(boot.text.as_bytes());
        let mut answer = answered(&log, boot.kernel.flavour);
        for (key, want) in said(&boot, &log) {
            if key == "hash" {
                halve_estimates(&mut answer, &want);
            }
            if answer[key] != want {
                lines.push(format!(
                    "{} {key}:\n  got  {}\n  want {want}",
                    boot.name, answer[key]
                ));
            }
        }
    }
    let (count, lines) = (lines.len(), lines.join("\n"));
    assert!(lines.is_empty(), "{count} differences:\n{lines}");
}

#[test]
fn the_logs_are_read_without_a_problem() {
    for Boot { name, text, kernel } in boots() {
        let log = read(text.as_bytes());
        assert_eq!(log.problems, [], "{name}");
        assert_eq!(log.processor, Processor::Arm64, "{name}");
        assert_eq!(log.memory_rows().0, MemorySource::NodeRanges, "{name}");
        assert!(log.cpus.brought_up.is_some(), "{name}");
        let release = log.release.as_ref().unwrap();
        assert!(release.starts_with(kernel.release), "{name}");
        assert_eq!(log.page_size, Some(kernel.page_size), "{name}");
    }
}

#[test]
fn zones_are_bounded_as_the_kernel_printed() {
    for Boot { name, text, .. } in boots() {
        let log = read(text.as_bytes());
        let input = LayoutInput::from_log(&log);
        for row in &log.zones {
            let Some(span) = row.span else { continue };
            let end = match row.zone.as_str() {
                "DMA" => input.policy.dma_end,
                "DMA32" => input.policy.dma32_end,
                "Normal" => continue,
                other => panic!("{name}: {other}"),
            };
            let memory_end = log
                .node_ranges
                .iter()
                .map(|row| row.span.last)
                .max()
                .unwrap();
            let expected = end.addr().get().min(memory_end + 1);
            assert_eq!(span.last + 1, expected, "{name} {}", row.zone);
        }
    }
}

#[test]
fn nodes_of_an_affinity_table_that_leaves_memory_out_are_given_up() {
    // The table names two nodes, and no node for the window of the firmware's flash.
    let boots = boots();
    let boot = boots.iter().find(|boot| boot.name == "6.1/8G_n2_efi");
    let text = &boot.unwrap().text;
    let log = read(text.as_bytes());
    assert_eq!(log.srat_memory.len(), 2);
    assert!(log.faked_node.is_some());
    let input = LayoutInput::from_log(&log);
    let nodes = |flavour| {
        let answer = layout_of(&input, flavour).unwrap();
        let zones = answer.zones.iter().map(|zone| zone.node);
        zones.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(nodes(Flavour::Linux6_1), 1);
    assert_eq!(nodes(Flavour::Firstlight), 2);
}
