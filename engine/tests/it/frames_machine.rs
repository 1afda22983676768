//! The allocator on whole machines, from the layout up.

use crate::kit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::early::EarlyFlags;
use firstlight::frames::{AllocError, BlockError, Frames, RangeError, Request, Statistics};
use firstlight::layout::ExtentKind;
use firstlight::node::{NodeId, ZoneKind};
use kit::{
    GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, TIB, page,
    range, two_nodes,
};

/// Orders of huge and giant frames.
const HUGE: u8 = Order::HUGE.get();
const GIANT: u8 = Order::GIANT.get();

fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

#[test]
fn requests_stay_on_their_node_and_in_their_zone() {
    let frames = two_nodes().frames();
    let at = |request| frames.allocate(request).unwrap().addr().get();
    assert!(at(page().on(NodeId(1))) >= 5 * GIANT_BYTES);
    let normal = at(page().on(NodeId(0)));
    assert!((4 * GIANT_BYTES..5 * GIANT_BYTES).contains(&normal));
    assert!((16 * MIB..4 * GIANT_BYTES).contains(&at(page().zone(ZoneKind::Dma32))));
    assert!(at(page().zone(ZoneKind::Dma)) < 16 * MIB);
    // Node 1 has no memory below 4 GiB: exactly there is out of memory, else node 0 helps.
    let low = page().on(NodeId(1)).zone(ZoneKind::Dma32);
    assert_eq!(
        frames.allocate(low.only_on(NodeId(1))),
        Err(AllocError::OutOfMemory {
            request: low.only_on(NodeId(1)),
            frames: Order::PAGE.frames(),
            align_frames: Order::PAGE.frames(),
            held_by_cpus: 0,
            in_work: 0,
        })
    );
    assert!(at(low) < 4 * GIANT_BYTES);
    frames.validate().unwrap();
}

#[test]
fn a_full_node_falls_back_by_distance() {
    // Node 2 is closer to node 0 than node 1 is.
    let mut machine = Machine::new(&[
        (0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES)),
        (1, range(5 * GIANT_BYTES, 6 * GIANT_BYTES)),
        (2, range(6 * GIANT_BYTES, 7 * GIANT_BYTES)),
    ]);
    machine.distances = vec![10, 31, 12, 31, 10, 31, 12, 31, 10];
    let frames = machine.frames();
    let nodes: Vec<_> = frames.fallback(NodeId(0)).map(|node| node.0).collect();
    assert_eq!(nodes, [0, 2, 1]);
    let huge = Request::new(Order::HUGE).on(NodeId(0));
    let mut seen = Vec::new();
    while let Ok(frame) = frames.allocate(huge) {
        let node = frame.addr().get() / GIANT_BYTES - 4;
        if seen.last() != Some(&node) {
            seen.push(node);
        }
    }
    assert_eq!(seen, [0, 2, 1]);
    frames.validate().unwrap();
}

#[test]
fn every_frame_is_allocated_exactly_once() {
    let machine = Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 64 * MIB + 0x3000)),
        (1, range(65 * MIB, 130 * MIB)),
    ]);
    let frames = machine.frames();
    let free = frames.statistics().free_frames;
    assert_eq!(free, frames.statistics().managed_frames);
    let mut seen = std::collections::BTreeSet::new();
    while let Ok(frame) = frames.allocate(page()) {
        assert!(seen.insert(frame), "{frame} twice");
    }
    assert_eq!(seen.len() as u64, free);
    let reserved: u64 = frames
        .layout()
        .extents()
        .filter(|extent| extent.kind != ExtentKind::Usable)
        .map(|extent| extent.frames.count())
        .sum();
    assert_eq!(free, frames.layout().present_frames() - reserved);
    for frame in seen {
        frames.free(frame, Order::PAGE).unwrap();
    }
    frames.validate().unwrap();
    assert_eq!(frames.statistics().free_frames, free);
}

