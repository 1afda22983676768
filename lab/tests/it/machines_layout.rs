//! The layout of every machine of `testdata/machines` that shows a shape.

use crate::common;

use std::fs;

use firstlight::addr::Frame;
use firstlight::layout::{LayoutError, LayoutPolicy};
use firstlight::start::{Boot, BootStorage, StartError};
use firstlight_lab::linux::{Flavour, LayoutAnswer, LayoutInput, layout_of, with_layout};
use firstlight_lab::log::{KernelLog, read};

fn log(number: &str) -> KernelLog {
    let folder = common::testdata().join("machines");
    let mut names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = names.find(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(number)
    });
    read(&fs::read(path.unwrap()).unwrap())
}

fn input(number: &str) -> LayoutInput {
    LayoutInput::from_log(&log(number))
}

fn answer(number: &str, flavour: Flavour) -> LayoutAnswer {
    layout_of(&input(number), flavour).unwrap()
}

/// Node, zone, first frame, spanned, present.
type ZoneRow<'a> = (u16, &'a str, u64, u64, u64);

fn zones(answer: &LayoutAnswer) -> Vec<ZoneRow<'_>> {
    let rows = answer.zones.iter();
    rows.map(|zone| {
        (
            zone.node,
            zone.zone,
            zone.start_pfn,
            zone.spanned,
            zone.present,
        )
    })
    .collect()
}

fn present(answer: &LayoutAnswer) -> u64 {
    answer.zones.iter().map(|zone| zone.present).sum()
}

/// Whatever the file, whatever the kernel: a layout, or the error that there is no memory.
#[test]
fn every_file_is_laid_out_or_has_no_memory() {
    for number in [
        "01", "03", "05", "08", "11", "16", "17", "22", "23", "24", "26", "28", "30", "35", "37",
    ] {
        for flavour in Flavour::ALL {
            let got = layout_of(&input(number), flavour);
            let without = matches!(got, Err(StartError::Layout(LayoutError::NoMemory { .. })));
            let expected = match number {
                // Soft-reserved memory only; and logs of zones and timings, without a map.
                "17" | "30" | "35" | "37" => true,
                // One page, which Linux leaves to the firmware.
                "23" => flavour.is_linux(),
                _ => false,
            };
            assert_eq!(without, expected, "{number} {flavour}: {got:?}");
            assert_eq!(got.is_ok(), !expected, "{number} {flavour}: {got:?}");
        }
    }
}

#[test]
fn sixteen_nodes_of_768_gib() {
    let answer = answer("01", Flavour::Linux6_12);
    let nodes: Vec<_> = answer
        .zones
        .iter()
        .filter(|zone| zone.zone == "Normal")
        .collect();
    assert_eq!(nodes.len(), 16);
    // Node 0 ends 128 GiB before node 1 starts, one page after its boundary. Node 0 has memory on
    // both sides of 4 GiB, so its zone spans the page missing there; node 1 does not.
    let node0 = nodes[0];
    assert_eq!(
        (node0.start_pfn, node0.start_pfn + node0.spanned),
        (0x10_0000, 0xc08_0000)
    );
    assert_eq!(
        (nodes[1].start_pfn, nodes[1].spanned),
        (0xe00_0001, 0xc00_0000 - 1)
    );
    for (node, zone) in nodes.iter().enumerate().skip(2) {
        assert_eq!(
            zone.start_pfn,
            0xe00_0000 + (u64::try_from(node).unwrap() - 1) * 0xc00_0000
        );
        assert_eq!((zone.spanned, zone.present), (0xc00_0000, 0xc00_0000));
    }
    let usable: u64 = input("01")
        .map
        .iter()
        .filter(|entry| entry.kind.is_memory())
        .map(|entry| entry.bytes >> 12)
        .sum();
    assert_eq!(present(&answer), usable - 1); // the first page is the firmware's
    assert_eq!(answer.deferred_nodes, (0..16).collect::<Vec<_>>());
    // 128 GiB of hole have no descriptors but in the sections at its ends.
    assert!(answer.unavailable.contains(&(1, "Normal", 1)));
}

