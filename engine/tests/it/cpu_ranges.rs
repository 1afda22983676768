//! Any number of frames through a CPU's cache.

use crate::kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{BlockError, Crossing, Hooks, Request, WaterMarks, ZoneMarks};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, GIANT_FRAMES, GIB, HUGE_FRAMES, MIB, Machine, page, range};

fn large() -> Machine {
    Machine::new(&[
        (0, range(MIB, 3 * GIB)),
        (0, range(4 * GIB, 7 * GIB)),
        (1, range(7 * GIB, 11 * GIB)),
    ])
}

/// Any number of frames, any alignment, through the lists: no frame twice, none lost.
#[test]
fn any_number_of_frames_is_allocated_through_the_lists() {
    let frames = large().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let (mut held, mut owned) = (Vec::new(), std::collections::HashSet::new());
    for _ in 0..20_000 {
        if random(2) == 0 || held.is_empty() {
            let most = [4, 20, 600][random(3)];
            let count = 1 + random(most) as u64;
            let align = 1 << random(10);
            let request = if random(2) == 0 {
                page()
            } else {
                page().movable()
            };
            let range = cpu.allocate_frames(count, align, request).unwrap();
            assert_eq!((range.count(), range.start().get() % align), (count, 0));
            for frame in range.start().get()..range.end().get() {
                assert!(owned.insert(frame), "{frame:#x} twice");
            }
            held.push(range);
        } else {
            let range: FrameRange = held.swap_remove(random(held.len()));
            for frame in range.start().get()..range.end().get() {
                assert!(owned.remove(&frame));
            }
            cpu.free_frames(range).unwrap();
        }
    }
    for range in held {
        cpu.free_frames(range).unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
#[cfg_attr(feature = "check-double-free", ignore = "ranges bypass the lists")]
fn three_frames_and_their_neighbour_stay_one_block() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let first = cpu.allocate_frames(3, 1, page()).unwrap();
    for _ in 0..100 {
        cpu.free_frames(first).unwrap();
        assert_eq!(cpu.allocate_frames(3, 1, page()), Ok(first));
    }
    cpu.free_frames(first).unwrap();
    // A part of it is free: nothing changes.
    let order = Order::new(2).unwrap();
    cpu.drain().unwrap();
    assert!(cpu.free_frames(first).is_err());
    assert!(cpu.free(first.start(), order).is_err());
    frames.validate().unwrap();
}

/// The rest of a block lies on top of several lists; where another block came on top of one of
/// them, all of them keep what they had.
#[test]
#[cfg_attr(feature = "check-double-free", ignore = "ranges bypass the lists")]
fn frames_whose_neighbours_are_covered_are_freed_by_themselves() {
    let frames = large().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let pair = Order::new(1).unwrap();
    let other = cpu.allocate(Request::new(pair)).unwrap();
    // Of 16 frames 7 are left: a page, a pair, a block of four.
    let nine = cpu.allocate_frames(9, 1, page()).unwrap();
    cpu.free(other, pair).unwrap();
    let before = cpu.cached_frames();
    cpu.free_frames(nine).unwrap();
    assert_eq!(cpu.cached_frames(), before + 9);
    // The page and the pair are where they were.
    assert_eq!(cpu.allocate(Request::new(pair)), Ok(other));
    let left = nine.end().get();
    assert_eq!(cpu.allocate(Request::new(pair)).unwrap().get(), left + 1);
    cpu.close().unwrap();
    frames.validate().unwrap();
    let held = 2 * pair.frames();
    assert_eq!(frames.statistics().free_frames, free.free_frames - held);
}

/// A page freed twice, the second time as a part of a huge frame: seen when the rest of that is
/// given back.
#[test]
#[cfg_attr(feature = "check-double-free", ignore = "ranges bypass the lists")]
fn a_double_free_that_a_cut_meets_is_reported() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let pages: Vec<_> = (0..HUGE_FRAMES)
        .map(|_| cpu.allocate(page()).unwrap())
        .collect();
    let huge = cpu.allocate(Request::new(Order::HUGE)).unwrap();
    cpu.drain().unwrap();
    cpu.free(huge, Order::HUGE).unwrap();
    assert_eq!(cpu.cached_frames(), HUGE_FRAMES);
    cpu.free(Frame::new(huge.get() + 5), Order::PAGE).unwrap();
    // The list of pages is full: its older half goes back, with that one.
    for page in pages {
        cpu.free(page, Order::PAGE).unwrap();
    }
    let one = cpu.allocate_frames(1, HUGE_FRAMES, page()).unwrap();
    assert_eq!(one.start(), huge);
    assert!(matches!(cpu.drain(), Err(BlockError::FreedTwice { .. })));
    cpu.free_frames(one).unwrap();
    cpu.close().unwrap();
    frames.validate().unwrap();
}

/// A water mark's watcher panics in the middle of a cut: the CPU's slot serves the next one.
#[test]
#[cfg_attr(feature = "check-double-free", ignore = "ranges bypass the lists")]
fn a_slot_is_empty_again_after_a_call_that_panicked() {
    struct Panics(AtomicBool);
    impl Hooks for Panics {
        fn crossed(&self, crossing: Crossing) {
            assert!(!self.0.swap(false, Relaxed), "{crossing:?}");
        }
    }
    let watcher = Box::leak(Box::new(Panics(AtomicBool::new(false))));
    let machine = Machine::new(&[(0, range(4 * GIANT_BYTES, 7 * GIANT_BYTES))]);
    let high = 3 * GIANT_FRAMES - 100;
    let marks = WaterMarks {
        min: 0,
        low: 0,
        high,
        lowmem_reserve: [0; 4],
    };
    let marks = ZoneMarks::new(NodeId(0), ZoneKind::Normal, marks);
    let marks = Box::leak(Box::new([marks]));
    let frames = kit::with_cpus(machine.frames(), 1);
    let frames = frames.with_hooks(watcher).with_water_marks(marks);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let huge = cpu.allocate(Request::new(Order::HUGE)).unwrap();
    cpu.drain().unwrap();
    cpu.free(huge, Order::HUGE).unwrap();
    watcher.0.store(true, Relaxed);
    let cut = catch_unwind(AssertUnwindSafe(|| {
        cpu.allocate_frames(1, HUGE_FRAMES, page())
    }));
    assert!(cut.is_err());
    cpu.close().unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    assert_eq!(cpu.cached_frames(), 0);
    cpu.allocate_frames(3, 1, page()).unwrap();
    cpu.close().unwrap();
    frames.validate().unwrap();
}
