//! What ranges are used for, and which blocks could leave after boot.

use crate::kit;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::blocks::{BlockId, BlockSize, Blocks};
use firstlight::frames::{Frames, Occupancy, Request};
use kit::{GIB, MIB, Machine, range};

fn movable(order: u8) -> Request {
    Request::new(Order::new(order).unwrap()).movable()
}

fn huge_of(frame: Frame) -> FrameRange {
    let start = frame.get() & !511;
    FrameRange::new(start, start + 512).unwrap()
}

/// All frames of memory of a machine of one node from 4 GiB on, by use.
fn all(frames: &Frames<'_>) -> Occupancy {
    frames.occupancy(FrameRange::ALL)
}

#[test]
fn frames_are_counted_by_what_their_huge_frame_was_split_for() {
    let frames = Machine::new(&[(0, range(4 * GIB, 6 * GIB))]).frames();
    let start = all(&frames);
    assert_eq!(start.movable_frames, 0);
    assert_eq!(start.free_frames, frames.statistics().free_frames);
    assert_eq!(start.free_frames + start.fixed_frames, 2 << 18);

    let page = frames.allocate(movable(0)).unwrap();
    let block = frames.allocate(movable(9)).unwrap();
    let kernel = frames.allocate(Request::new(Order::PAGE)).unwrap();
    for (frame, free, movable) in [(page, 511, 1), (block, 0, 512)] {
        let expected = Occupancy {
            free_frames: free,
            movable_frames: movable,
            fixed_frames: 0,
        };
        assert_eq!(frames.occupancy(huge_of(frame)), expected, "{frame}");
    }
    // Tables may lie in the same huge frame.
    let with = frames.occupancy(huge_of(kernel));
    assert_eq!(with.free_frames + with.fixed_frames, 512);
    frames.free(kernel, Order::PAGE).unwrap();
    let without = frames.occupancy(huge_of(kernel));
    assert_eq!(with.fixed_frames, without.fixed_frames + 1);
    frames
        .allocate_range(kit::block(kernel, Order::PAGE))
        .unwrap();
    let now = all(&frames);
    assert_eq!(now.movable_frames, 513);
    assert_eq!(now.fixed_frames, start.fixed_frames + 1);
}

/// A giant frame in use as one block, then in part.
#[test]
fn a_giant_frame_is_what_it_was_allocated_for() {
    let frames = Machine::new(&[(0, range(4 * GIB, 8 * GIB))]).frames();
    let unmovable = Request::new(Order::GIANT);
    for (request, is_movable) in [(movable(18), true), (unmovable, false)] {
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
        assert_eq!(used(whole), (1 << 18, 0));
        // A range that ends in the middle of it.
        let part = FrameRange::new(giant.get(), giant.get() + 1024).unwrap();
        assert_eq!(used(part), (1024, 0));
        frames.free(giant, Order::PAGE).unwrap();
        assert_eq!(used(whole), ((1 << 18) - 1, 0));
        let rest = FrameRange::new(giant.get() + 1, whole.end().get()).unwrap();
        frames.free_frames(rest).unwrap();
        assert_eq!(frames.occupancy(whole).free_frames, 1 << 18);
    }
    // Past all memory.
    let none = FrameRange::new(1 << 30, 2 << 30).unwrap();
    assert_eq!(frames.occupancy(none), Occupancy::default());
}

/// What is absent or offline has no use.
#[test]
fn what_is_absent_or_offline_does_not_count() {
    let span = FrameRange::new(4 << 18, 8 << 18).unwrap();
    let bytes = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
    let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(bytes))).unwrap();
    let came = range(5 * GIB + MIB, 6 * GIB + 64 * MIB);
    frames.add(came).unwrap();
    let free = |free_frames| Occupancy {
        free_frames,
        ..Occupancy::default()
    };
    assert_eq!(all(&frames), free(came.bytes() / 4096));
    frames.offline(range(5 * GIB + 256 * MIB, 6 * GIB)).unwrap();
    assert_eq!(all(&frames), free((64 + 255) * 256));
    // Half of the first huge frame is absent. It was never one block, so all of it counts as fixed.
    let mut pages = 0;
    while frames.allocate(movable(0)).is_ok() {
        pages += 1;
    }
    assert_eq!(pages, (64 + 255) * 256);
    let first = frames.occupancy(huge_of(came.inner_frames().start()));
    let fixed_frames = 256;
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
    while let Ok(page) = frames.allocate(movable(9)) {
        assert!(page.get() > 0);
    }
    // All is in use now, and the same blocks could leave.
    let after: Vec<_> = (32..41).map(removable).collect();
    assert_eq!(after, before);
}
