//! What is told of a Linux from its log, against what real Linux did.

use crate::common;

use common::{golden, log, number};
use firstlight_lab::boot::linux_end;
use firstlight_lab::boot_log;
use firstlight_lab::log::lines;
use firstlight_lab::record::Record;
use serde_json::{Value, json};

/// Their zones were recorded after memory had been plugged in.
const GREW_LATER: [&str; 2] = ["B612_hp_4G_dimm4G", "B_hp_4G_dimm4G_movable"];

fn record(log: &[u8]) -> Record {
    let mut record = Record::new("boot", "wall");
    boot_log::tell(log, &mut record);
    record
}

#[test]
fn nodes_and_zones_are_those_of_the_kernel() {
    let mut zones_seen = 0;
    for boot in golden() {
        let record = record(&log(&boot.name));
        let told: Vec<Value> = record
            .zones
            .iter()
            .map(|zone| {
                json!([
                    zone.node,
                    zone.zone,
                    zone.start_frame,
                    zone.spanned_frames,
                    zone.present_frames
                ])
            })
            .collect();
        let real = boot.expect["zones"].as_array().unwrap().iter();
        let real: Vec<Value> = real
            .map(|zone| {
                json!([
                    zone["node"],
                    zone["zone"],
                    zone["start_pfn"],
                    zone["spanned"],
                    zone["present"]
                ])
            })
            .collect();
        if !GREW_LATER.contains(&&*boot.name) {
            assert_eq!(told, real, "{}", boot.name);
        }
        zones_seen += told.len();
        let ranges = boot.expect["node_ranges_pfn"].as_array().unwrap();
        let present: u64 = ranges
            .iter()
            .map(|row| number(&row[2]) - number(&row[1]))
            .sum();
        assert_eq!(record.memory.present_frames, Some(present), "{}", boot.name);
        assert_eq!(record.machine.memory_bytes, Some(present * 4096));
        assert_eq!(record.regions.len(), boot.input.e820.len(), "{}", boot.name);
        assert_eq!(record.machine.cpus, Some(boot.input.cpus), "{}", boot.name);
    }
    assert!(zones_seen > 100);
}

#[test]
fn times_are_told_or_missing_and_never_zero() {
    for boot in golden() {
        let record = record(&log(&boot.name));
        let milestones = &record.milestones;
        let known = [
            milestones.layout_ns,
            milestones.first_frame_ns,
            milestones.cpus_started_ns,
            milestones.all_allocatable_ns,
        ];
        assert_eq!(milestones.entry_ns, None);
        assert!(known.iter().all(|ns| *ns != Some(0)), "{}", boot.name);
        assert!(!record.phases.is_empty(), "{}", boot.name);
        for pair in record.phases.windows(2) {
            assert_eq!(pair[0].end_ns, pair[1].start_ns, "{}", boot.name);
            assert_ne!(pair[0].name, pair[1].name, "{}", boot.name);
        }
        assert!(
            record
                .phases
                .iter()
                .all(|phase| phase.start_ns < phase.end_ns)
        );
    }
}

#[test]
fn milestones_are_the_stamps_of_their_lines() {
    let record = record(&log("A_6.12_16G_n4_c4"));
    // Until then the clock had not begun, or began again.
    assert_eq!(record.milestones.layout_ns, None);
    assert_eq!(record.milestones.first_frame_ns, None);
    assert_eq!(record.milestones.cpus_started_ns, Some(1_062_849_000));
    assert_eq!(record.milestones.all_allocatable_ns, Some(1_381_055_000));
    let phases: Vec<_> = record
        .phases
        .iter()
        .map(|phase| (&*phase.name, phase.start_ns / 1000, phase.end_ns / 1000))
        .collect();
    assert_eq!(
        phases[..8],
        [
            ("kernel", 491, 338_114),
            ("hash tables", 338_114, 406_267),
            ("kernel", 406_267, 585_471),
            ("SMP", 585_471, 1_062_849),
            ("deferred memmap", 1_062_849, 1_381_055),
            ("kernel", 1_381_055, 1_403_537),
            ("memory blocks", 1_403_537, 1_418_070),
            ("drivers", 1_418_070, phases[7].2),
        ]
    );
}

