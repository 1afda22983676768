//! Ranges and owned blocks on whole machines, from the layout up.

use crate::kit;

use core::cell::Cell;
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::early::EarlyFlags;
use firstlight::frames::{AllocError, Deallocate, Frames, Owned, RangeError, Request, Statistics};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, page, range, two_nodes};

/// For what no size of memory matters to: its books are short, also under Miri.
fn small() -> Machine {
    Machine::new(&[(0, range(4 * GIANT_BYTES, 4 * GIANT_BYTES + 64 * MIB))])
}

fn pages(start: u64, end: u64) -> FrameRange {
    range(start, end).inner_frames()
}

/// Frames that are free, as they should be after everything is undone.
fn unchanged(frames: &Frames<'_>, before: Statistics) {
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), before);
}

#[test]
fn contiguous_frames_stay_on_their_node_and_in_their_zone() {
    let frames = two_nodes().frames();
    let before = frames.statistics();
    let giant = Order::GIANT.frames();
    let at = |count, align, request| frames.allocate_frames(count, align, request);
    // More than a giant frame, aligned to it, where the request says.
    let three = at(3 * giant, giant, page().on(NodeId(1))).unwrap();
    assert_eq!(three.addrs(), range(5 * GIANT_BYTES, 8 * GIANT_BYTES));
    // What is left of node 1 is too short, and node 0 has no such zone as large.
    let two = page().only_on(NodeId(1));
    assert_eq!(
        at(2 * giant, 1, two),
        Err(AllocError::OutOfMemory {
            frames: 2 * giant,
            align_frames: 1,
            request: two,
            held_by_cpus: 0,
            in_work: 0,
        })
    );
    // Not exactly there: the nearest node helps, from a lower zone, never across a hole.
    let low = at(2 * giant, giant, page().on(NodeId(1))).unwrap();
    assert_eq!(low.addrs(), range(GIANT_BYTES, 3 * GIANT_BYTES));
    let dma = at(5, 1, page().zone(ZoneKind::Dma)).unwrap();
    assert!(dma.end().addr().get() <= 16 * MIB);
    // The request's order is an alignment too.
    let huge = at(3, 1, Request::new(Order::HUGE).on(NodeId(1))).unwrap();
    assert!(huge.start().is_aligned(Order::HUGE) && huge.count() == 3);
    for range in [three, low, dma, huge] {
        frames.free_frames(range).unwrap();
    }
    unchanged(&frames, before);
}

#[test]
fn alignment_may_exceed_the_size_and_a_giant_frame() {
    let frames = two_nodes().frames();
    let two_gib = 2 * Order::GIANT.frames();
    let node = page().only_on(NodeId(1));
    let sixteen = frames
        .allocate_frames(16, Order::HUGE.frames(), node)
        .unwrap();
    assert!(sixteen.start().is_aligned(Order::HUGE));
    assert_eq!(sixteen.count(), 16);
    let behind = Frame::new(sixteen.end().get());
    assert_eq!(frames.is_allocated(behind), Some(false));
    let large = frames.allocate_frames(two_gib, two_gib, node).unwrap();
    assert_eq!(large.addrs(), range(6 * GIANT_BYTES, 8 * GIANT_BYTES));
    frames.validate().unwrap();
}

#[test]
fn given_ranges_cross_zones_and_nodes_but_no_hole() {
    // Node 0 has memory above node 1 too: there its tables are, not at the border.
    let mut machine = two_nodes();
    let above = (
        0,
        range(9 * GIANT_BYTES, 10 * GIANT_BYTES),
        EarlyFlags::NONE,
    );
    machine.memory.push(above);
    let frames = machine.frames();
    let before = frames.statistics();
    // From zone DMA into DMA32, and from one node to the other.
    for range in [
        pages(15 * MIB + 3 * PAGE_BYTES, 21 * MIB),
        pages(
            5 * GIANT_BYTES - 5 * PAGE_BYTES,
            6 * GIANT_BYTES + PAGE_BYTES,
        ),
    ] {
        frames.allocate_range(range).unwrap();
        let taken = frames.statistics().free_frames;
        assert_eq!(taken, before.free_frames - range.count());
        let frame = range.start();
        let in_use = RangeError::InUse { range, frame };
        assert_eq!(frames.allocate_range(range), Err(in_use));
        frames.free_frames(range).unwrap();
        unchanged(&frames, before);
        let free = RangeError::NotAllocated { range, frame };
        assert_eq!(frames.free_frames(range), Err(free));
    }
    let range = pages(2 * GIANT_BYTES, 4 * GIANT_BYTES + MIB);
    let frame = pages(3 * GIANT_BYTES, 4 * GIANT_BYTES).start();
    let hole = Err(RangeError::OutsideMemory { range, frame });
    assert_eq!(frames.allocate_range(range), hole);
    assert_eq!(frames.free_frames(range), hole);
    assert_eq!(frames.allocate_range(FrameRange::EMPTY), Ok(()));
    unchanged(&frames, before);
}