#[test]
fn eight_nodes_far_apart_cost_what_eight_ranges_cost() {
    let input = input("05");
    assert_eq!(
        input.notices.clone().into_list(),
        ["memory is taken from the memory affinity rows; the log has no firmware map"]
    );
    with_layout(&input, Flavour::Firstlight, |prepared| {
        let layout = prepared.layout;
        assert_eq!(
            (
                layout.nodes().len(),
                layout.ranges().len(),
                layout.segments().count()
            ),
            (8, 7, 7)
        );
        assert!(!layout.nodes()[0].has_memory()); // the table names no node 0
        assert_eq!(layout.present_frames() << 12, (5 * 512 + 256 + 128) << 30);
        let sections: u64 = layout.sections().map(|run| run.count).sum();
        assert_eq!(sections, (5 * 512 + 256 + 128) * 8);
        assert_eq!(layout.unavailable().count(), 0);
        assert_eq!(layout.holes().count(), 7); // the one below node 1 included
    })
    .unwrap();
}

#[test]
fn eight_quarters_of_two_sockets() {
    let answer = answer("08", Flavour::Linux6_12);
    assert_eq!(answer.node_ranges_pfn.len(), 3 + 7);
    let (dma, normal) = (&answer.zones[0], &answer.zones[9]);
    assert_eq!(
        (dma.node, dma.zone, dma.spanned, dma.present),
        (0, "DMA", 4095, 4095 - 96)
    );
    assert_eq!((normal.node, normal.zone), (7, "Normal"));
    assert_eq!(answer.max_pfn, 0x1008_0000);
    assert_eq!(answer.unavailable, [(0, "DMA", 1), (0, "DMA", 96)]);
}

/// A kernel without a DMA zone, on memory below 4 GiB; the windows reach 4 PiB and cost nothing.
#[test]
fn hotplug_windows_to_4_pib() {
    let log = log("11");
    let input = LayoutInput::from_log(&log);
    assert!(
        input
            .memory
            .iter()
            .any(|row| row.last == (1 << 52) - 1 && row.hotplug)
    );
    let printed: Vec<_> = log.unavailable.iter().map(|row| row.pages).collect();
    assert_eq!(printed, [1, 352, 13_312]);
    with_layout(&input, Flavour::Linux6_12, |prepared| {
        let frames: Vec<_> = prepared
            .layout
            .ranges()
            .iter()
            .map(|range| range.frames)
            .collect();
        assert_eq!((frames.len(), frames[1].start()), (2, Frame::new(0x200)));
        let counted: Vec<_> = prepared
            .layout
            .unavailable()
            .map(|hole| hole.frames)
            .collect();
        assert_eq!(counted, printed);
    })
    .unwrap();
}

#[test]
fn a_kernel_without_a_dma_zone() {
    let boot = Boot {
        policy: LayoutPolicy {
            dma_end: Frame::new(0),
            ..LayoutPolicy::DEFAULT
        },
        ..Boot::new(log("11").map_entries().1)
    };
    let mut storage = BootStorage::<4, 1>::EMPTY;
    let layout = boot.layout(&mut storage, &mut |_| {}).unwrap();
    let holes: Vec<_> = layout
        .unavailable()
        .map(|hole| (hole.zone.name(), hole.frames))
        .collect();
    assert_eq!(holes, [("DMA32", 1), ("DMA32", 352), ("DMA32", 13_312)]);
    assert_eq!(layout.zones().len(), 1);
    assert_eq!(layout.zones()[0].span.start(), Frame::new(1));
}

#[test]
fn a_node_that_overlaps_another() {
    let log = log("16");
    let mut input = LayoutInput::from_log(&log);
    let two = layout_of(&input, Flavour::Linux6_12).unwrap();
    assert_eq!(
        two.node_ranges_pfn
            .iter()
            .map(|row| row.0)
            .collect::<Vec<_>>(),
        [0, 0, 0, 1]
    );

    // The range the kernel made of node 1 before it noticed.
    let (node, span) = log.node_overlaps[0].other;
    input.add_memory(node, node, (span.start, span.last), false);
    let distrusted = layout_of(&input, Flavour::Linux6_12).unwrap();
    assert!(distrusted.node_ranges_pfn.iter().all(|row| row.0 == 0));
    assert!(
        distrusted
            .notices
            .iter()
            .any(|notice| notice.contains("taken as one node"))
    );
    let mended = layout_of(&input, Flavour::Firstlight).unwrap();
    let nodes: Vec<_> = mended
        .node_ranges_pfn
        .iter()
        .map(|row| (row.0, row.1))
        .collect();
    assert_eq!(nodes, [(0, 0), (0, 0x10_0000), (1, 0x1000_0000)]);
    assert!(
        mended
            .notices
            .iter()
            .any(|notice| notice.contains("claimed by node 0 and node 1"))
    );
    assert_eq!(present(&mended), present(&two) + 0x60 + 1); // 640 KiB to 1 MiB, and the first page
}

