//! Windows in which memory may be plugged in: their tables never cost a machine its start.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]

mod kit;

use firstlight::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory};
use firstlight::frames::{AddError, Content, Frames};
use firstlight::layout::{Layout, LayoutPolicy};
use firstlight::node::NodeId;
use firstlight::topology::{TopologyBuilder, Trust};
use kit::{GIB, MIB, Uninitialised, boot_slots, page, range};

/// Memory of node 0 from `memory` without `reserved`, and windows by node.
fn frames(
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
) -> Frames<'static> {
    frames_with_zeros(memory, reserved, windows, &[])
}

/// The same, of a machine that says which memory was never touched.
fn frames_with_zeros(
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
    zero: &'static [FrameRange],
) -> Frames<'static> {
    let slots = boot_slots(reserved.len() + 8, 8);
    let mut early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
    early.add(memory, EarlyFlags::NONE).unwrap();
    for &range in reserved {
        early.reserve(range, "test").unwrap();
    }
    let mut builder = TopologyBuilder::new(slots.topology);
    let home = builder.node_of(0).unwrap();
    builder.add_memory(home, memory, false).unwrap();
    for &(domain, window) in windows {
        let node = builder.node_of(domain).unwrap();
        builder.add_memory(node, window, true).unwrap();
    }
    let mut topology = builder.finish(&mut |notice| panic!("{notice}"));
    topology
        .apply(&mut early, Trust::Repair, &mut |_| {})
        .unwrap();
    let layout = Layout::build(early, topology, &LayoutPolicy::DEFAULT, slots.layout).unwrap();
    let platform: &'static Uninitialised = Box::leak(Box::default());
    Frames::build(layout.with_zero_memory(zero), platform).unwrap()
}

/// Every page of the machine once, then all of them back.
fn use_all(frames: &Frames<'_>) {
    frames.validate().unwrap();
    let free = frames.statistics().free_frames;

    let pages: Vec<_> = std::iter::from_fn(|| frames.allocate(page()).ok()).collect();
    assert_eq!(pages.len() as u64, free);
    for page in pages {
        frames.free(page, Order::PAGE).unwrap();
    }
    frames.validate().unwrap();
    assert_eq!(frames.statistics().free_frames, free);
}

#[test]
fn a_window_of_a_node_without_memory_is_no_memory() {
    let windows = [
        (5, range(16 * GIB, 17 * GIB)),
        (9, range(32 * GIB, 33 * GIB)),
    ];
    let frames = frames(range(MIB, 64 * MIB), &[], &windows);
    use_all(&frames);
    assert_eq!(frames.allocate(page().on(NodeId(1))).map(|_| ()), Ok(()));
}

#[test]
fn a_window_whose_tables_find_no_space_gets_none() {
    let memory = range(MIB, 65 * MIB);
    // Free pieces of 64 KiB, reserved ones between them: enough for the machine's own tables,
    // too little for those of 7 GiB.
    let pieces = (MIB..65 * MIB).step_by(128 << 10);
    let reserved: Vec<_> = pieces
        .map(|start| range(start, start + (64 << 10)))
        .collect();
    let frames = frames(memory, &reserved, &[(0, range(4 * GIB, 11 * GIB))]);
    assert!(frames.statistics().free_frames * PAGE_BYTES > 30 * MIB);
    use_all(&frames);
}

/// Of memory that is plugged in nothing is known, whatever the layout says of what is there at start.
#[test]
fn memory_plugged_in_is_zero_only_if_it_is_said_so() {
    const ALL: &[FrameRange] = &[FrameRange::ALL];
    let windows = [(0, range(16 * GIB, 18 * GIB))];
    let frames = frames_with_zeros(range(MIB, 64 * MIB), &[], &windows, ALL);
    let zeros = frames.statistics().zero.frames;
    assert!(zeros > 0 && zeros == frames.statistics().free_frames);
    frames.add(range(16 * GIB, 17 * GIB)).unwrap();
    assert_eq!(frames.statistics().zero.frames, zeros);
    frames
        .add_with(range(17 * GIB, 18 * GIB), Content::Zero)
        .unwrap();
    assert_eq!(frames.statistics().zero.frames, zeros + (GIB / PAGE_BYTES));
    frames.validate().unwrap();
}

/// Firmware announces more than there can be tables for: its beginning has them.
#[test]
fn a_huge_window_has_tables_from_its_beginning_on() {
    let (start, memory) = (1 << 40, range(4 * GIB, 5 * GIB));
    let frames = frames(memory, &[], &[(0, range(start, 1 << 50))]);
    // At most 1/256 of memory, 66 bytes a MiB.
    assert!(frames.metadata().reserved_bytes < GIB / 200);
    frames.add(range(start, start + 48 * GIB)).unwrap();
    let refused = frames.add(range(start + 48 * GIB, start + 80 * GIB));
    assert!(matches!(refused, Err(AddError::OutsideSpan { .. })));
    frames.validate().unwrap();
}
