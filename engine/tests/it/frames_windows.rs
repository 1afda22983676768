//! Windows in which memory may be plugged in: their tables never cost a machine its start.

use crate::kit;

use firstlight::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{
    Content, Frames, HotplugError, NewMemory, OnlinePolicy, Refusal, Request,
};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, NodeZone, ZoneKind};
use kit::{
    GIB, HUGE_BYTES, HUGE_FRAMES, MIB, built, layout_of_nodes, layout_with_windows, page, range,
};

/// Memory of node 0 from `memory` without `reserved`, and windows by node.
fn frames(
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
) -> Frames<'static> {
    frames_with_zeros(memory, reserved, windows, &[])
}

/// [`frames`] of a machine that says which memory was never touched.
fn frames_with_zeros(
    memory: PhysRange,
    reserved: &[PhysRange],
    windows: &[(u32, PhysRange)],
    zero: &'static [FrameRange],
) -> Frames<'static> {
    let layout = layout_with_windows(memory, reserved, windows, &LayoutPolicy::DEFAULT);
    built(layout.with_zero_memory(zero))
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

/// A zone's memory comes before that of a lower one, also where windows of that zone have none.
#[test]
fn an_empty_window_leads_to_no_lower_zone() {
    let windows = [
        (0, range(16 * GIB, 17 * GIB)),
        (0, range(32 * GIB, 33 * GIB)),
    ];
    let frames = frames(range(4 * GIB, 6 * GIB), &[], &windows);
    let huge = || {
        let request = Request::new(Order::HUGE).movable();
        frames.allocate(request).unwrap().addr().get()
    };
    assert!(huge() < 6 * GIB);
    let movable = NodeZone {
        node: NodeId(0),
        zone: ZoneKind::Movable,
    };
    let plugged = NewMemory::new(range(32 * GIB, 33 * GIB)).of(movable);
    frames.add(plugged).unwrap();
    for _ in 0..GIB / HUGE_BYTES / 8 {
        assert!(huge() >= 32 * GIB);
    }
    frames.validate().unwrap();
}

/// Of memory that is plugged in nothing is known, whatever the layout says of what is there at start.
#[test]
fn memory_plugged_in_is_zero_only_if_it_is_said_so() {
    const ALL: &[FrameRange] = &[FrameRange::ALL];
    let windows = [(0, range(16 * GIB, 18 * GIB))];
    let frames = frames_with_zeros(range(MIB, 32 * HUGE_BYTES), &[], &windows, ALL);
    let zeros = frames.statistics().zero.frames;
    assert!(zeros > 0 && zeros == frames.statistics().free_huges * HUGE_FRAMES);
    frames.add(range(16 * GIB, 17 * GIB)).unwrap();
    assert_eq!(frames.statistics().zero.frames, zeros);
    frames
        .add(NewMemory::new(range(17 * GIB, 18 * GIB)).holds(Content::Zero))
        .unwrap();
    assert_eq!(frames.statistics().zero.frames, zeros + (GIB / PAGE_BYTES));
    frames.validate().unwrap();
}

/// Firmware announces more than there can be tables for: its beginning has them.
#[test]
fn a_huge_window_has_tables_from_its_beginning_on() {
    let (start, memory) = (1 << 40, range(4 * GIB, 5 * GIB));
    let frames = frames(memory, &[], &[(0, range(start, 1 << 50))]);
    assert!(frames.metadata().reserved_bytes < GIB / 100);
    // At most 1/128 of memory; a huge frame costs a word and a bitmap for each of two zones: 120 GiB with pages of 4 KiB.
    let huges = GIB / 128 / (2 * (4 + HUGE_FRAMES / 8));
    let gib = huges * HUGE_BYTES / GIB;
    let (some, more) = (gib * 4 / 5 * GIB, gib * 4 / 3 * GIB);
    frames.add(range(start, start + some)).unwrap();
    let refused = frames.add(range(start + some, start + more));
    assert!(matches!(
        refused,
        Err(HotplugError {
            why: Refusal::NoTables { .. },
            ..
        })
    ));
    frames.validate().unwrap();
}