#[test]
fn persistent_memory_that_swallows_a_node() {
    let log = log("22");
    let mut input = LayoutInput::from_log(&log);
    assert!(input.map_is_changed);
    input.command_line = "memmap=1G$0x100000000".to_owned(); // acted already: must not act again
    input.add_memory(0, 0, (0, 0x4_ffff_ffff), false);
    input.add_memory(1, 1, (0x5_0000_0000, 0x60_3fff_ffff), false);
    with_layout(&input, Flavour::Linux6_12, |prepared| {
        let nodes = prepared.layout.nodes();
        assert_eq!(
            nodes
                .iter()
                .map(|node| node.present_frames)
                .collect::<Vec<_>>(),
            [0x516 + 0x40_0000, 0]
        );
        assert!(nodes[1].span.is_empty());
        assert!(prepared.layout.zones().iter().all(|zone| zone.node.0 == 0));
    })
    .unwrap();
}

#[test]
fn a_machine_of_one_page() {
    let own = answer("23", Flavour::Firstlight);
    assert_eq!(zones(&own), [(0, "DMA", 0, 1, 1)]);
    let linux = layout_of(&input("23"), Flavour::Linux6_1).unwrap_err();
    assert_eq!(
        linux.to_string(),
        "layout: no memory: not one whole page frame in 0 regions"
    );
}

#[test]
fn the_format_of_2026_with_gaps() {
    let answer = answer("24", Flavour::Linux6_12);
    assert_eq!(
        zones(&answer),
        [
            (0, "DMA", 1, 4095, 3998),
            (0, "DMA32", 4096, 61_408, 61_408)
        ]
    );
    assert_eq!(answer.max_pfn, 0xffe0); // as the log's own last_pfn says
}

#[test]
fn an_isle_of_memory_after_firmware_tables() {
    let answer = answer("26", Flavour::Linux6_1);
    assert_eq!(
        answer.node_ranges_pfn,
        [(0, 1, 0x9f), (0, 0x100, 0xdf9bf), (0, 0xdfbf5, 0xdfc00)]
    );
    assert_eq!(
        answer.unavailable,
        [
            (0, "DMA", 1),
            (0, "DMA", 97),
            (0, "DMA32", 0xdfbf5 - 0xdf9bf),
            (0, "DMA32", 0x400)
        ]
    );
}

#[test]
fn memory_from_4_gib_up_only() {
    let answer = answer("28", Flavour::Linux6_12);
    let frames = 0x2b58_0000 - 0x10_0000;
    assert_eq!(zones(&answer), [(0, "Normal", 0x10_0000, frames, frames)]);
    assert_eq!(answer.model_eager_pages[&0], 32_768);
}

#[test]
fn numa_off_is_one_node_for_linux() {
    let mut input = input("08");
    input.command_line = "quiet numa=off".to_owned();
    for (flavour, nodes) in [(Flavour::Linux6_1, 1), (Flavour::Firstlight, 8)] {
        with_layout(&input, flavour, |prepared| {
            assert_eq!(prepared.layout.nodes().len(), nodes)
        })
        .unwrap();
    }
}

#[test]
fn mirror_differs_between_kernels() {
    let mut input = input("24");
    input.map.push(firstlight::map::MapEntry::new(
        1 << 32,
        1 << 30,
        firstlight::map::MemoryKind::Usable,
    ));
    input.command_line = "kernelcore=mirror".to_owned();
    let starts =
        Flavour::ALL.map(|flavour| layout_of(&input, flavour).unwrap().movable_start.len());
    assert_eq!(starts, [0, 1, 0]); // only 6.1 obeys where nothing is mirrored
}

#[test]
fn a_command_line_is_cut_where_a_kernel_cuts_it() {
    let mut input = input("24");
    input.command_line = "x".repeat(2048) + " mem=1M";
    let answer = layout_of(&input, Flavour::Linux6_12).unwrap();
    assert_eq!(answer.max_pfn, 0xffe0);
    assert!(
        answer
            .notices
            .iter()
            .any(|notice| notice.contains("cut at 2047 bytes"))
    );
}
