//! What each frame is: extents against rules applied frame by frame, and the
//! windows in which memory may be plugged in later.

use crate::kit;

use std::sync::atomic::AtomicU64;

use firstlight::addr::{Frame, PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory, EarlyRequest};
use firstlight::layout::{Extent, ExtentKind, Layout, LayoutPolicy, LayoutStorage};
use firstlight::memmap::{Descriptor, Memmap, MemmapPolicy, PageDescriptor, SectionPlace};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::topology::{Topology, TopologyBuilder, TopologyStorage, Trust};
use kit::{GIB, MIB, Machine, Uninitialised, boot_slots, range};
use proptest::prelude::*;

const PAGE: u64 = PAGE_BYTES;
/// A quarter of a page: 1 KiB of one of 4 KiB.
const QUARTER: u64 = PAGE / 4;

/// Early memory, and the storage of a layout of at most two nodes.
fn early(
    ranges: usize,
) -> (
    EarlyMemory<'static>,
    TopologyStorage<'static>,
    LayoutStorage<'static>,
) {
    let slots = boot_slots(ranges, 2);
    let early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
    (early, slots.topology, slots.layout)
}

/// A layout of one node.
fn layout_of(
    early: EarlyMemory<'static>,
    nodes: TopologyStorage<'static>,
    storage: LayoutStorage<'static>,
) -> Layout<'static> {
    let topology = Topology::single(nodes.nodes, 1).unwrap();
    Layout::build(early, topology, &LayoutPolicy::DEFAULT, storage).unwrap()
}

/// A reservation: first byte and length in quarters of a page, and whether it is for boot only.
type Row = (u64, u64, bool);

/// The rules, for one frame.
fn kind_of(frame: u64, memory: EarlyFlags, rows: &[Row]) -> ExtentKind {
    let meets = |row: &&Row| {
        row.0 * QUARTER < (frame + 1) * PAGE && (row.0 + row.1) * QUARTER > frame * PAGE
    };
    let for_ever = rows.iter().filter(meets).any(|row| !row.2);
    let for_boot = rows.iter().filter(meets).any(|row| row.2);
    for (flag, kind) in [
        (EarlyFlags::NOMAP, ExtentKind::NoMap),
        (EarlyFlags::DRIVER_MANAGED, ExtentKind::DriverManaged),
        (EarlyFlags::PRESERVED, ExtentKind::Preserved),
    ] {
        if memory.contains(flag) {
            return kind;
        }
    }
    match (for_ever, for_boot, memory.contains(EarlyFlags::UNACCEPTED)) {
        (true, _, _) | (_, true, true) => ExtentKind::Reserved,
        (_, true, false) => ExtentKind::Freeable,
        (_, _, true) => ExtentKind::Unaccepted,
        _ => ExtentKind::Usable,
    }
}

fn flags() -> impl Strategy<Value = EarlyFlags> {
    prop_oneof![
        3 => Just(EarlyFlags::NONE),
        2 => Just(EarlyFlags::UNACCEPTED),
        1 => Just(EarlyFlags::NOMAP),
        1 => Just(EarlyFlags::DRIVER_MANAGED | EarlyFlags::UNACCEPTED),
        1 => Just(EarlyFlags::PRESERVED | EarlyFlags::UNACCEPTED),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_frame_is_what_the_rules_say(
        memory in prop::collection::vec((0..3u64, 1..12u64, flags()), 1..6),
        rows in prop::collection::vec((0..260u64, 1..24u64, any::<bool>()), 0..10),
    ) {
        let (mut early, nodes, storage) = early(64);
        let mut at = 1;
        let mut frames = Vec::new();
        for (gap, count, flags) in memory {
            let (start, end) = (at + gap, at + gap + count);
            early.add(range(start * PAGE, end * PAGE), flags).unwrap();
            frames.extend((start..end).map(|frame| (frame, flags)));
            at = end;
        }
        for &(start, length, for_boot) in &rows {
            let bytes = range(start * QUARTER, (start + length) * QUARTER);
            if for_boot {
                early.reserve_freeable(bytes, "boot").unwrap();
            } else {
                early.reserve(bytes, "ever").unwrap();
            }
        }
        // Bytes reserved both ways are reserved for ever, in whichever order.
        let layout = layout_of(early, nodes, storage);
        let mut left = frames.iter();
        let mut before: Option<Extent> = None;
        for extent in layout.extents() {
            for frame in extent.frames.start().get()..extent.frames.end().get() {
                let &(expected, flags) = left.next().expect("no more frames than memory");
                prop_assert_eq!(frame, expected);
                prop_assert_eq!(extent.kind, kind_of(frame, flags, &rows), "frame {:#x}", frame);
            }
            if let Some(before) = before {
                let touch = before.frames.end() == extent.frames.start();
                let same = (before.node, before.zone, before.kind) == (extent.node, extent.zone, extent.kind);
                prop_assert!(!(touch && same), "{:?} and {:?} are one", before, extent);
            }
            before = Some(extent);
        }
        prop_assert!(left.next().is_none(), "memory without an extent");
    }
}

#[test]
fn owners_are_known_by_frame() {
    let (mut early, nodes, storage) = early(16);
    early.add(range(MIB, 16 * MIB), EarlyFlags::NONE).unwrap();
    early
        .reserve(range(2 * MIB, 3 * MIB + 1), "kernel")
        .unwrap();
    early
        .reserve_freeable(range(3 * MIB + 1, 4 * MIB), "loader")
        .unwrap();
    let mut layout = layout_of(early, nodes, storage);
    let request = EarlyRequest::new(PAGE, PAGE, "scratch").freeable();
    let scratch = layout.allocate(&request).unwrap();
    let kinds: Vec<_> = layout
        .extents()
        .map(|extent| (extent.kind, layout.owner_of(extent.frames.start())))
        .collect();
    // The frame both have a byte of is the kernel's.
    assert_eq!(
        kinds,
        [
            (ExtentKind::Usable, None),
            (ExtentKind::Reserved, Some("kernel")),
            (ExtentKind::Freeable, Some("loader")),
            (ExtentKind::Usable, None),
            (ExtentKind::Freeable, Some("scratch")),
        ]
    );
    assert_eq!(layout.owner_of(scratch.start().frame()), Some("scratch"));
    assert_eq!(layout.owner_of(Frame::new(u64::MAX)), None);
}

/// Memory at 0..2 GiB on node 0 and 4..5 GiB on node 1; node 1 may grow to 8 GiB
/// and has a window at 16 GiB, node 0 has one of 1 GiB across the end of DMA32.
fn pluggable(policy: &LayoutPolicy) -> Layout<'static> {
    let (mut early, nodes, storage) = early(32);
    for memory in [range(MIB, 2 * GIB), range(4 * GIB + MIB, 5 * GIB)] {
        early.add(memory, EarlyFlags::NONE).unwrap();
    }
    let mut builder = TopologyBuilder::new(nodes);
    for (node, memory, hotplug) in [
        (0, range(0, 2 * GIB), false),
        (0, range(2 * GIB, 3 * GIB), false),
        (0, range(4 * GIB - 512 * MIB, 4 * GIB + MIB), true),
        (1, range(4 * GIB + MIB, 8 * GIB), true),
        (1, range(16 * GIB, 17 * GIB), true),
    ] {
        let node = builder.node_of(node).unwrap();
        builder.add_memory(node, memory, hotplug).unwrap();
    }
    let mut topology = builder.finish(&mut |notice| panic!("{notice}"));
    topology
        .apply(&mut early, Trust::Repair, &mut |notice| panic!("{notice}"))
        .unwrap();
    Layout::build(early, topology, policy, storage).unwrap()
}

