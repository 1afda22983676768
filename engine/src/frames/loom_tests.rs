//! The interleavings of two and three CPUs over the protocol: split, merge,
//! promise, claim, free in parts, and misuse beside all of them.
//!
//! `geometry` shrinks the machine: a giant frame has 4 huge frames, a huge
//! frame 128 pages. Each frame's content is a cell the checker watches, so a
//! missing Acquire or Release shows as a race on it. After every run the counts
//! are recounted, and a lone call must not find the machine busy.

extern crate std;

use super::allocate::Search;
use super::directory::Directory;
use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::row::Row;
use super::segment::Segment;
use super::testkit::{directory, frames, segment, want};
use crate::addr::{Frame, FrameRange};
use crate::node::{NodeId, ZoneKind};
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
    let asked = std::env::var("FIRSTLIGHT_LOOM_PREEMPTIONS").ok();
    check(
        asked.and_then(|bound| bound.parse().ok()).unwrap_or(4),
        test,
    );
}

/// The same for three CPUs, at most 3 times.
fn model_of_three(test: impl Fn() + Sync + Send + 'static) {
    check(3, test);
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

// ---- Split and merge -------------------------------------------------------

#[test]
fn two_split_the_same_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let (mine, other) = both(
            || machine.allocate(0).unwrap(),
            || machine.allocate(0).unwrap(),
        );
        assert_ne!(mine, other);
        assert_eq!(machine.free_frames(), END - 2);
        machine.free(mine);
        machine.free(other);
        assert_eq!(machine.free_giants(), 1);
    });
}

#[test]
fn freeing_both_halves_merges_to_a_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        both(move || machine.free(low), move || machine.free(high));
        machine.free_frames();
        assert_eq!(machine.free_giants(), 1);
        assert!(machine.allocate(GIANT_ORDER).is_some());
    });
}

#[test]
fn three_free_the_parts_of_the_last_huge_frame() {
    // Long: two preemptions show what it is there for.
    check(2, || {
        let machine = Machine::new(&[]);
        let parts = [block(0, 6), block(64, 5), block(96, 5)];
        assert!(parts.iter().all(|&part| machine.claim(part)));
        let threads = parts.map(|part| thread::spawn(move || machine.free(part)));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        machine.free_frames();
        assert_eq!(machine.free_giants(), 1);
    });
}

#[test]
fn allocating_while_the_rest_merges() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(6).unwrap();
        let (got, ()) = both(|| machine.allocate(6), move || machine.free(held));
        let got = got.expect("64 pages were free all the time");
        assert_eq!(machine.free_frames(), 64);
        machine.free(got);
        assert_eq!(machine.segment.statistics().free_huges, 1);
    });
}

#[test]
fn a_split_seen_from_before_the_merge() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(6).unwrap();
        let (mine, other) = both(
            move || {
                machine.free(held);
                machine.allocate(6).unwrap()
            },
            || machine.allocate(6).unwrap(),
        );
        assert_ne!(mine, other);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_giant_split_again_while_somebody_looks() {
    model(|| {
        let machine = Machine::new(&[]);
        let held = machine.allocate(6).unwrap();
        let (mine, other) = both(
            move || {
                machine.free(held);
                machine.allocate(6).unwrap()
            },
            || machine.allocate(6).unwrap(),
        );
        assert_ne!(mine, other);
        assert_eq!(machine.free_frames(), END - 128);
    });
}

#[test]
fn a_giant_taken_and_opened_again_while_somebody_claims() {
    model(|| {
        let machine = Machine::new(&[]);
        let held = machine.allocate(0).unwrap();
        let (giant, claimed) = both(
            move || {
                machine.free(held);
                let giant = machine.segment.claim(block(0, GIANT_ORDER)).is_ok();
                if giant {
                    machine.segment.free(block(0, 0)).unwrap();
                }
                giant
            },
            || machine.segment.claim(block(0, 0)).is_ok(),
        );
        let free = if giant { 1 } else { END };
        assert_eq!(machine.free_frames(), free - u64::from(claimed));
    });
}

#[test]
fn parts_of_an_allocated_giant_freed_at_once() {
    model(|| {
        let machine = Machine::new(&[]);
        assert!(machine.allocate(GIANT_ORDER).is_some());
        both(|| machine.free(block(64, 6)), || machine.free(block(0, 6)));
        assert_eq!(machine.free_frames(), 128);
        assert_eq!(machine.segment.statistics().free_huges, 1);
        machine.free(block(128, HUGE_ORDER));
        machine.free(block(256, HUGE_ORDER + 1));
        assert_eq!(machine.free_giants(), 1);
    });
}

