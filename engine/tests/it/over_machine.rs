//! Memory that comes range by range: what is refused, and CPUs that notice what came.

use crate::kit;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{
    BlockError, BuildError, CpuError, Exhausted, Frames, Hooks, HotplugError, RangeError, Refusal,
    Request,
};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, range};

const PAGE: Request = Request::new(Order::PAGE);

fn span(bytes: PhysRange) -> FrameRange {
    bytes.inner_frames()
}

/// Frames over `bytes`, with space for so many absent ranges.
fn over<'m>(bytes: PhysRange, ranges: usize) -> Frames<'m> {
    let needed = usize::try_from(Frames::bytes_for(span(bytes), ranges).unwrap()).unwrap();
    Frames::over(span(bytes), Box::leak(Box::new_uninit_slice(needed))).unwrap()
}

#[test]
fn memory_is_there_once_it_is_added() {
    let frames = over(range(0, 8 * GIANT_BYTES), 8);
    assert!(frames.allocate(PAGE).is_err());
    assert_eq!(frames.statistics(), Default::default());
    frames
        .add(range(5 * GIANT_BYTES, 5 * GIANT_BYTES + MIB))
        .unwrap();
    let first = frames.allocate(PAGE).unwrap();
    assert_eq!(first, Frame::new(5 * GIANT_BYTES / PAGE_BYTES));
    // Neighbours become one block, whatever the order they come in.
    frames
        .add(range(5 * GIANT_BYTES + 3 * MIB, 6 * GIANT_BYTES))
        .unwrap();
    frames
        .add(range(5 * GIANT_BYTES + MIB, 5 * GIANT_BYTES + 3 * MIB))
        .unwrap();
    frames.free(first, Order::PAGE).unwrap();
    assert_eq!(frames.allocate(Request::new(Order::GIANT)).unwrap(), first);
    let low = PAGE.zone(ZoneKind::Dma);
    assert!(frames.allocate(low).is_err());
    frames.add(range(MIB, 2 * MIB)).unwrap();
    assert_eq!(frames.allocate(low).unwrap(), Frame::new(MIB / PAGE_BYTES));
    let statistics = frames.statistics();
    assert_eq!(statistics.managed_frames, (GIANT_BYTES + MIB) / PAGE_BYTES);
    assert_eq!(statistics.free_frames, MIB / PAGE_BYTES - 1);
    frames.validate().unwrap();
}

#[test]
fn what_was_never_added_is_freed_only_if_adopted() {
    let frames = over(range(0, GIB), 8);
    let tables = range(MIB, 2 * MIB);
    let first = Frame::new(MIB / PAGE_BYTES);
    // No memory at all so far, then memory beside it.
    let refused = frames.free(first, Order::PAGE);
    assert!(matches!(refused, Err(BlockError::OutsideMemory { .. })));
    frames.add(range(16 * MIB, GIB)).unwrap();
    frames.add(range(2 * MIB, 3 * MIB)).unwrap();
    assert_eq!(frames.is_allocated(first), None, "not yet");
    let refused = frames.free(first, Order::PAGE);
    assert!(matches!(refused, Err(BlockError::Reserved { .. })));
    let refused = frames.free_frames(span(tables));
    assert!(matches!(refused, Err(RangeError::Reserved { frame, .. }) if frame == first));

    let free = frames.statistics().free_frames;
    frames.adopt(tables).unwrap();
    assert_eq!(frames.statistics().free_frames, free);
    frames.free(first, Order::PAGE).unwrap();
    frames
        .free_frames(FrameRange::new(first.get() + 1, 2 * MIB / PAGE_BYTES).unwrap())
        .unwrap();
    assert_eq!(frames.statistics().free_frames, free + MIB / PAGE_BYTES);
    assert!(frames.free(first, Order::PAGE).is_err(), "freed twice");
    frames.validate().unwrap();
}