#[test]
fn a_clock_that_runs_from_the_start_gives_every_time() {
    let log = b"[    0.000000] Linux version 6.12.0\n\
        [    0.000000] tsc: Detected 1000.000 MHz processor\n\
        [    0.003264] last_pfn = 0x180000\n\
        [    0.005971] Zone ranges:\n\
        [    0.006007] Early memory node ranges\n\
        [    0.023199] ACPI: PM-Timer IO Port: 0x608\n\
        [    0.047485] mem auto-init: stack:all(zero)\n\
        [    0.093360] SLUB: HWalign=64\n\
        [    0.485982] smp: Bringing up secondary CPUs ...\n\
        [    0.000000] from a CPU whose clock has not begun\n\
        [    0.486000] smp: Brought up 1 node, 1 CPU\n\
        [    0.485990] a CPU that is a little behind\n\
        [    0.508240] Kernel panic - not syncing: VFS: Unable to mount root fs\n";
    let record = record(log);
    let milestones = &record.milestones;
    assert_eq!(milestones.layout_ns, Some(6_007_000));
    assert_eq!(milestones.first_frame_ns, Some(93_360_000));
    assert_eq!(milestones.cpus_started_ns, Some(486_000_000));
    // Nothing is put off here.
    assert_eq!(milestones.all_allocatable_ns, Some(93_360_000));
    let names: Vec<_> = record.phases.iter().map(|phase| &*phase.name).collect();
    assert_eq!(
        names,
        [
            "memory map",
            "memmap early",
            "kernel",
            "free to allocator",
            "kernel",
            "SMP",
            "kernel"
        ]
    );
    assert_eq!(record.phases[0].start_ns, 3_264_000);
}

#[test]
fn a_death_in_text_patching_is_told_from_others() {
    let patched = [
        "[    0.700] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n[    0.700] RIP: 0010:sched_clock+0x5/0x10\n",
        "[    0.700] int3: 0000 [#1] PREEMPT SMP\n",
        "[    0.700] invalid opcode: 0000 [#1] SMP\n[    0.700]  smp_text_poke_batch_finish+0x1/0x2\n",
        "[    0.700] kernel BUG at arch/x86/kernel/alternative.c:2240!\n",
    ];
    for log in patched {
        let lines = lines(log.as_bytes());
        assert!(linux_end::patched_to_death(&lines).is_some(), "{log}");
    }
    let others = [
        "",
        "[    0.700] Freeing SMP alternatives memory: 40K\n",
        "[    0.700] Kernel panic - not syncing: VFS: Unable to mount root fs\n",
        "[    0.700] Oops: 0002 [#1] SMP\n[    0.700] RIP: 0010:deferred_init_maxorder+0x1/0x2\n\
         [    0.700] ---[ end trace 0 ]---\n[    0.800] Freeing SMP alternatives memory: 40K\n",
    ];
    for log in others {
        let lines = lines(log.as_bytes());
        assert_eq!(linux_end::patched_to_death(&lines), None, "{log}");
    }
    for boot in golden() {
        let text = log(&boot.name);
        let lines = lines(&text);
        assert_eq!(linux_end::patched_to_death(&lines), None, "{}", boot.name);
    }
}

/// A hostile log may name as many nodes as it has lines; what is made of them takes
/// a time that follows the lines, or this test would not end.
#[test]
fn many_nodes_cost_what_their_lines_cost() {
    use std::fmt::Write;
    let mut log = String::from("Early memory node ranges\n");
    for node in 0..50_000u64 {
        let (start, last) = (node << 12, (node << 12) + 0xfff);
        let _ = writeln!(log, "  node {node}: [mem {start:#018x}-{last:#018x}]");
        let _ = writeln!(log, "SRAT: PXM {node} -> APIC 0x{node:x} -> Node {node}");
        let _ = writeln!(log, "  Normal   [mem {start:#018x}-{last:#018x}]");
    }
    let record = record(log.as_bytes());
    assert_eq!(record.nodes.len(), 50_000);
    assert!(record.nodes.iter().all(|node| node.cpus == Some(1)));
    assert_eq!(record.zones.len(), 1);
}