#[test]
fn a_range_in_use_is_rolled_back_and_reported() {
    let frames = two_nodes().frames();
    let used = Frame::new(7 * GIANT_BYTES / PAGE_BYTES + 1234);
    frames
        .allocate_range(kit::block(used, Order::PAGE))
        .unwrap();
    let before = frames.statistics();
    let range = pages(6 * GIANT_BYTES, 8 * GIANT_BYTES);
    let in_use = RangeError::InUse { range, frame: used };
    assert_eq!(frames.allocate_range(range), Err(in_use));
    unchanged(&frames, before);
    let first = range.start();
    let free = RangeError::NotAllocated {
        range,
        frame: first,
    };
    assert_eq!(frames.free_frames(range), Err(free));
    unchanged(&frames, before);
}

#[test]
fn cached_frames_are_drained_or_reported() {
    let machine = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES))]);
    let frames = machine.frames_with_cpus(2);
    let free = frames.statistics().free_frames;
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let frame = cpu.allocate(page()).unwrap();
    cpu.free(frame, Order::PAGE).unwrap();
    let held = free - frames.statistics().free_frames;
    assert!(held > 0 && frames.is_allocated(frame) == Some(true));
    let one = FrameRange::block(frame, Order::PAGE).unwrap();
    let in_use = RangeError::InUse { range: one, frame };
    assert_eq!(frames.allocate_range(one), Err(in_use));
    let none = frames.allocate_frames(free, 1, page()).unwrap_err();
    assert!(
        matches!(none, AllocError::OutOfMemory { held_by_cpus, .. } if held_by_cpus == held),
        "{none}"
    );
    cpu.drain().unwrap();
    frames.allocate_range(one).unwrap();
    frames.free_frames(one).unwrap();
    let all = frames.allocate_frames(free, 1, page()).unwrap();
    assert_eq!(all.count(), free);
    frames.validate().unwrap();
}

#[test]
fn isolated_frames_can_be_freed_but_not_allocated() {
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES))]).frames();
    let before = frames.statistics();
    let huges = |start, end| {
        pages(
            4 * GIANT_BYTES + start * HUGE_BYTES,
            4 * GIANT_BYTES + end * HUGE_BYTES,
        )
    };
    let (all, held) = (huges(8, 12), huges(8, 10));
    frames.allocate_range(held).unwrap();
    let isolation = frames.isolate(all).unwrap();
    // The free half can neither be allocated nor freed again.
    let free = huges(11, 12);
    let frame = free.start();
    let in_use = RangeError::InUse { range: free, frame };
    assert_eq!(frames.allocate_range(free), Err(in_use));
    let frame = held.end();
    let twice = RangeError::NotAllocated { range: all, frame };
    assert_eq!(frames.free_frames(all), Err(twice));
    assert_eq!(frames.is_allocated(held.start()), Some(true));
    let row = frames.allocate_frames(10_000, 1, page()).unwrap();
    assert!(row.intersect(all).is_empty());
    frames.free_frames(row).unwrap();
    frames.free_frames(held).unwrap();
    assert_eq!(isolation.first_in_use(), None);
    drop(isolation);
    unchanged(&frames, before);
}

#[test]
fn invalid_requests_are_refused() {
    let frames = two_nodes().frames();
    let allocate = |count, align, request| frames.allocate_frames(count, align, request);
    assert_eq!(allocate(0, 1, page()), Err(AllocError::NoFrames));
    for align_frames in [0, 3, 24, u64::MAX] {
        let bad = AllocError::BadAlignment { align_frames };
        assert_eq!(allocate(1, align_frames, page()), Err(bad));
    }
    let nodes = AllocError::NoSuchNode {
        node: NodeId(2),
        nodes: 2,
    };
    assert_eq!(allocate(1, 1, page().on(NodeId(2))), Err(nodes));
    for (count, align) in [(u64::MAX, 1), (1 << 40, 1 << 63), (u64::MAX, 1 << 63)] {
        let error = allocate(count, align, page()).unwrap_err();
        assert!(matches!(error, AllocError::OutOfMemory { .. }));
    }
    let last = FrameRange::new(u64::MAX - 5, u64::MAX).unwrap();
    assert!(frames.allocate_range(last).is_err() && frames.free_frames(last).is_err());
}