#[test]
fn bad_ranges_are_refused_and_change_nothing() {
    let frames = over(range(MIB, GIB), 3);
    frames.add(range(16 * MIB, 32 * MIB)).unwrap();
    let before = frames.statistics();
    let bad = |bytes: PhysRange| {
        let (added, adopted) = (frames.add(bytes), frames.adopt(bytes));
        assert_eq!(added, adopted);
        assert_eq!(frames.statistics(), before);
        added.unwrap_err()
    };
    let misaligned = [
        range(64 * MIB + 1, 65 * MIB),
        range(64 * MIB, 64 * MIB + PAGE_BYTES - 1),
    ];
    for range in [range(64 * MIB, 64 * MIB)].iter().chain(&misaligned) {
        assert_eq!(bad(*range), kit::refused(*range, Refusal::Misaligned));
    }
    for (start, end, outside) in [
        (0, 2 * MIB, 0),
        (GIB - MIB, GIB + MIB, GIB),
        (1 << 60, (1 << 60) + MIB, 1 << 60),
        (0, !(PAGE_BYTES - 1), 0),
    ] {
        let (range, frame) = (range(start, end), Frame::new(outside / PAGE_BYTES));
        assert_eq!(
            bad(range),
            HotplugError {
                range,
                frame,
                why: Refusal::OutsideSpan
            }
        );
    }
    for (start, end, present) in [
        (16 * MIB, 32 * MIB, 16 * MIB),
        (15 * MIB, 17 * MIB, 16 * MIB),
        (31 * MIB, 33 * MIB, 31 * MIB),
        (2 * MIB, 64 * MIB, 16 * MIB),
    ] {
        let (range, frame) = (range(start, end), Frame::new(present / PAGE_BYTES));
        assert_eq!(
            bad(range),
            HotplugError {
                range,
                frame,
                why: Refusal::Present
            }
        );
    }
    // Each leaves one hole more, until the list is full: of three ranges, or what was left over.
    let full = (0..400).find_map(|at| {
        let (range, before) = (
            range((64 + 2 * at) * MIB, (65 + 2 * at) * MIB),
            frames.statistics(),
        );
        let error = frames.add(range).err()?;
        assert_eq!(frames.statistics(), before);
        Some((at, range, error))
    });
    let (at, seen, full) = full.unwrap();
    assert!(at >= 1, "below, between, and above");
    let is_full = matches!(full.why, Refusal::ListFull { capacity: 3.. });
    assert!(is_full && full.range == seen, "{full}");
    assert!(full.to_string().contains("absent ranges"), "{full}");
}

#[test]
fn too_little_memory_for_tables_says_how_much_is_needed() {
    let all = span(range(0, 64 * GIB));
    let needed = usize::try_from(Frames::bytes_for(all, 1).unwrap()).unwrap();
    let mut memory = vec![MaybeUninit::uninit(); needed];
    for bytes in [0, 1, 4095, needed - 1] {
        let error = Frames::over(all, &mut memory[..bytes]).unwrap_err();
        let (needed_bytes, bytes) = (needed as u64, bytes as u64);
        assert_eq!(
            error,
            BuildError::TooSmall {
                needed_bytes,
                bytes
            }
        );
    }
    // Wherever it begins.
    let mut memory = vec![MaybeUninit::uninit(); needed + 64];
    for skip in 0..64 {
        Frames::over(all, &mut memory[skip..skip + needed]).unwrap();
    }
    let nothing = Frames::over(FrameRange::EMPTY, &mut memory).unwrap_err();
    assert_eq!(nothing, BuildError::NoMemory);
    assert_eq!(Frames::bytes_for(FrameRange::ALL, usize::MAX), None);
}