/// A huge frame that was opened for a block, and is free again, is opened again for the next one; a page still comes from
/// what is split.
#[test]
fn a_huge_frame_opened_for_a_block_is_opened_for_the_next_one() {
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES))]).frames();
    let mut pages: Vec<_> = (0..1024)
        .map(|_| frames.allocate(page()).unwrap())
        .collect();
    let huge = |page: Frame| page.get() / HUGE_FRAMES;
    let next = loop {
        let next = frames.allocate(page()).unwrap();
        if !pages.iter().any(|&page| huge(page) == huge(next)) {
            break next; // the others are full
        }
        pages.push(next);
    };
    frames.free(next, Order::PAGE).unwrap();
    for &hole in pages.iter().step_by(2) {
        frames.free(hole, Order::PAGE).unwrap();
    }
    let is_split = |frame| pages.iter().any(|&page| huge(page) == huge(frame));
    let request = Request::new(order(6));
    let opened = frames.allocate(request).unwrap();
    assert!(!is_split(opened));
    for _ in 0..3 {
        frames.free(opened, order(6)).unwrap();
        let again = frames.allocate(request).unwrap();
        assert_eq!(again, opened);
    }
    frames.free(opened, order(6)).unwrap();
    assert!(is_split(frames.allocate(page()).unwrap()));
    frames.validate().unwrap();
}

/// Huge frames that one request after the other takes lie side by side, but for those that are not free, up to the border of
/// their giant frame: unmovable ones upwards, movable ones downwards.
#[test]
#[cfg_attr(miri, ignore = "thousands of requests")]
fn huge_frames_in_a_row_are_side_by_side() {
    for is_movable in [false, true] {
        let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 6 * GIANT_BYTES))]).frames();
        let held = Frame::new((5 * GIANT_BYTES + 20 * HUGE_BYTES) / PAGE_BYTES);
        frames
            .allocate_range(kit::block(held, Order::HUGE))
            .unwrap();
        let free = frames.statistics().free_huges;
        let taken = row_of_huge_frames(&frames, is_movable, free);
        // A giant frame begins where it was split, and at what is held.
        let apart = taken.windows(2).filter(|pair| !is_beside(pair, is_movable));
        assert!(apart.count() <= 3, "{taken:?}");
        let mut all = taken.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len() as u64, taken.len() as u64), (free, free));
        assert!(frames.allocate(Request::new(Order::HUGE)).is_err());
        frames.validate().unwrap();
    }
}

/// The giant frame beside the one that is used up was never opened: its huge words are not written before it is split.
#[test]
fn huge_frames_in_a_row_go_on_in_the_next_giant_frame() {
    for (is_movable, memory) in [
        (
            false,
            range(5 * GIANT_BYTES - 4 * HUGE_BYTES, 6 * GIANT_BYTES),
        ),
        (
            true,
            range(4 * GIANT_BYTES, 5 * GIANT_BYTES + 4 * HUGE_BYTES),
        ),
    ] {
        let frames = Machine::new(&[(0, memory)]).frames();
        let taken = row_of_huge_frames(&frames, is_movable, 6);
        assert!(
            taken.windows(2).all(|pair| is_beside(pair, is_movable)),
            "{taken:?}"
        );
    }
}

/// The numbers of up to `count` huge frames, as they are allocated.
fn row_of_huge_frames(frames: &Frames<'_>, is_movable: bool, count: u64) -> Vec<u64> {
    let request = Request::new(Order::HUGE);
    let request = if is_movable {
        request.movable()
    } else {
        request
    };
    let taken = (0..count).map_while(|_| frames.allocate(request).ok());
    taken.map(|frame| frame.get() / HUGE_FRAMES).collect()
}

/// Whether the second huge frame is the next one of a row.
fn is_beside(pair: &[u64], is_movable: bool) -> bool {
    let &[one, next] = pair else { unreachable!() };
    next == if is_movable { one - 1 } else { one + 1 }
}