/// What memory that is announced lacks is said to the byte, and the caller can provide it.
#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "bytes of tables with pages of 4 KiB"
)]
fn tables_that_windows_lack_can_be_provided() {
    const START: u64 = 1 << 40;
    let windows = [
        (0, range(START, START + 8 * GIB)),
        (0, range(2 * START, 1 << 50)),
    ];
    let with_share = |share| {
        let memory = range(4 * GIB, 5 * GIB);
        let layout = layout_with_windows(memory, &[], &windows, &LayoutPolicy::DEFAULT);
        built(layout.with_window_share(share))
    };
    let dimm = range(2 * START + 140 * GIB, 2 * START + 141 * GIB + 128 * MIB);
    let machine = with_share(128);
    let Err(HotplugError {
        range: refused,
        frame,
        why: Refusal::NoTables { needed_bytes },
    }) = machine.add(dimm)
    else {
        panic!("more than 1/128 of memory");
    };
    assert_eq!((refused, frame), (dimm, dimm.inner_frames().start()));
    let of = NodeZone {
        node: NodeId(0),
        zone: ZoneKind::Movable,
    };
    let error = HotplugError {
        range: dimm,
        frame,
        why: Refusal::NoTables { needed_bytes },
    };
    let text = error.to_string();
    assert!(
        text.contains(&format!("{needed_bytes} bytes of tables")),
        "{text}"
    );
    let policy = machine.zone_by_policy(dimm, NodeId(0), OnlinePolicy::Online);
    assert_eq!(policy, Err(error));
    assert_eq!(machine.add(NewMemory::new(dimm).of(of)), Err(error));
    assert_eq!(
        machine.add(NewMemory::new(dimm).of(of).policy(OnlinePolicy::Offline)),
        Err(error)
    );
    // The tables of 150 GiB in two zones, of two windows.
    assert!((150 * 1024 * 34 * 2..150 * 1024 * 35 * 2).contains(&needed_bytes));

    // The first share that allows it does, and the one before does not.
    let share = GIB / needed_bytes;
    with_share(share).add(dimm).unwrap();
    let refused = with_share(share + 1).add(dimm);
    assert!(matches!(
        refused,
        Err(HotplugError {
            why: Refusal::NoTables { .. },
            ..
        })
    ));
    // No bound, but more than there is memory: none at all, and the machine starts.
    let machine = with_share(0);
    use_all(&machine);
    assert!(matches!(
        machine.add(range(START, START + GIB)),
        Err(HotplugError { why: Refusal::NoTables { needed_bytes: needed, .. }, .. }) if needed < needed_bytes
    ));
    // What is not announced is told apart.
    for outside in [
        range(START - GIB, START),
        range(START + 8 * GIB, START + 9 * GIB),
    ] {
        let frame = outside.inner_frames().start();
        let expected = HotplugError {
            range: outside,
            frame,
            why: Refusal::OutsideSpan,
        };
        assert_eq!(machine.add(outside), Err(expected));
    }
}

/// What docs/hotplug.md says of 512 MiB.
#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "bytes of tables with pages of 4 KiB"
)]
fn room_of_512_mib_is_as_documented() {
    const START: u64 = 16 * GIB;
    for (nodes, gib) in [(1, 60), (4, 14)] {
        let windows = [(nodes - 1, range(START, START + 64 * GIB))];
        let memory = range(GIB, GIB + 512 * MIB);
        let layout = layout_of_nodes(nodes, memory, &[], &windows, &LayoutPolicy::DEFAULT);
        let machine = built(layout);
        machine.add(range(START, START + gib * GIB)).unwrap();
        let refused = machine.add(range(START + gib * GIB, START + gib * GIB + HUGE_BYTES));
        assert!(
            matches!(
                refused,
                Err(HotplugError {
                    why: Refusal::NoTables { .. },
                    ..
                })
            ),
            "{nodes}"
        );
    }
}
