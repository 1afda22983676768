//! The small machine of the models, and how they are run.
//!
//! `geometry` shrinks it: a giant frame has 4 huge frames, a huge frame 128 pages. Each
//! frame's content is a cell the checker watches, so a missing Acquire or Release shows as
//! a race on it. After every run the counts are recounted, and a lone call must not find
//! the machine busy.

extern crate std;

use crate::addr::{Frame, FrameRange};
use crate::frames::allocate::Search;
use crate::frames::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::segment::Segment;
use crate::frames::testkit::{frames, segment};
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// A segment and the content of the first page of each of its 64-page words.
pub(super) struct Machine {
    pub(super) segment: Segment<'static>,
    content: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are only touched by whoever holds the frame; loom checks that.
unsafe impl Sync for Machine {}

pub(super) const END: u64 = 1 << GIANT_ORDER;

impl Machine {
    pub(super) fn new(reserved: &[FrameRange]) -> &'static Self {
        Box::leak(Box::new(Self {
            segment: segment(frames(0, END), reserved),
            content: (0..END / 64).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    /// What an owner does: write to the frames.
    pub(super) fn touch(&self, block: Block) {
        let range = block.range();
        let first = range.start().get().next_multiple_of(64);
        for page in (first..range.end().get()).step_by(64) {
            // SAFETY: we hold the frame; loom fails the test if somebody else does too.
            self.content[page as usize / 64].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    pub(super) fn allocate(&self, order: u8) -> Option<Block> {
        loop {
            match self.segment.take(order) {
                Search::Found(start) => {
                    let block = Block { start, order };
                    self.touch(block);
                    return Some(block);
                }
                Search::Nothing => return None,
                Search::Busy => thread::yield_now(),
            }
        }
    }

    pub(super) fn claim(&self, block: Block) -> bool {
        let claimed = self.segment.claim(block).is_ok();
        if claimed {
            self.touch(block);
        }
        claimed
    }

    pub(super) fn free(&self, block: Block) {
        self.touch(block);
        self.segment
            .free(block)
            .expect("what was allocated can be freed");
    }

    /// Free frames, once everybody is done.
    pub(super) fn free_frames(&self) -> u64 {
        self.segment.validate().unwrap();
        let free = self.segment.statistics();
        // Nobody else is here: no search may find the machine busy.
        for order in [GIANT_ORDER, HUGE_ORDER + 1, HUGE_ORDER, 0] {
            match self.segment.take(order) {
                Search::Found(start) => self.segment.free(Block { start, order }).unwrap(),
                Search::Nothing => {}
                Search::Busy => panic!("busy for ever"),
            }
        }
        assert_eq!(self.segment.statistics(), free);
        free.free_frames
    }

    pub(super) fn free_giants(&self) -> u64 {
        self.segment.statistics().free_giants
    }
}

pub(super) fn block(start: u64, order: u8) -> Block {
    Block {
        start: Frame::new(start),
        order,
    }
}

/// Every interleaving of two CPUs that one is interrupted in at most so often
/// where it could have gone on: `FIRSTLIGHT_LOOM_PREEMPTIONS`, else 4.
pub(super) fn model(test: impl Fn() + Sync + Send + 'static) {
    check(preemptions(4), test);
}

/// The same for three CPUs, at most 3 times whatever the variable says.
pub(super) fn model_of_three(test: impl Fn() + Sync + Send + 'static) {
    check(3, test);
}

/// How many preemptions `FIRSTLIGHT_LOOM_PREEMPTIONS` asks for, else so many.
pub(super) fn preemptions(otherwise: usize) -> usize {
    let asked = std::env::var("FIRSTLIGHT_LOOM_PREEMPTIONS").ok();
    asked
        .and_then(|bound| bound.parse().ok())
        .unwrap_or(otherwise)
}

pub(super) fn check(preemption_bound: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemption_bound);
    builder.max_branches = 100_000;
    builder.check(test);
}

/// Runs two CPUs, neither of them before the other.
pub(super) fn both<A: 'static, B: 'static>(
    one: impl FnOnce() -> A + 'static,
    other: impl FnOnce() -> B + 'static,
) -> (A, B) {
    let (one, other) = (thread::spawn(one), thread::spawn(other));
    (one.join().unwrap(), other.join().unwrap())
}