#[test]
fn misuse_is_reported_and_changes_nothing() {
    let frames = two_nodes().frames();
    let frame = frames.allocate(page().on(NodeId(1))).unwrap();
    let before = frames.statistics();
    let odd = Frame::new(frame.get() | 1);
    let hole = Frame::new(3 * GIANT_BYTES / PAGE_BYTES);
    let border = Frame::new((16 * MIB).max(2 * HUGE_BYTES) / PAGE_BYTES - HUGE_FRAMES);
    for (frame, order, error) in [
        (
            odd,
            Order::HUGE,
            BlockError::Misaligned {
                frame: odd,
                order: Order::HUGE,
            },
        ),
        (
            hole,
            Order::PAGE,
            BlockError::OutsideMemory {
                frame: hole,
                order: Order::PAGE,
            },
        ),
        (
            odd,
            Order::PAGE,
            BlockError::NotAllocated {
                frame: odd,
                order: Order::PAGE,
            },
        ),
        (
            frame,
            order(3),
            BlockError::NotAllocated {
                frame,
                order: order(3),
            },
        ),
        (
            frame,
            Order::HUGE,
            // Some of it is the allocator's own tables.
            BlockError::Reserved {
                frame,
                order: Order::HUGE,
            },
        ),
        (
            border,
            Order::HUGE,
            BlockError::NotAllocated {
                frame: border,
                order: Order::HUGE,
            },
        ),
    ] {
        assert_eq!(frames.free(frame, order), Err(error), "{error}");
        assert_eq!(frames.statistics(), before);
    }
    let edge = Frame::new((u64::MAX / PAGE_BYTES) & !(GIANT_FRAMES - 1));
    assert!(matches!(
        frames.free(edge, Order::GIANT),
        Err(BlockError::OutsideMemory { .. })
    ));
    let nodes = AllocError::NoSuchNode {
        node: NodeId(2),
        nodes: 2,
    };
    assert_eq!(frames.allocate(page().on(NodeId(2))), Err(nodes));
    frames.free(frame, Order::PAGE).unwrap();
    let twice = frames.free(frame, Order::PAGE);
    assert_eq!(
        twice,
        Err(BlockError::NotAllocated {
            frame,
            order: Order::PAGE
        })
    );
    frames.validate().unwrap();
}

#[test]
fn a_block_is_allocated_at_its_frame_once() {
    let frames = two_nodes().frames();
    let block = Frame::new(6 * GIANT_BYTES / PAGE_BYTES);
    frames
        .allocate_range(kit::block(block, Order::GIANT))
        .unwrap();
    let inside = Frame::new(block.get() + 77);
    let in_use = RangeError::InUse {
        range: kit::block(inside, Order::PAGE),
        frame: inside,
    };
    assert_eq!(
        frames.allocate_range(kit::block(inside, Order::PAGE)),
        Err(in_use)
    );
    frames.free(inside, Order::PAGE).unwrap();
    frames
        .allocate_range(kit::block(inside, Order::PAGE))
        .unwrap();
    assert_eq!(frames.is_allocated(inside), Some(true));
    assert_eq!(
        frames.is_allocated(Frame::new(3 * GIANT_BYTES / PAGE_BYTES)),
        None
    );
    frames.free(block, Order::GIANT).unwrap();
    frames.validate().unwrap();
}

#[test]
fn reserved_and_untouchable_memory_stays_out_until_it_is_freed() {
    let mut machine = two_nodes();
    machine.memory.push((
        1,
        range(9 * GIANT_BYTES, 10 * GIANT_BYTES),
        EarlyFlags::UNACCEPTED,
    ));
    machine.boot.push(range(
        8 * GIANT_BYTES + 100,
        8 * GIANT_BYTES + PAGE_BYTES + 900,
    ));
    let frames = machine.frames();
    let reserved = Frame::new(8 * GIANT_BYTES / PAGE_BYTES);
    assert_eq!(frames.is_allocated(reserved), Some(true));
    assert_eq!(
        frames.is_allocated(Frame::new(9 * GIANT_BYTES / PAGE_BYTES + 5)),
        Some(true)
    );
    // Node 1 holds 5 GiB: one is not accepted, one holds the reserved frames and the tables.
    assert_eq!(
        frames
            .zone(NodeId(1), ZoneKind::Normal)
            .statistics()
            .free_giants,
        3
    );
    // Memory reserved for boot is freed like any other.
    frames.free(reserved, order(1)).unwrap();
    frames.validate().unwrap();
}