#[test]
fn memory_up_to_the_last_address_has_ranges() {
    let top = range(u64::MAX - GIANT_BYTES + 1, u64::MAX);
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES)), (0, top)]).frames();
    let all = top.inner_frames();
    // The tables lie at the end.
    let Err(RangeError::InUse { frame, .. }) = frames.allocate_range(all) else {
        panic!("{all} is not all free");
    };
    let all = FrameRange::new(all.start().get(), frame.get()).unwrap();
    frames.allocate_range(all).unwrap();
    frames.free_frames(all).unwrap();
    let allocate = || frames.allocate_frames(all.count(), 1, page()).unwrap();
    assert_eq!(allocate().start(), Frame::new(4 * GIANT_BYTES / PAGE_BYTES));
    assert_eq!(allocate(), all);
    frames.validate().unwrap();
}

#[test]
fn an_owned_block_is_freed_when_it_is_dropped() {
    let frames = small().frames();
    let before = frames.statistics();
    let huge = Owned::allocate(&frames, Request::new(Order::HUGE)).unwrap();
    assert_eq!(frames.is_allocated(huge.frame()), Some(true));
    assert_eq!(huge.range().count(), HUGE_FRAMES);
    let (low, high) = huge.split().unwrap();
    assert_eq!((low.order(), high.order()), (low.order(), low.order()));
    assert_eq!(low.range().end(), high.frame());
    drop(low);
    assert_eq!(frames.is_allocated(high.frame()), Some(true));
    let (frame, order) = high.into_raw();
    assert_eq!(frames.is_allocated(frame), Some(true));
    drop(Owned::from_raw(frame, order, &frames));
    unchanged(&frames, before);
    let single = Owned::allocate(&frames, page()).unwrap();
    let single = single.split().unwrap_err();
    drop(single);
    unchanged(&frames, before);
    let error = Owned::allocate(&frames, page().on(NodeId(9))).unwrap_err();
    assert!(error.to_string().contains("node 9"));
}

#[test]
#[cfg(debug_assertions)]
fn an_owned_block_that_is_freed_already_reports_the_frame() {
    let frames = small().frames();
    let page = Owned::allocate(&frames, page()).unwrap();
    let name = format!("{:?}", page.frame());
    frames.free(page.frame(), Order::PAGE).unwrap();
    let reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(page)));
    let reported = *reported.unwrap_err().downcast::<String>().unwrap();
    assert!(reported.contains(&name), "{reported} does not name {name}");
}

#[test]
fn a_kernel_s_own_deallocate_has_no_size() {
    std::thread_local! {
        static BACK: Cell<u64> = const { Cell::new(0) };
    }
    #[derive(Clone, Copy)]
    struct PerCpu;
    impl Deallocate for PerCpu {
        fn deallocate(&self, frame: Frame, order: Order) {
            BACK.set(BACK.get() + frame.get() + order.frames());
        }
    }
    const { assert!(size_of::<Owned<PerCpu>>() <= 16) };
    const { assert!(size_of::<Option<Owned<&Frames<'_>>>>() <= 32) };
    let block = Owned::from_raw(Frame::new(64), Order::new(3).unwrap(), PerCpu);
    assert_eq!(format!("{block:?}"), "owned frame 0x40 of order 3");
    assert_eq!(BACK.get(), 0);
    drop(block);
    assert_eq!(BACK.get(), 64 + 8);
}

/// The words of a giant frame that is one block were never written: Miri detects a read.
#[test]
fn blocks_beside_a_giant_frame_are_freed_in_bulk() {
    let all = Machine::new(&[(0, range(4 * GIANT_BYTES, 7 * GIANT_BYTES))]).frames();
    let giant = all.allocate(Request::new(Order::GIANT)).unwrap();
    let pages = [giant, Frame::new(giant.get() + 1)];
    all.free_bulk(&pages, Order::PAGE).unwrap();
    assert_eq!(pages.map(|page| all.is_allocated(page)), [Some(false); 2]);
    // Nor of one that is free.
    let free = Frame::new(
        if giant.get() < 5 * GIANT_BYTES / PAGE_BYTES {
            5 * GIANT_BYTES
        } else {
            4 * GIANT_BYTES
        } / PAGE_BYTES,
    );
    let wild = [free, Frame::new(free.get() + 1)];
    assert!(all.free_bulk(&wild, Order::PAGE).is_err());
}
