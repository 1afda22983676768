//! The interleavings of two and three CPUs over the protocol: split, merge,
//! promise, claim, free in parts.
//!
//! `geometry` shrinks the machine: a giant frame has 4 huge frames, a huge
//! frame 128 pages. Each frame's content is a cell the checker watches, so a
//! missing Acquire or Release shows as a race on it.

extern crate std;

use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::segment::{Search, Segment};
use super::testkit::{frames, segment};
use crate::addr::{Frame, FrameRange};
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// A segment and the content of the first page of each of its 64-page words.
struct Machine {
    segment: Segment<'static>,
    content: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are only touched by whoever holds the frame; loom checks that.
unsafe impl Sync for Machine {}

const END: u64 = 1 << GIANT_ORDER;

impl Machine {
    fn new(reserved: &[FrameRange]) -> &'static Self {
        Box::leak(Box::new(Self {
            segment: segment(frames(0, END), reserved),
            content: (0..END / 64).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    /// What an owner does: write to the frames.
    fn touch(&self, block: Block) {
        let range = block.range();
        let first = range.start().get().next_multiple_of(64);
        for page in (first..range.end().get()).step_by(64) {
            // SAFETY: we hold the frame; loom fails the test if somebody else does too.
            self.content[page as usize / 64].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    fn allocate(&self, order: u8) -> Option<Block> {
        loop {
            match self.segment.allocate(order) {
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

    fn claim(&self, block: Block) -> bool {
        let claimed = self.segment.claim(block).is_ok();
        if claimed {
            self.touch(block);
        }
        claimed
    }

    fn free(&self, block: Block) {
        self.touch(block);
        self.segment
            .free(block)
            .expect("what was allocated can be freed");
    }

    fn free_frames(&self) -> u64 {
        self.segment.validate().unwrap();
        self.segment.statistics().free_frames
    }
}

fn block(start: u64, order: u8) -> Block {
    Block {
        start: Frame::new(start),
        order,
    }
}

/// Every interleaving of two CPUs.
fn model(test: impl Fn() + Sync + Send + 'static) {
    check(None, test);
}

/// Every interleaving of three CPUs in which at most three times one is
/// interrupted where it could have gone on.
fn model_of_three(test: impl Fn() + Sync + Send + 'static) {
    check(Some(3), test);
}

fn check(preemption_bound: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemption_bound;
    builder.max_branches = 100_000;
    builder.check(test);
}

#[test]
fn two_split_the_same_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let other = thread::spawn(|| machine.allocate(0).unwrap());
        let mine = machine.allocate(0).unwrap();
        let other = other.join().unwrap();
        assert_ne!(mine, other);
        assert_eq!(machine.free_frames(), END - 2);
        machine.free(mine);
        machine.free(other);
        assert_eq!(machine.segment.statistics().free_giants, 1);
    });
}

#[test]
fn two_take_the_last_huge_frames() {
    model(|| {
        let machine = Machine::new(&[frames(256, END)]);
        let other = thread::spawn(|| machine.allocate(HUGE_ORDER));
        let mine = machine.allocate(HUGE_ORDER);
        let other = other.join().unwrap();
        assert!(mine.is_some() && other.is_some() && mine != other);
        assert_eq!(machine.segment.allocate(0), Search::Nothing);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn freeing_both_halves_merges_to_a_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        let other = thread::spawn(move || machine.free(high));
        machine.free(low);
        other.join().unwrap();
        machine.free_frames();
        assert_eq!(machine.segment.statistics().free_giants, 1);
        assert!(machine.allocate(GIANT_ORDER).is_some());
    });
}

#[test]
fn allocating_while_the_rest_merges() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(6).unwrap();
        let other = thread::spawn(|| machine.allocate(6));
        machine.free(held);
        let got = other
            .join()
            .unwrap()
            .expect("64 pages were free all the time");
        assert_eq!(machine.free_frames(), 64);
        machine.free(got);
        assert_eq!(machine.segment.statistics().free_huges, 1);
    });
}

#[test]
fn a_huge_frame_changes_hands_with_its_content() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(HUGE_ORDER).unwrap();
        let other = thread::spawn(|| machine.allocate(0).or_else(|| machine.allocate(6)));
        machine.free(held);
        if let Some(got) = other.join().unwrap() {
            machine.free(got);
        }
        assert_eq!(machine.free_frames(), 128);
    });
}

#[test]
fn a_page_freed_and_merged_reaches_who_takes_the_huge_frame() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        let other = thread::spawn(move || machine.free(high));
        machine.free(low);
        let taken = machine.allocate(HUGE_ORDER);
        other.join().unwrap();
        let free = machine.free_frames();
        assert_eq!(free, if taken.is_some() { 0 } else { 128 });
    });
}

#[test]
fn claim_and_allocate_never_share_a_frame() {
    model(|| {
        // Only pages 0 and 1 are free.
        let machine = Machine::new(&[frames(2, END)]);
        let other = thread::spawn(|| machine.claim(block(0, 0)));
        let mine = machine.allocate(0).unwrap();
        let claimed = other.join().unwrap();
        assert!(!claimed || mine.start.get() == 1, "claimed and allocated");
        assert_eq!(machine.free_frames(), if claimed { 0 } else { 1 });
    });
}

#[test]
fn claim_inside_a_whole_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let other = thread::spawn(|| machine.claim(block(65, 0)));
        let huge = machine.allocate(HUGE_ORDER);
        let claimed = other.join().unwrap();
        let taken = u64::from(claimed) + huge.map_or(0, Block::frames);
        assert_eq!(machine.free_frames(), END - taken);
        assert!(huge.is_some());
    });
}