/// Every frame that is reserved for ever: the allocator's tables, what the kernel reserved,
/// what must not be mapped; by itself and as part of larger blocks.
#[test]
fn memory_reserved_for_ever_cannot_be_freed() {
    let mut machine = two_nodes();
    machine.reserved.push(range(
        8 * GIANT_BYTES + 100,
        8 * GIANT_BYTES + PAGE_BYTES + 900,
    ));
    let no_map = range(9 * GIANT_BYTES, 10 * GIANT_BYTES);
    machine.memory.push((1, no_map, EarlyFlags::NOMAP));
    let frames = machine.frames_with_cpus(1);
    let before = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut refused = 0;
    let layout = frames.layout();
    for extent in layout.extents().filter(|one| !one.kind.may_become_free()) {
        let (first, last) = (extent.frames.start(), extent.frames.end().get() - 1);
        for frame in [first, Frame::new(last)] {
            for number in [0, 3, HUGE, HUGE + 1, GIANT] {
                let (start, order) = (frame.get() >> number << number, order(number));
                let start = Frame::new(start);
                let error = frames.free(start, order).unwrap_err();
                let outside = BlockError::OutsideMemory {
                    frame: start,
                    order,
                };
                let partly = BlockError::NotAllocated {
                    frame: start,
                    order,
                };
                let reserved = BlockError::Reserved {
                    frame: start,
                    order,
                };
                assert!([outside, partly, reserved].contains(&error), "{error}");
                refused += u32::from(error == reserved);
                assert!(cpu.free(start, order).is_err());
            }
        }
        let range = extent.frames;
        let error = frames.free_frames(range).unwrap_err();
        assert!(matches!(error, RangeError::Reserved { frame, .. } if frame == first));
        assert!(cpu.free_frames(range).is_err());
        let both = [first, Frame::new(last)];
        assert!(frames.free_bulk(&both, Order::PAGE).is_err());
    }
    assert!(refused > 10);
    drop(cpu);
    assert_eq!(frames.statistics(), before);
    frames.validate().unwrap();
}

#[test]
fn a_sparse_machine_pays_for_its_memory_not_for_its_span() {
    // 512 GiB in 16 nodes, one every 2 TiB.
    let rows = (0..16).map(|node| {
        let start = u64::from(node) * 2 * TIB + 4 * GIB;
        (node, range(start, start + 32 * GIB))
    });
    let frames = Machine::new(&rows.collect::<Vec<_>>()).frames();
    let statistics = frames.statistics();
    assert_eq!(statistics.free_frames, statistics.managed_frames);
    for segment in frames.layout().segments() {
        assert!(frames.is_allocated(segment.frames.start()).is_some());
    }
    assert_eq!(frames.statistics(), statistics, "the same once started");
    let metadata = frames.metadata();
    let pages = 512 * GIB / PAGE_BYTES;
    assert!(metadata.reserved_bytes * 10 <= pages * 3, "{metadata:?}");
    assert!(
        metadata.written_bytes <= 16 * 512 + 8192 * (16 + 16 + 17),
        "{metadata:?}"
    );
    assert!(
        frames
            .allocate(Request::new(Order::GIANT).on(NodeId(15)))
            .unwrap()
            .addr()
            .get()
            > 30 * TIB
    );
}

#[test]
fn interleaved_nodes_and_slivers_work() {
    // 4 MiB stripes of two nodes, and single pages between holes.
    let mut rows: Vec<_> = (0..64u16)
        .map(|at| {
            let start = 4 * GIANT_BYTES + u64::from(at) * 4 * MIB;
            (at % 2, range(start, start + 4 * MIB))
        })
        .collect();
    rows.extend((0..100).map(|at| {
        let start = 5 * GIANT_BYTES + at * 0x5000;
        (1, range(start, start + 0x1000))
    }));
    let frames = Machine::new(&rows).frames();
    let mut counts = [0; 2];
    for node in [0, 1] {
        while let Ok(frame) = frames.allocate(page().only_on(NodeId(node))) {
            let addr = frame.addr().get();
            let owner = if addr < 5 * GIANT_BYTES {
                (addr - 4 * GIANT_BYTES) / (4 * MIB) % 2
            } else {
                1
            };
            assert_eq!(owner, u64::from(node));
            counts[usize::from(node)] += 1;
        }
    }
    assert_eq!(
        counts.iter().sum::<u64>(),
        frames.statistics().managed_frames
    );
    frames.validate().unwrap();
}