#[test]
fn two_start_the_same_segment() {
    model(|| {
        let extents = [(frames(0, END), 0, ZoneKind::Normal)];
        let directory: &'static Directory<'static> = Box::leak(Box::new(directory(
            &extents,
            &[frames(1, 2), frames(128, END)],
        )));
        let place = &directory.places[0];
        let take = || directory.allocate(core::iter::once(NodeId(0)), ZoneKind::Normal, want(0));
        let (mine, other) = both(take, take);
        assert!(mine.is_some() && other.is_some() && mine != other);
        assert_eq!(place.managed_frames(), 127);
        assert_eq!(place.segment().statistics().free_frames, 125);
        place.segment().validate().unwrap();
    });
}

// ---- Content goes with the frame -------------------------------------------

#[test]
fn a_huge_frame_changes_hands_with_its_content() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let held = machine.allocate(HUGE_ORDER).unwrap();
        both(
            || {
                machine
                    .allocate(0)
                    .or_else(|| machine.allocate(6))
                    .map(|got| machine.free(got))
            },
            move || machine.free(held),
        );
        assert_eq!(machine.free_frames(), 128);
    });
}

#[test]
fn a_page_freed_and_merged_reaches_who_takes_the_huge_frame() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        let (taken, ()) = both(
            move || {
                machine.free(low);
                machine.allocate(HUGE_ORDER).is_some()
            },
            move || machine.free(high),
        );
        assert_eq!(machine.free_frames(), if taken { 0 } else { 128 });
    });
}

#[test]
fn a_merged_giant_reaches_who_takes_it() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(GIANT_ORDER - 1).unwrap();
        let high = machine.allocate(GIANT_ORDER - 1).unwrap();
        machine.free(low);
        let (taken, ()) = both(
            || machine.allocate(GIANT_ORDER).is_some(),
            move || machine.free(high),
        );
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
fn a_claim_may_take_pages_whose_count_is_still_to_come() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        assert!(machine.claim(block(64, 6)));
        // Pages 0..64 are free: their count can serve the claim of the others.
        let (claimed, ()) = both(
            || machine.claim(block(64, 6)),
            || machine.free(block(64, 6)),
        );
        assert_eq!(machine.free_frames(), if claimed { 64 } else { 128 });
    });
}

// ---- What is free is found --------------------------------------------------

