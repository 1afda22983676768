//! The interleavings of two CPUs of which one takes, gives back or looks for a
//! range: what it undoes, what others see meanwhile.
//!
//! The machine is a few pages of the small one of [`crate::frames::geometry`], around
//! the border of two huge frames or of two segments; more would only be more
//! to look at. After every run the counts are recounted.

extern crate std;

use super::kit::{both, check, preemptions};
use crate::addr::{Frame, FrameRange};
use crate::frames::contiguous::Wanted;
use crate::frames::directory::Directory;
use crate::frames::geometry::{Block, GIANT_ORDER};
use crate::frames::request::{Mobility, Zones};
use crate::frames::testkit::{directory, frames, want};
use crate::node::{NodeId, ZoneKind};
use core::iter::once;
use loom::cell::UnsafeCell;
use std::boxed::Box;
use std::vec::Vec;

const UNMOVABLE: Mobility = Mobility::Unmovable;
const END: u64 = 1 << GIANT_ORDER;

/// A few pages of two nodes, and the content of some of them.
struct Machine {
    directory: Directory<'static>,
    content: Vec<(u64, UnsafeCell<u32>)>,
}

// SAFETY: the cells are only touched by whoever holds the frame; loom checks that.
unsafe impl Sync for Machine {}

impl Machine {
    /// All of `free` is free; `watched` are the pages whose content is watched.
    fn new(free: FrameRange, watched: &[u64]) -> &'static Self {
        let extents = [
            (free.intersect(frames(0, END - 1)), 0, ZoneKind::Normal),
            (
                free.intersect(frames(END - 1, 2 * END)),
                1,
                ZoneKind::Normal,
            ),
        ];
        let extents = extents.into_iter().filter(|extent| !extent.0.is_empty());
        let machine = Self {
            directory: directory(&extents.collect::<Vec<_>>(), &[]),
            content: watched.iter().map(|&at| (at, UnsafeCell::new(0))).collect(),
        };
        for place in machine.directory.places {
            place.segment();
        }
        Box::leak(Box::new(machine))
    }

    /// What an owner does: write to the frames.
    fn touch(&self, range: FrameRange) {
        let mine = |at: &u64| range.contains(Frame::new(*at));
        for (_, cell) in self.content.iter().filter(|(at, _)| mine(at)) {
            // SAFETY: we hold the frame; loom fails the test if somebody else does too.
            cell.with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    fn claim(&self, range: FrameRange) -> bool {
        let claimed = self.directory.claim_range(range).is_ok();
        if claimed {
            self.touch(range);
        }
        claimed
    }

    fn page(&self) -> Option<FrameRange> {
        let start =
            self.directory
                .allocate(once(NodeId(0)), Zones::up_to(ZoneKind::Normal), want(0))?;
        let range = Block { start, order: 0 }.range();
        self.touch(range);
        Some(range)
    }

    fn contiguous(&self, frames: u64) -> Option<FrameRange> {
        let wanted = Wanted {
            frames,
            align_frames: 1,
            mobility: UNMOVABLE,
        };
        let nodes = once(NodeId(0));
        let range =
            self.directory
                .allocate_contiguous(nodes, Zones::up_to(ZoneKind::Normal), wanted)?;
        self.touch(range);
        Some(range)
    }

    fn free(&self, range: FrameRange) {
        self.touch(range);
        self.directory
            .free_range(range)
            .expect("what was allocated can be freed");
    }

    /// Free frames, once everybody is done.
    fn free_frames(&self) -> u64 {
        assert!(self.directory.range_calls.seen().is_quiet());
        let segments = self.directory.places.iter().map(|place| place.segment());
        let count = segments.map(|segment| {
            segment.validate().unwrap();
            segment.statistics().free_frames
        });
        count.sum()
    }
}

/// Every interleaving of two CPUs with at most so many preemptions:
/// `FIRSTLIGHT_LOOM_PREEMPTIONS`, else 3.
fn model(test: impl Fn() + Sync + Send + 'static) {
    check(preemptions(3), test);
}

/// The same where a CPU searches, and looks again and again: at most 2.
fn model_of_searches(test: impl Fn() + Sync + Send + 'static) {
    check(2, test);
}

#[test]
fn a_range_and_a_page_never_share_a_frame() {
    model(|| {
        // Two huge frames have one free page each.
        let machine = Machine::new(frames(127, 129), &[127, 128]);
        let (claimed, page) = both(|| machine.claim(frames(127, 129)), || machine.page());
        assert!(claimed != page.is_some());
        assert_eq!(machine.free_frames(), u64::from(!claimed));
    });
}

#[test]
fn a_page_is_found_beside_a_range_that_fails() {
    model_of_searches(|| {
        let machine = Machine::new(frames(127, 129), &[127]);
        assert!(machine.claim(frames(128, 129)));
        // It takes the only free page, finds the next one used, and gives it back.
        let (_, page) = both(
            || machine.directory.claim_seen(frames(127, 129), UNMOVABLE),
            || machine.page(),
        );
        assert!(page.is_some(), "the range was never to be had");
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_range_beside_a_page_that_is_given_back_is_all_or_nothing() {
    model(|| {
        let machine = Machine::new(frames(126, 130), &[126, 127, 129]);
        assert!(machine.claim(frames(129, 130)));
        let (claimed, ()) = both(
            || {
                // Without the look before it, so that it takes and gives back.
                let claimed = machine.directory.claim_seen(frames(126, 130), UNMOVABLE);
                claimed.map(|()| machine.touch(frames(126, 130)))
            },
            || machine.free(frames(129, 130)),
        );
        assert_ne!(claimed, Err(Frame::new(126)));
        assert_eq!(machine.free_frames(), if claimed.is_ok() { 0 } else { 4 });
    });
}

#[test]
fn overlapping_ranges_are_never_both_taken() {
    check(2, || {
        let machine = Machine::new(frames(126, 130), &[127, 128]);
        let (low, high) = both(
            || machine.claim(frames(126, 129)),
            || machine.claim(frames(127, 130)),
        );
        assert!(!(low && high));
        assert_eq!(machine.free_frames(), if low || high { 1 } else { 4 });
    });
}

#[test]
fn a_range_across_nodes_gives_back_both_parts() {
    model(|| {
        let machine = Machine::new(frames(END - 2, END + 1), &[]);
        let range = frames(END - 2, END + 1);
        let (claimed, taken) = both(
            move || machine.directory.claim_range(range).is_ok(),
            || machine.directory.claim_range(frames(END, END + 1)).is_ok(),
        );
        assert!(!(claimed && taken) && (claimed || taken));
        assert_eq!(machine.free_frames(), if claimed { 0 } else { 2 });
    });
}

#[test]
fn a_range_freed_hands_its_content_on() {
    model(|| {
        let machine = Machine::new(frames(127, 129), &[127, 128]);
        assert!(machine.claim(frames(127, 129)));
        let (page, ()) = both(|| machine.page(), || machine.free(frames(127, 129)));
        let taken = u64::from(page.is_some());
        assert_eq!(machine.free_frames(), 2 - taken);
    });
}

#[test]
fn a_search_and_a_claim_of_the_only_room() {
    // Long: one preemption shows what it is there for.
    check(1, || {
        let machine = Machine::new(frames(1, 3), &[1, 2]);
        let (found, claimed) = both(|| machine.contiguous(2), || machine.claim(frames(1, 3)));
        assert!(found.is_some() != claimed);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn what_a_failing_range_gives_back_is_not_missed() {
    model_of_searches(|| {
        let machine = Machine::new(frames(126, 130), &[]);
        assert!(machine.claim(frames(129, 130)));
        let (found, failed) = both(
            || machine.contiguous(3),
            // Without the look before it, so that it takes and gives back.
            || machine.directory.claim_seen(frames(126, 130), UNMOVABLE),
        );
        assert!(failed.is_err());
        assert_eq!(found, Some(frames(126, 129)));
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_search_beside_pages_that_come_and_go() {
    model_of_searches(|| {
        let machine = Machine::new(frames(126, 130), &[127, 128]);
        assert!(machine.claim(frames(126, 127)));
        let (found, page) = both(
            || machine.contiguous(2),
            || {
                machine.free(frames(126, 127));
                machine.page()
            },
        );
        // Four were free, or three in a row: two are left whatever page was taken.
        assert!(found.is_some() && page.is_some());
        assert_eq!(machine.free_frames(), 1);
    });
}

#[test]
fn a_range_freed_twice_at_once_counts_once() {
    model(|| {
        let machine = Machine::new(frames(127, 129), &[]);
        assert!(machine.claim(frames(127, 129)));
        let free = || machine.directory.free_range(frames(127, 129)).is_ok();
        let (one, other) = both(free, free);
        assert!(!(one && other));
        assert_eq!(machine.free_frames(), 2);
    });
}