#[test]
fn frames_move_between_threads() {
    let frames = two_nodes().frames();
    let free = frames.statistics();
    std::thread::scope(|scope| {
        // Bounded: a slow receiver must not exhaust memory.
        let (send, receive) = std::sync::mpsc::sync_channel(16);
        for node in [0, 1] {
            let (frames, send) = (&frames, send.clone());
            scope.spawn(move || {
                for at in 0..if cfg!(miri) { 20 } else { 5000u32 } {
                    let order = order([0, 0, 3, HUGE, HUGE + 2][at as usize % 5]);
                    let request = Request::new(order).on(NodeId(node));
                    send.send((frames.allocate(request).unwrap(), order))
                        .unwrap();
                }
            });
        }
        drop(send);
        let frames = &frames;
        scope.spawn(move || {
            for (frame, order) in receive {
                frames.free(frame, order).unwrap();
            }
        });
    });
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
fn unknown_nodes_and_frames_beyond_all_addresses_are_harmless() {
    let frames = two_nodes().frames();
    assert_eq!(frames.fallback(NodeId(7)).count(), 2);
    for frame in [
        u64::MAX,
        !(GIANT_FRAMES - 1),
        u64::MAX / PAGE_BYTES + 1 - GIANT_FRAMES,
    ] {
        let frame = Frame::new(frame);
        assert!(frames.free(frame, Order::PAGE).is_err());
        let page = FrameRange::block(frame, Order::PAGE);
        assert!(page.is_none_or(|page| frames.allocate_range(page).is_err()));
        assert_eq!(frames.is_allocated(frame), None);
    }
    // No address is made up for what has none.
    assert_eq!(Frame::new(u64::MAX / PAGE_BYTES + 1).checked_addr(), None);
    assert!(std::panic::catch_unwind(|| Frame::new(u64::MAX / PAGE_BYTES + 1).addr()).is_err());
    let all = range(0x1000, u64::MAX).outer_frames();
    assert_eq!(all.checked_addrs(), None);
    assert!(std::panic::catch_unwind(|| all.addrs()).is_err());
}

#[test]
fn memory_up_to_the_last_address_works() {
    let top = range(u64::MAX - GIANT_BYTES + 1, u64::MAX);
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES)), (0, top)]).frames();
    let mut blocks = 0;
    while frames.allocate(Request::new(Order::HUGE)).is_ok() {
        blocks += 1;
    }
    assert!(blocks > 2 * GIANT_BYTES / HUGE_BYTES - 24, "{blocks}");
    frames.validate().unwrap();
}

#[test]
fn a_machine_of_many_nodes_reports_out_of_memory() {
    let rows: Vec<_> = (0..512)
        .map(|node| {
            let start = 4 * GIANT_BYTES + u64::from(node) * MIB;
            (node, range(start, start + MIB))
        })
        .collect();
    let frames = Machine::new(&rows).frames();
    let huge = Request::new(Order::HUGE).on(NodeId(300));
    assert_eq!(
        frames.allocate(huge),
        Err(AllocError::OutOfMemory {
            request: huge,
            frames: Order::HUGE.frames(),
            align_frames: Order::HUGE.frames(),
            held_by_cpus: 0,
            in_work: 0,
        })
    );
    assert_eq!(frames.fallback(NodeId(300)).count(), 512);
}