#[test]
fn two_take_the_last_huge_frames() {
    model(|| {
        let machine = Machine::new(&[frames(256, END)]);
        let (mine, other) = both(
            || machine.allocate(HUGE_ORDER),
            || machine.allocate(HUGE_ORDER),
        );
        assert!(mine.is_some() && other.is_some() && mine != other);
        assert_eq!(machine.segment.take(0), Search::Nothing);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn the_last_page_goes_round() {
    model(|| {
        let machine = Machine::new(&[frames(1, END)]);
        let held = machine.allocate(0).unwrap();
        let (got, ()) = both(|| machine.allocate(0), move || machine.free(held));
        assert_eq!(machine.free_frames(), u64::from(got.is_none()));
    });
}

#[test]
fn a_claim_that_fails_hides_no_page() {
    model(|| {
        // Page 1 is free, page 0 is not.
        let machine = Machine::new(&[frames(0, 1), frames(2, END)]);
        let (claimed, got) = both(|| machine.claim(block(0, 0)), || machine.allocate(0));
        assert!(!claimed && got.is_some());
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_large_request_that_fails_hides_no_page() {
    model(|| {
        // Every other page of one huge frame.
        let mut reserved: Vec<_> = (0..64).map(|at| frames(2 * at + 1, 2 * at + 2)).collect();
        reserved.push(frames(128, END));
        let machine = Machine::new(&reserved);
        let (large, page) = both(|| machine.allocate(6), || machine.allocate(0));
        assert!(large.is_none() && page.is_some());
        assert_eq!(machine.free_frames(), 63);
    });
}

#[test]
fn a_claim_that_fails_hides_no_page_from_the_second_request() {
    model(|| {
        let extents = [(frames(0, END), 0, ZoneKind::Normal)];
        let directory: &'static Directory<'static> =
            Box::leak(Box::new(directory(&extents, &[frames(2, END)])));
        let segment = directory.places[0].segment();
        let take = || directory.allocate(core::iter::once(NodeId(0)), ZoneKind::Normal, want(0));
        let (claimed, (one, two)) = both(
            || segment.claim(block(0, 0)).is_ok(),
            move || (take(), take()),
        );
        assert!(one.is_some());
        assert!(claimed != two.is_some());
    });
}

#[test]
fn a_large_request_that_fails_hides_no_smaller_block() {
    // Long: three preemptions show what it is there for.
    check(3, || {
        // 10 pages are free, four of them side by side, no eight.
        let mut reserved: Vec<_> = (0..6).map(|at| frames(2 * at + 4, 2 * at + 5)).collect();
        reserved.push(frames(16, END));
        let extents = [(frames(0, END), 0, ZoneKind::Normal)];
        let directory: &'static Directory<'static> =
            Box::leak(Box::new(directory(&extents, &reserved)));
        let take =
            |order| directory.allocate(core::iter::once(NodeId(0)), ZoneKind::Normal, want(order));
        let (large, (two, page)) = both(
            move || take(3),
            move || (take(2).is_some(), take(0).is_some()),
        );
        assert!(large.is_none() && two && page);
    });
}

#[test]
fn a_large_block_that_finds_no_room_hides_no_huge_frame() {
    model(|| {
        let machine = Machine::new(&[frames(0, 128), frames(384, END)]);
        let (pair, huge) = both(
            || machine.allocate(HUGE_ORDER + 1),
            || machine.allocate(HUGE_ORDER),
        );
        assert!(pair.is_none() && huge.is_some());
        assert_eq!(machine.free_frames(), 128);
    });
}

#[test]
fn a_large_block_that_finds_no_room_leaves_none_taken() {
    model(|| {
        let machine = Machine::new(&[frames(384, END)]);
        let (pair, _) = both(
            || machine.allocate(HUGE_ORDER + 1),
            || machine.allocate(HUGE_ORDER).expect("three were free"),
        );
        let taken = 128 + pair.map_or(0, Block::frames);
        assert_eq!(machine.free_frames(), 384 - taken);
    });
}

#[test]
fn a_page_that_wanders_from_one_giant_to_another_is_not_missed() {
    model(|| {
        let extents = [(frames(0, 2 * END), 0, ZoneKind::Normal)];
        let reserved = [frames(0, END), frames(END + 1, 2 * END)];
        let directory: &'static Directory<'static> =
            Box::leak(Box::new(directory(&extents, &reserved)));
        let segment = directory.places[0].segment();
        let (got, ()) = both(
            || directory.allocate(core::iter::once(NodeId(0)), ZoneKind::Normal, want(0)),
            || {
                // First one is free here, then one there: at every moment there is one.
                segment.free(block(0, GIANT_ORDER)).unwrap();
                let _ = segment.claim(block(END, 0));
            },
        );
        assert!(got.is_some());
        segment.validate().unwrap();
    });
}

// ---- Claims ------------------------------------------------------------------

#[test]
fn claim_and_allocate_never_share_a_frame() {
    model(|| {
        // Only pages 0 and 1 are free.
        let machine = Machine::new(&[frames(2, END)]);
        let (mine, claimed) = both(
            || machine.allocate(0).unwrap(),
            || machine.claim(block(0, 0)),
        );
        assert_eq!(claimed, mine.start.get() == 1);
        assert_eq!(machine.free_frames(), if claimed { 0 } else { 1 });
    });
}

#[test]
fn claim_inside_a_whole_giant() {
    model(|| {
        let machine = Machine::new(&[]);
        let (huge, claimed) = both(
            || machine.allocate(HUGE_ORDER).unwrap(),
            || machine.claim(block(65, 0)),
        );
        assert_eq!(claimed, huge.start.get() != 0);
        assert_eq!(machine.free_frames(), END - 128 - u64::from(claimed));
    });
}

#[test]
fn a_large_block_beside_a_claim_takes_all_or_nothing() {
    model(|| {
        // The giant frame is split, two huge frames of it are free.
        let machine = Machine::new(&[frames(256, END)]);
        let (pair, claimed) = both(
            || machine.allocate(HUGE_ORDER + 1).is_some(),
            || machine.claim(block(128, HUGE_ORDER)),
        );
        assert!(pair != claimed);
        assert_eq!(machine.free_frames(), if pair { 0 } else { 128 });
    });
}

#[test]
fn a_block_that_is_free_all_the_time_can_be_claimed() {
    for wanted in [
        block(256, HUGE_ORDER),
        block(256, 0),
        block(256, HUGE_ORDER + 1),
    ] {
        model(move || {
            let machine = Machine::new(&[]);
            let held = machine.allocate(6).unwrap();
            let (claimed, ()) = both(
                move || machine.claim(wanted),
                move || {
                    machine.free(held);
                    machine.segment.claim(block(64, 6)).unwrap();
                },
            );
            assert!(claimed);
            assert_eq!(machine.free_frames(), END - 64 - wanted.frames());
        });
    }
}

#[test]
fn three_cpus_split_take_and_give_back() {
    model_of_three(|| {
        let machine = Machine::new(&[frames(128, END)]);
        let first = thread::spawn(|| {
            let page = machine.allocate(0).unwrap();
            machine.free(page);
        });
        let claimed = thread::spawn(|| machine.claim(block(64, 6)));
        first.join().unwrap();
        let claimed = claimed.join().unwrap();
        assert_eq!(machine.free_frames(), if claimed { 64 } else { 128 });
    });
}

// ---- Misuse ------------------------------------------------------------------

#[test]
fn freed_twice_at_once_counts_once() {
    for order in [0, 6, HUGE_ORDER] {
        model(move || {
            let machine = Machine::new(&[frames(128, END)]);
            let held = machine.allocate(order).unwrap();
            let free = move || machine.segment.free(held).is_ok();
            let (one, other) = both(free, free);
            assert!(one != other);
            assert_eq!(machine.free_frames(), 128);
        });
    }
}

#[test]
fn a_whole_and_a_part_freed_at_once() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        assert!(machine.claim(block(0, 6)) && machine.claim(block(64, 6)));
        let (part, whole) = both(
            || machine.segment.free(block(0, 6)).is_ok(),
            || machine.segment.free(block(0, HUGE_ORDER)).is_ok(),
        );
        assert!(part != whole);
        // The pages that were freed are free, once; the rest of a refused block is not.
        let free = machine.free_frames();
        assert!(if whole { free == 128 } else { free == 64 });
    });
}

#[test]
fn a_free_frame_freed_beside_a_claim_that_fails() {
    for freed in [block(0, HUGE_ORDER), block(0, 0)] {
        model(move || {
            let machine = Machine::new(&[frames(384, END)]);
            let (pair, (one, freed)) = both(
                || machine.segment.claim(block(0, HUGE_ORDER + 1)).is_ok(),
                move || {
                    let one = machine.segment.claim(block(128, HUGE_ORDER)).is_ok();
                    (
                        one,
                        machine.segment.free(freed).map_or(0, |()| freed.frames()),
                    )
                },
            );
            assert!(freed == 0 || pair, "a free frame was freed");
            let taken = 256 * u64::from(pair) + 128 * u64::from(one) - freed;
            assert_eq!(machine.free_frames(), 384 - taken);
        });
    }
}

#[test]
fn freed_twice_and_given_out_in_between_leaves_the_counts_whole() {
    for (order, reserved) in [(HUGE_ORDER, END), (0, 128)] {
        model(move || {
            let machine = Machine::new(&[frames(reserved, END)]);
            let wanted = block(0, order);
            machine.segment.claim(wanted).unwrap();
            both(
                move || machine.segment.free(wanted).is_ok(),
                move || {
                    let _ = machine.segment.free(wanted);
                    machine.segment.claim(wanted).is_ok()
                },
            );
            machine.segment.validate().unwrap();
        });
    }
}

// ---- Rows: blocks of several words -------------------------------------------

#[test]
fn a_block_of_two_words_and_a_page() {
    model(|| {
        let row: &'static Row = Box::leak(Box::new(Row::new(0)));
        let (whole, page) = both(|| row.claim(0, 7), || row.claim(64, 0).is_ok());
        assert!(whole.is_ok() != page);
        assert_eq!(row.count_free(), if page { 127 } else { 0 });
    });
}

#[test]
fn a_block_of_two_words_hands_its_content_on() {
    struct Content(Row, UnsafeCell<u32>);
    // SAFETY: the cell is only touched by whoever holds page 64; loom checks that.
    unsafe impl Sync for Content {}
    model(|| {
        let content: &'static _ = Box::leak(Box::new(Content(Row::new(!0), UnsafeCell::new(0))));
        // SAFETY: called while page 64 is held.
        let touch = || content.1.with_mut(|cell| unsafe { *cell += 1 });
        let (_, taken) = both(
            move || {
                touch();
                content.0.release(0, 7).unwrap();
            },
            move || content.0.claim(0, 7).map(|()| touch()).is_ok(),
        );
        assert_eq!(content.0.count_free(), if taken { 0 } else { 128 });
    });
}

#[test]
fn a_page_freed_wrongly_while_a_claim_of_two_words_fails() {
    model_of_three(|| {
        let row: &'static Row = Box::leak(Box::new(Row::new(0)));
        let page = thread::spawn(|| row.claim(64, 0).is_ok());
        let wrong = thread::spawn(|| row.release(5, 0).is_ok());
        let whole = row.claim(0, 7);
        let (page, wrong) = (page.join().unwrap(), wrong.join().unwrap());
        match whole {
            Ok(()) => assert_eq!(row.count_free(), u32::from(wrong)),
            Err(conflict) => {
                // Counted as free by whoever released it, so not by the claim.
                assert_eq!(conflict.released, u32::from(wrong));
                assert_eq!(row.count_free(), 128 - u32::from(page));
            }
        }
    });
}