#[test]
fn a_cpu_caches_of_memory_that_came_after_it() {
    let end = 8 * GIB + 2048 * HUGE_BYTES;
    let frames = kit::with_cpus(over(range(0, end), 8), 2);
    let none = frames.cpu(0, NodeId(0)).unwrap_err();
    assert_eq!(none, CpuError::NoMemory);

    frames.add(range(16 * MIB, 17 * MIB)).unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let low = cpu.allocate(PAGE).unwrap();
    assert_eq!(low, Frame::new(16 * MIB / PAGE_BYTES));
    frames.add(range(8 * GIB, end)).unwrap();
    let high = cpu.allocate(PAGE).unwrap();
    assert!(high.addr().get() >= 8 * GIB, "the highest zone first");
    assert!(cpu.cached_frames() > 100, "a large zone, long lists");
    cpu.free(low, Order::PAGE).unwrap();
    cpu.free(high, Order::PAGE).unwrap();
    cpu.close().unwrap();
    let statistics = frames.statistics();
    assert_eq!(statistics.free_frames, statistics.managed_frames);
    frames.validate().unwrap();
}

/// A CPU looks anew once for each huge frame of what comes, however small the pieces.
#[test]
#[cfg_attr(miri, ignore = "long, and nothing in it that other tests do not reach")]
fn a_cpu_caches_of_memory_that_comes_page_by_page() {
    let frames = kit::with_cpus(over(range(0, 512 * HUGE_BYTES), 8), 1);
    let mut pages = (0..64 * HUGE_FRAMES).map(|page| page * PAGE_BYTES);
    let mut add = |page| frames.add(range(page, page + PAGE_BYTES)).unwrap();
    add(pages.next().unwrap());
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    pages.for_each(&mut add);
    let page = cpu.allocate(PAGE).unwrap();
    cpu.free(page, Order::PAGE).unwrap();
    assert!(cpu.cached_frames() > 0, "its lists are longer than none");
    let drains = frames.cpu_events(0).unwrap().drains;
    assert_eq!(drains, 1, "at its first call");
    cpu.close().unwrap();
}