#[test]
fn parts_of_an_allocated_giant_freed_at_once() {
    model(|| {
        let machine = Machine::new(&[]);
        assert!(machine.allocate(GIANT_ORDER).is_some());
        let other = thread::spawn(|| machine.free(block(64, 6)));
        machine.free(block(0, 6));
        other.join().unwrap();
        assert_eq!(machine.free_frames(), 128);
        assert_eq!(machine.segment.statistics().free_huges, 1);
        machine.free(block(128, HUGE_ORDER));
        machine.free(block(256, HUGE_ORDER + 1));
        assert_eq!(machine.segment.statistics().free_giants, 1);
    });
}

#[test]
fn freed_twice_at_once_counts_once() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(7).unwrap();
        let other = thread::spawn(move || machine.segment.free(held).is_ok());
        let mine = machine.segment.free(held).is_ok();
        assert_ne!(mine, other.join().unwrap());
        assert_eq!(machine.free_frames(), 128);
    });
}

#[test]
fn the_last_page_goes_round() {
    model(|| {
        let machine = Machine::new(&[frames(1, END)]);
        let held = machine.allocate(0).unwrap();
        let other = thread::spawn(|| machine.allocate(0));
        machine.free(held);
        let got = other.join().unwrap();
        assert_eq!(machine.free_frames(), u64::from(got.is_none()));
    });
}

#[test]
fn three_cpus_split_take_and_give_back() {
    model_of_three(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let first = thread::spawn(|| {
            let page = machine.allocate(0).unwrap();
            machine.free(page);
        });
        let second = thread::spawn(|| machine.claim(block(64, 6)));
        first.join().unwrap();
        let claimed = second.join().unwrap();
        assert_eq!(machine.free_frames(), if claimed { 64 } else { 128 });
    });
}

#[test]
fn a_merged_giant_reaches_who_takes_it() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(GIANT_ORDER - 1).unwrap();
        let high = machine.allocate(GIANT_ORDER - 1).unwrap();
        machine.free(low);
        let other = thread::spawn(|| machine.allocate(GIANT_ORDER).is_some());
        machine.free(high);
        let taken = other.join().unwrap();
        assert_eq!(machine.free_frames(), if taken { 0 } else { END });
    });
}

#[test]
fn a_freed_huge_frame_reaches_both_who_share_it() {
    model_of_three(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(HUGE_ORDER).unwrap();
        let first = thread::spawn(|| machine.allocate(6).is_some());
        let second = thread::spawn(|| machine.allocate(6).is_some());
        machine.free(held);
        let taken = u64::from(first.join().unwrap()) + u64::from(second.join().unwrap());
        assert_eq!(machine.free_frames(), 128 - 64 * taken);
    });
}

#[test]
fn a_freed_giant_reaches_both_who_share_it() {
    model_of_three(|| {
        let machine = Machine::new(&[]);
        let held = machine.allocate(GIANT_ORDER).unwrap();
        let first = thread::spawn(|| machine.allocate(6).is_some());
        let second = thread::spawn(|| machine.allocate(HUGE_ORDER).is_some());
        machine.free(held);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        let taken = 64 * u64::from(first) + 128 * u64::from(second);
        assert_eq!(machine.free_frames(), END - taken);
    });
}

#[test]
fn a_large_block_beside_a_claim_takes_all_or_nothing() {
    model(|| {
        let machine = Machine::new(&[frames(256, END)]);
        // The giant frame is split, two huge frames of it are free.
        let other = thread::spawn(|| machine.claim(block(128, HUGE_ORDER)));
        let pair = machine.allocate(HUGE_ORDER + 1).is_some();
        let claimed = other.join().unwrap();
        assert!(!(pair && claimed));
        let taken = if pair { 256 } else { 128 * u64::from(claimed) };
        assert_eq!(machine.free_frames(), 256 - taken);
    });
}

#[test]
fn a_claim_may_take_pages_whose_count_is_still_to_come() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        assert!(machine.claim(block(64, 6)));
        // Pages 0..64 are free: their count can serve the claim of the others.
        let other = thread::spawn(|| machine.claim(block(64, 6)));
        machine.free(block(64, 6));
        let claimed = other.join().unwrap();
        assert_eq!(machine.free_frames(), if claimed { 64 } else { 128 });
    });
}

#[test]
fn three_free_the_parts_of_the_last_huge_frame() {
    model_of_three(|| {
        let machine = Machine::new(&[]);
        assert!(
            machine.claim(block(0, 6))
                && machine.claim(block(64, 5))
                && machine.claim(block(96, 5))
        );
        let first = thread::spawn(|| machine.free(block(0, 6)));
        let second = thread::spawn(|| machine.free(block(64, 5)));
        machine.free(block(96, 5));
        first.join().unwrap();
        second.join().unwrap();
        machine.free_frames();
        assert_eq!(machine.segment.statistics().free_giants, 1);
    });
}

#[test]
fn a_large_block_that_finds_no_room_leaves_none_taken() {
    model(|| {
        let machine = Machine::new(&[frames(384, END)]);
        let other = thread::spawn(|| machine.allocate(HUGE_ORDER).unwrap());
        let pair = machine.allocate(HUGE_ORDER + 1);
        other.join().unwrap();
        let taken = 128 + pair.map_or(0, Block::frames);
        assert_eq!(machine.free_frames(), 384 - taken);
    });
}
