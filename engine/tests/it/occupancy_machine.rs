//! What ranges are used for, and which blocks could leave after boot.

use crate::kit;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::blocks::{BlockId, BlockSize, Blocks};
use firstlight::frames::{Frames, Occupancy, Request};
use kit::{
    GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, range,
};

fn movable(order: Order) -> Request {
    Request::new(order).movable()
}

fn huge_of(frame: Frame) -> FrameRange {
    let start = frame.get() & !(HUGE_FRAMES - 1);
    FrameRange::new(start, start + HUGE_FRAMES).unwrap()
}

/// All frames of memory of a machine of one node from 4 GiB on, by use.
fn all(frames: &Frames<'_>) -> Occupancy {
    frames.occupancy(FrameRange::ALL)
}

#[test]
fn frames_are_counted_by_what_their_huge_frame_was_split_for() {
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 6 * GIANT_BYTES))]).frames();
    let start = all(&frames);
    assert_eq!(start.movable_frames, 0);
    assert_eq!(start.free_frames, frames.statistics().free_frames);
    assert_eq!(start.free_frames + start.fixed_frames, 2 * GIANT_FRAMES);

    let page = frames.allocate(movable(Order::PAGE)).unwrap();
    let block = frames.allocate(movable(Order::HUGE)).unwrap();
    let kernel = frames.allocate(Request::new(Order::PAGE)).unwrap();
    for (frame, free, movable) in [(page, HUGE_FRAMES - 1, 1), (block, 0, HUGE_FRAMES)] {
        let expected = Occupancy {
            free_frames: free,
            movable_frames: movable,
            fixed_frames: 0,
        };
        assert_eq!(frames.occupancy(huge_of(frame)), expected, "{frame}");
    }
    // Tables may lie in the same huge frame.
    let with = frames.occupancy(huge_of(kernel));
    assert_eq!(with.free_frames + with.fixed_frames, HUGE_FRAMES);
    frames.free(kernel, Order::PAGE).unwrap();
    let without = frames.occupancy(huge_of(kernel));
    assert_eq!(with.fixed_frames, without.fixed_frames + 1);
    frames
        .allocate_range(kit::block(kernel, Order::PAGE))
        .unwrap();
    let now = all(&frames);
    assert_eq!(now.movable_frames, HUGE_FRAMES + 1);
    assert_eq!(now.fixed_frames, start.fixed_frames + 1);
}

/// A giant frame in use as one block, then in part.
#[test]
fn a_giant_frame_is_what_it_was_allocated_for() {
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 8 * GIANT_BYTES))]).frames();
    let unmovable = Request::new(Order::GIANT);
    for (request, is_movable) in [(movable(Order::GIANT), true), (unmovable, false)] {
        let giant = frames.allocate(request).unwrap();
        let whole = FrameRange::block(giant, Order::GIANT).unwrap();
        let used = |range: FrameRange| {
            let seen = frames.occupancy(range);
            let (movable, fixed) = (seen.movable_frames, seen.fixed_frames);
            if is_movable {
                (movable, fixed)
            } else {
                (fixed, movable)
            }
        };
        assert_eq!(used(whole), (GIANT_FRAMES, 0));
        // A range that ends in the middle of it.
        let part = FrameRange::new(giant.get(), giant.get() + 2 * HUGE_FRAMES).unwrap();
        assert_eq!(used(part), (2 * HUGE_FRAMES, 0));
        frames.free(giant, Order::PAGE).unwrap();
        assert_eq!(used(whole), (GIANT_FRAMES - 1, 0));
        let rest = FrameRange::new(giant.get() + 1, whole.end().get()).unwrap();
        frames.free_frames(rest).unwrap();
        assert_eq!(frames.occupancy(whole).free_frames, GIANT_FRAMES);
    }
    // Past all memory.
    let none = FrameRange::new(1 << 30, 2 << 30).unwrap();
    assert_eq!(frames.occupancy(none), Occupancy::default());
}

/// What is absent or offline has no use.
#[test]
fn what_is_absent_or_offline_does_not_count() {
    let at = |huge| 4 * GIANT_BYTES + huge * HUGE_BYTES;
    let span = range(at(0), 8 * GIANT_BYTES).inner_frames();
    let bytes = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
    let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(bytes))).unwrap();
    // From the middle of a huge frame on.
    let came = range(at(1) - HUGE_BYTES / 2, at(GIANT_HUGES));
    frames.add(came).unwrap();
    let free = |free_frames| Occupancy {
        free_frames,
        ..Occupancy::default()
    };
    assert_eq!(all(&frames), free(came.bytes() / PAGE_BYTES));
    frames.offline(range(at(9), at(GIANT_HUGES - 4))).unwrap();
    let left = (8 + 4) * HUGE_FRAMES + HUGE_FRAMES / 2;
    assert_eq!(all(&frames), free(left));
    // Half of the first huge frame is absent. It was never one block, so all of it counts as fixed.
    let mut pages = 0;
    while frames.allocate(movable(Order::PAGE)).is_ok() {
        pages += 1;
    }
    assert_eq!(pages, left);
    let first = frames.occupancy(huge_of(came.inner_frames().start()));
    let fixed_frames = HUGE_FRAMES / 2;
    assert_eq!(
        first,
        Occupancy {
            fixed_frames,
            ..Occupancy::default()
        }
    );
}

#[test]
fn a_block_is_removable_while_nothing_in_it_is_fixed() {
    let frames = Machine::new(&[(0, range(4 * GIB, 5 * GIB + 64 * MIB))]).frames();
    let blocks = Blocks::new(&frames, BlockSize::SMALLEST);
    let removable = |id: u64| blocks.get(BlockId(id)).unwrap().is_removable();
    // The last block is half a hole.
    let before: Vec<_> = (32..41).map(removable).collect();
    assert!(!before[8]);
    let free = (0..8).filter(|at| before[*at]).count();
    assert!(free >= 6, "{before:?}");

    let id = 32 + (0..8).find(|at| before[*at]).unwrap() as u64;
    let first = BlockSize::SMALLEST.frames_of(BlockId(id)).unwrap().start();
    frames
        .allocate_range(kit::block(first, Order::PAGE))
        .unwrap();
    assert!(!removable(id));
    frames.free(first, Order::PAGE).unwrap();
    assert!(removable(id));
    while let Ok(page) = frames.allocate(movable(Order::HUGE)) {
        assert!(page.get() > 0);
    }
    // All is in use now, and the same blocks could leave.
    let after: Vec<_> = (32..41).map(removable).collect();
    assert_eq!(after, before);
}