#[test]
fn bulk_allocates_what_single_requests_would_and_frees_it_all() {
    let frames = two_nodes().frames();
    let free = frames.statistics();
    for (request, count) in [
        (page(), 100_000),
        (page().movable().only_on(NodeId(1)), 70_001),
        (Request::new(Order::HUGE), (GIANT_HUGES + 188) as usize),
        (Request::new(order(4)), 99),
        (page().zone(ZoneKind::Dma).only_on(NodeId(0)), 77),
    ] {
        let mut blocks = vec![Frame::new(0); count];
        assert_eq!(frames.allocate_bulk(request, &mut blocks), Ok(count));
        let taken = count as u64 * request.order().frames();
        assert_eq!(frames.statistics().free_frames, free.free_frames - taken);
        for &block in &blocks {
            assert!(block.is_aligned(request.order()));
            assert_eq!(frames.is_allocated(block), Some(true));
        }
        frames.validate().unwrap();
        // One is freed twice; the others are freed all the same.
        frames.free(blocks[7], request.order()).unwrap();
        let refused = Err(BlockError::NotAllocated {
            frame: blocks[7],
            order: request.order(),
        });
        assert_eq!(frames.free_bulk(&blocks, request.order()), refused);
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
    // All there is, and no more.
    let on_one = page().only_on(NodeId(1));
    let all = usize::try_from(4 * GIANT_BYTES / PAGE_BYTES).unwrap();
    let mut blocks = vec![Frame::new(0); all + 5];
    let count = frames.allocate_bulk(on_one, &mut blocks).unwrap();
    assert!(count < all && frames.allocate(on_one).is_err());
    let distinct: std::collections::BTreeSet<_> = blocks[..count].iter().collect();
    assert_eq!(distinct.len(), count);
    blocks[..count].reverse();
    frames.free_bulk(&blocks[..count], Order::PAGE).unwrap();
    assert_eq!(frames.statistics(), free);
    let nowhere = page().on(NodeId(9));
    assert!(frames.allocate_bulk(nowhere, &mut blocks).is_err());
    frames.validate().unwrap();
}

/// Each free frame counts once, in the largest aligned block it is part of.
#[test]
fn free_blocks_are_counted_by_order() {
    let giant = Order::GIANT;
    let frames = Machine::new(&[(0, range(4 * giant.bytes(), 6 * giant.bytes()))]).frames();
    let count = || frames.zone(NodeId(0), ZoneKind::Normal).free_blocks();
    let sum =
        |blocks: &[u64]| -> u64 { (0..).zip(blocks).map(|(order, count)| count << order).sum() };
    let at_start = count();
    assert_eq!(sum(&at_start), frames.statistics().free_frames);
    let last = usize::from(giant.get());
    assert_eq!(at_start[last], 1, "the tables lie in the other");
    // A page in the middle of the free giant frame leaves one block of each order.
    let page = Frame::new(4 * giant.frames() + 77);
    frames
        .allocate_range(kit::block(page, Order::PAGE))
        .unwrap();
    let split = count();
    let expected: Vec<_> = (0..last)
        .map(|order| at_start[order] + 1)
        .chain([0])
        .collect();
    assert_eq!(split[..], expected[..]);
    frames.free(page, Order::PAGE).unwrap();
    assert_eq!(count(), at_start);
    let none = frames.zone(NodeId(1), ZoneKind::Normal).free_blocks();
    assert!(none.iter().all(|&count| count == 0), "{none:?}");
}

/// A row for each zone that has memory, with the counts of `free_blocks`; Linux's own parsers take the
/// words before the counts.
#[test]
fn rows_of_free_blocks_are_those_of_buddyinfo() {
    let frames = Machine::new(&[
        (0, range(MIB, 32 * MIB)),
        (0, range(4 * GIANT_BYTES, 6 * GIANT_BYTES)),
        (1, range(6 * GIANT_BYTES, 7 * GIANT_BYTES)),
    ])
    .frames();
    frames.allocate(page()).unwrap();
    let rows: Vec<_> = frames.zones().map(|zone| zone.to_string()).collect();
    let zones = [
        (0, ZoneKind::Dma),
        (0, ZoneKind::Dma32),
        (0, ZoneKind::Normal),
        (1, ZoneKind::Normal),
    ];
    assert_eq!(rows.len(), zones.len(), "{rows:?}");
    for (row, (node, zone)) in rows.iter().zip(zones) {
        let (head, counts) = row.split_at(row.find("zone").unwrap() + 13);
        assert_eq!(head, format!("Node {node}, zone {zone:>8}"));
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        assert_eq!(counts, frames.zone(NodeId(node), zone).free_blocks());
    }
    assert!(rows[3].starts_with("Node 1, zone   Normal "), "{rows:?}");
}

/// What is in use is the rest, whatever else is counted, and never below zero.
#[test]
fn statistics_are_one_line() {
    const PAGE_KIB: u64 = PAGE_BYTES / 1024;
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 6 * GIANT_BYTES))]).frames();
    let seen = frames.statistics();
    let line = seen.to_string();
    let rest = seen.managed_frames - seen.free_frames;
    assert!(
        line.starts_with(&format!("{} KiB: ", seen.managed_frames * PAGE_KIB)),
        "{line}"
    );
    assert!(
        line.ends_with(&format!(
            ", 0 KiB in caches, {} KiB in use",
            rest * PAGE_KIB
        )),
        "{line}"
    );
    let huges = format!(
        "({} times {} MiB, {} GiB of these whole; ",
        seen.free_huges,
        HUGE_BYTES / MIB,
        seen.free_giants * GIANT_BYTES / GIB
    );
    assert!(line.contains(&huges), "{line}");
    let beside_others = Statistics {
        managed_frames: 2,
        free_frames: 2,
        cached_frames: 1,
        in_work_frames: 1,
        ..Statistics::default()
    };
    let line = beside_others.to_string();
    assert!(
        line.ends_with(&format!(
            "{PAGE_KIB} KiB in caches, 0 KiB in use, {PAGE_KIB} KiB in work"
        )),
        "{line}"
    );
    let all = Statistics {
        managed_frames: u64::MAX,
        ..Statistics::default()
    };
    assert!(
        all.to_string()
            .ends_with(&format!("{} KiB in use", u64::MAX))
    );
}