#[test]
fn windows_are_memory_announced_and_absent() {
    let absent = |start: u64, end: u64, node, zone| Extent {
        frames: range(start, end).inner_frames(),
        node: NodeId(node),
        zone,
        kind: ExtentKind::Absent,
    };
    let layout = pluggable(&LayoutPolicy::DEFAULT);
    let windows: Vec<_> = layout.windows().collect();
    // Announced but not hot-pluggable, 2..3 GiB is none.
    assert_eq!(
        windows,
        [
            absent(4 * GIB - 512 * MIB, 4 * GIB, 0, ZoneKind::Dma32),
            absent(4 * GIB, 4 * GIB + MIB, 0, ZoneKind::Normal),
            absent(5 * GIB, 8 * GIB, 1, ZoneKind::Normal),
            absent(16 * GIB, 17 * GIB, 1, ZoneKind::Normal),
        ]
    );
    let movable = LayoutPolicy {
        movable_node: true,
        ..LayoutPolicy::DEFAULT
    };
    let layout = pluggable(&movable);
    assert!(
        layout
            .windows()
            .all(|window| window.zone == ZoneKind::Movable)
    );
    assert_eq!(layout.windows().count(), 3);
}

/// Another type of descriptor.
struct Word(#[expect(dead_code, reason = "never read")] AtomicU64);
// SAFETY: 8 bytes without padding.
unsafe impl Descriptor for Word {
    fn template(_: SectionPlace) -> Self {
        Self(AtomicU64::new(0))
    }
}

#[test]
fn memory_of_descriptors_is_never_allocated_twice() {
    let mut layout = Machine::new(&[(0, range(MIB, 256 * MIB))]).layout();
    let platform = Box::leak(Box::new(Uninitialised::default()));
    let policy = MemmapPolicy::default();
    let _first = Memmap::<PageDescriptor>::reserve(&mut layout, platform, policy).unwrap();
    let taken = |platform: &Uninitialised| -> Vec<PhysRange> {
        let mapped = platform.mapped.borrow();
        let ranges = mapped
            .iter()
            .map(|(&start, &bytes)| range(start, start + bytes));
        ranges.collect()
    };
    let before = taken(platform);
    // Reserving a range below them again does not free it.
    for &range in &before {
        layout.reserve_freeable(range, "anew").unwrap();
    }
    for &range in &before {
        let mut extents = layout.extents();
        let frames = range.outer_frames();
        let at = extents
            .find(|extent| extent.frames.contains(frames.start()))
            .unwrap();
        assert!(at.kind == ExtentKind::Reserved && at.frames.covers(frames));
    }
    let _second = Memmap::<Word>::reserve(&mut layout, platform, policy).unwrap();
    let after = taken(platform);
    assert!(after.len() > before.len());
    for (at, one) in after.iter().enumerate() {
        assert!(!after[at + 1..].iter().any(|other| other.overlaps(*one)));
    }
}