/// Two CPUs add the same pieces, others allocate and free; each piece is added once.
#[test]
fn memory_added_twice_at_the_same_moment_is_added_once() {
    let pieces = if cfg!(miri) { 4 } else { 256 };
    let frames = &over(range(0, 4 * GIB + 2048 * HUGE_BYTES), 300);
    // With half a huge frame between two of them.
    let piece = |at: u64| {
        let start = 4 * GIB + at * 3 * (HUGE_BYTES / 2);
        range(start, start + HUGE_BYTES)
    };
    let added = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for at in 0..pieces {
                    match frames.add(piece(at)) {
                        Ok(()) => drop(added.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                        Err(HotplugError {
                            why: Refusal::Present,
                            ..
                        }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for order in [0, 4] {
            let order = Order::new(order).unwrap();
            scope.spawn(move || {
                let mut held = Vec::new();
                for _ in 0..pieces * 16 {
                    if let Ok(block) = frames.allocate(Request::new(order)) {
                        held.push(block);
                    }
                    if held.len() > 32 {
                        held.drain(..)
                            .for_each(|block| frames.free(block, order).unwrap());
                    }
                }
                held.into_iter()
                    .for_each(|block| frames.free(block, order).unwrap());
            });
        }
    });
    assert_eq!(added.into_inner(), pieces);
    let statistics = frames.statistics();
    assert_eq!(statistics.managed_frames, pieces * HUGE_FRAMES);
    assert_eq!(statistics.free_frames, pieces * HUGE_FRAMES);
    frames.validate().unwrap();
}

#[test]
fn what_is_absent_is_not_isolated() {
    let frames = over(range(0, 8 * GIB), 8);
    frames.add(range(GIB, 4 * GIB)).unwrap();
    let isolate = |from, to| frames.isolate(span(range(from, to)));
    let is_absent = |from, to, at: u64| {
        let refused = isolate(from, to).unwrap_err();
        let frame = Frame::new(at / PAGE_BYTES);
        assert_eq!((refused.frame, refused.why), (frame, Refusal::NotMemory));
    };
    // Zone Normal has no memory yet, zone DMA32 none below.
    is_absent(GIB, 8 * GIB, 4 * GIB);
    is_absent(GIB - HUGE_BYTES, 4 * GIB, GIB - HUGE_BYTES);
    let isolation = isolate(GIB, 4 * GIB).unwrap();
    frames.add(range(4 * GIB, 7 * GIB)).unwrap();
    assert_eq!(isolation.first_in_use(), None);
    let page = frames.allocate(PAGE).unwrap();
    assert_eq!(page, Frame::new(4 * GIB / PAGE_BYTES));
    assert_eq!(isolation.take(), Ok(span(range(GIB, 4 * GIB))));
    frames.free_frames(span(range(GIB, 4 * GIB))).unwrap();
    frames.free(page, Order::PAGE).unwrap();
    // A huge frame with some memory: what comes there is isolated, too.
    frames.add(range(7 * GIB, 7 * GIB + MIB)).unwrap();
    let isolation = isolate(GIB, 7 * GIB + HUGE_BYTES).unwrap();
    let rest = range(7 * GIB + MIB, 7 * GIB + HUGE_BYTES);
    assert_eq!(isolation.first_in_use(), Some(span(rest).start()));
    frames.add(rest).unwrap();
    assert_eq!(isolation.first_in_use(), None);
    drop(isolation);
    frames.validate().unwrap();
    assert_eq!(
        frames.statistics().free_frames,
        (6 * GIB + HUGE_BYTES) / PAGE_BYTES
    );
}

/// What was prepared, and how often nothing was found.
#[derive(Default)]
struct Kernel {
    prepared: Mutex<HashSet<u64>>,
    exhausted: Mutex<u32>,
}

impl Hooks for Kernel {
    fn prepare(&self, blocks: &[Frame], order: Order) {
        let all = (blocks.iter()).flat_map(|block| (0..order.frames()).map(|at| block.get() + at));
        self.prepared.lock().unwrap().extend(all);
    }

    fn exhausted(&self, _: &Request, _: Exhausted) -> bool {
        *self.exhausted.lock().unwrap() += 1;
        false
    }
}

#[test]
fn adopted_pages_are_prepared_before_a_cpu_caches_them() {
    let kernel = Kernel::default();
    let frames = over(range(4 * GIB, 5 * GIB), 8);
    let frames = kit::with_cpus(frames.with_hooks(&kernel), 1);
    frames.add(range(4 * GIB + 64 * MIB, 5 * GIB)).unwrap();
    frames
        .adopt(range(4 * GIB, 4 * GIB + HUGE_BYTES / 2))
        .unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let first = 4 * GIB / PAGE_BYTES;
    for frame in first..first + 200 {
        cpu.free(Frame::new(frame), Order::PAGE).unwrap();
    }
    for _ in 0..300 {
        let page = cpu.allocate(PAGE).unwrap();
        assert!(
            kernel.prepared.lock().unwrap().contains(&page.get()),
            "{page}"
        );
    }
}

#[test]
fn frames_in_a_row_that_are_found_exhaust_nothing() {
    let kernel = Kernel::default();
    let frames = over(range(4 * GIB, 5 * GIB), 8);
    let frames = kit::with_cpus(frames.with_hooks(&kernel), 1);
    frames.add(range(4 * GIB, 4 * GIB + HUGE_BYTES)).unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let all = FrameRange::new(4 * GIB / PAGE_BYTES, 4 * GIB / PAGE_BYTES + HUGE_FRAMES).unwrap();
    frames.allocate_range(all).unwrap();
    // Three in a row, no four that are aligned.
    let three = FrameRange::new(all.start().get() + 1, all.start().get() + 4).unwrap();
    frames.free_frames(three).unwrap();
    assert_eq!(cpu.allocate_frames(3, 1, PAGE), Ok(three));
    assert_eq!(*kernel.exhausted.lock().unwrap(), 0);
    assert!(cpu.allocate_frames(3, 1, PAGE).is_err());
    assert_eq!(*kernel.exhausted.lock().unwrap(), 2);
}
