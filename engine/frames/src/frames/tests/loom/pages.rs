//! The interleavings of the pages of a split huge frame: taken and given back, one or many at
//! a time, beside the word that says whether any is free, merges, and the first page of an
//! allocated huge frame that is freed.

extern crate std;

use super::kit::{HUGE, Machine, block, both, check, model, model_of_three, three};
use crate::addr::{Frame, FrameRange};
use crate::frames::tests::kit::frames;
use crate::frames::word::geometry::{Block, HUGE_ORDER};
use std::vec::Vec;

fn is_disjoint(one: &[Frame], other: &[Frame]) -> bool {
    one.iter().all(|frame| !other.contains(frame))
}

// ---- Full, partial -----------------------------------------------------------

#[test]
fn the_last_page_is_taken_beside_a_page_freed() {
    model(|| {
        let machine = Machine::with_free(&[(0, 1), (64, 65)]);
        assert!(machine.take_at(block(64, 0)));
        let (taken, ()) = both(
            || machine.take_at(block(0, 0)),
            || machine.free(block(64, 0)),
        );
        assert!(taken);
        assert_eq!(machine.free_frames_with(0), 1);
    });
}

#[test]
fn the_last_page_is_taken_beside_two_pages_freed() {
    check(2, || {
        let machine = Machine::with_free(&[(0, 1), (64, 66)]);
        assert!(machine.take_at(block(64, 1)));
        three(
            || assert!(machine.take_at(block(0, 0))),
            || machine.free(block(64, 0)),
            || machine.free(block(65, 0)),
        );
        assert_eq!(machine.free_frames_with(1), 2);
    });
}

#[test]
fn the_last_pages_of_both_words_are_taken_at_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, 1), (64, 65)]);
        let taken = both(
            || machine.take_at(block(0, 0)),
            || machine.take_at(block(64, 0)),
        );
        assert_eq!(taken, (true, true));
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_page_is_freed_and_taken_in_a_full_huge_frame() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2)]);
        assert!(machine.take_at(block(0, 1)));
        let (taken, ()) = both(
            || {
                machine.free(block(0, 0));
                machine.take_at(block(0, 0))
            },
            || machine.free(block(1, 0)),
        );
        assert!(taken);
        assert_eq!(machine.free_frames_with(0), 1);
    });
}

#[test]
fn every_huge_frame_is_partial_and_one_is_full_and_partial_again() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2), (130, 131), (258, 259), (386, 387)]);
        assert!(machine.take_at(block(0, 0)));
        both(
            || assert_eq!(machine.take_pages(1).len(), 1),
            || machine.free(block(0, 0)),
        );
        assert_eq!(machine.free_frames(), 4);
    });
}

#[test]
fn the_last_page_goes_from_one_owner_to_the_next() {
    model(|| {
        let machine = Machine::with_free(&[(0, 1)]);
        let held = machine.allocate(0).unwrap();
        let (found, ()) = both(|| machine.allocate(0), move || machine.free(held));
        assert_eq!(machine.free_frames(), u64::from(found.is_none()));
    });
}

// ---- Many at a time ------------------------------------------------------------

#[test]
fn two_take_pages_of_the_same_words() {
    model(|| {
        let machine = Machine::with_free(&[(60, 66)]);
        let (mine, other) = both(|| machine.take_pages(4), || machine.take_pages(4));
        assert!(is_disjoint(&mine, &other));
        let taken = (mine.len() + other.len()) as u64;
        assert_eq!(machine.free_frames(), 6 - taken);
    });
}

#[test]
fn pages_are_taken_beside_a_given_block() {
    for given in [block(64, 0), block(62, 1)] {
        model(move || {
            let machine = Machine::with_free(&[(62, 66)]);
            let (taken, given) = both(
                || machine.take_pages(3).len() as u64,
                move || u64::from(machine.take_at(given)) * given.frames(),
            );
            assert_eq!(machine.free_frames(), 4 - taken - given);
        });
    }
}

#[test]
fn pages_are_taken_beside_a_block_of_several() {
    model(|| {
        let machine = Machine::with_free(&[(62, 67)]);
        let (taken, pair) = both(|| machine.take_pages(3), || machine.allocate_frames(1));
        assert_eq!(machine.free_frames(), 5 - taken.len() as u64 - pair);
    });
}

#[test]
fn pages_are_taken_while_the_last_allocated_one_is_freed() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        let held = machine.allocate(6).unwrap();
        let (taken, ()) = both(
            || machine.take_pages(2).len() as u64,
            move || machine.free(held),
        );
        assert_eq!(machine.free_frames(), HUGE - taken);
    });
}

#[test]
fn a_page_freed_brings_its_content_to_a_refill() {
    model(|| {
        let machine = Machine::with_free(&[(64, 66)]);
        assert!(machine.take_at(block(64, 0)));
        let (taken, refused) = both(|| machine.take_pages(2), || machine.flush(&[64], 0));
        assert_eq!(refused, 0);
        assert_eq!(machine.free_frames(), 2 - taken.len() as u64);
    });
}

// ---- Merge ---------------------------------------------------------------------

#[test]
fn two_free_the_last_two_words() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        both(|| machine.free(block(0, 6)), || machine.free(block(64, 6)));
        assert_eq!(machine.free_frames_with(HUGE_ORDER), HUGE);
        assert_eq!(machine.free_huges(), 1);
    });
}

#[test]
fn two_flush_pages_of_the_same_word_that_are_the_last() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        machine.free(block(64, 6));
        let low: Vec<_> = (0..32).collect();
        let high: Vec<_> = (32..64).collect();
        let refused = both(
            move || machine.flush(&low, 0),
            move || machine.flush(&high, 0),
        );
        assert_eq!(refused, (0, 0));
        assert_eq!(machine.free_frames_with(HUGE_ORDER), HUGE);
        assert_eq!(machine.free_huges(), 1);
    });
}

#[test]
fn a_huge_frame_merges_beside_a_page_taken_of_it() {
    for order in [0, 6] {
        model(move || {
            let machine = Machine::with_free(&[(0, HUGE)]);
            assert!(machine.take_at(block(64, 0)));
            let (taken, ()) = both(
                move || machine.allocate(order).expect("it was free all the time"),
                || machine.free(block(64, 0)),
            );
            assert_eq!(machine.free_frames(), HUGE - taken.frames());
            machine.free(taken);
            assert_eq!(machine.free_frames(), HUGE);
            assert_eq!(machine.free_huges(), 1);
        });
    }
}

#[test]
fn a_huge_frame_merges_beside_a_page_taken_and_given_back() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(64, 0)));
        both(
            || {
                if machine.take_at(block(1, 0)) {
                    machine.free(block(1, 0));
                }
            },
            || machine.free(block(64, 0)),
        );
        assert_eq!(machine.free_frames(), HUGE);
        assert_eq!(machine.free_huges(), 1);
    });
}

#[test]
fn a_huge_frame_merges_beside_two_pages_taken_of_both_words() {
    model_of_three(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(64, 0)));
        let (one, other, ()) = three(
            || machine.take_at(block(0, 0)),
            || machine.take_at(block(65, 0)),
            || machine.free(block(64, 0)),
        );
        assert_eq!(
            machine.free_frames(),
            HUGE - u64::from(one) - u64::from(other)
        );
    });
}

// ---- Frames in a row -------------------------------------------------------------

#[test]
fn two_rows_are_taken_and_freed() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        // Of the huge frame as a whole, and of a block of it.
        let (long, short) = both(
            || machine.allocate_row(HUGE_ORDER, 70),
            || machine.allocate_row(2, 3),
        );
        let held: u64 = [long, short]
            .into_iter()
            .flatten()
            .map(FrameRange::count)
            .sum();
        assert!(held >= 3);
        assert_eq!(machine.free_frames(), HUGE - held);
        both(
            move || long.into_iter().for_each(|row| machine.free_row(row)),
            move || short.into_iter().for_each(|row| machine.free_row(row)),
        );
        assert_eq!(machine.free_frames(), HUGE);
    });
}

#[test]
fn two_rows_of_a_split_huge_frame_are_freed() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        both(
            || machine.free_row(frames(0, 70)),
            || machine.free_row(frames(70, 128)),
        );
        assert_eq!(machine.free_frames(), HUGE);
    });
}

#[test]
fn two_rows_of_an_allocated_huge_frame_are_freed() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        both(
            || machine.free_row(frames(0, 70)),
            || machine.free_row(frames(70, 128)),
        );
        assert_eq!(machine.free_frames(), HUGE);
    });
}

#[test]
fn a_row_is_freed_beside_a_request_for_a_part_of_it() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        let ((), found) = both(
            || machine.free_row(frames(60, 70)),
            || machine.allocate_row(2, 3),
        );
        let found = found.map_or(0, FrameRange::count);
        assert_eq!(machine.free_frames(), 10 - found);
    });
}

// ---- Opening an allocated huge frame ---------------------------------------------

#[test]
fn an_allocated_huge_frame_is_opened_by_two_frees() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        both(|| machine.free(block(0, 0)), || machine.free(block(1, 0)));
        assert_eq!(machine.free_frames_with(1), 2);
    });
}

#[test]
fn an_allocated_huge_frame_is_opened_by_two_flushes() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let refused = both(
            || machine.flush(&[0, 1, 2], 0),
            || machine.flush(&[64, 3, 4], 0),
        );
        assert_eq!(refused, (0, 0));
        assert_eq!(machine.free_frames(), 6);
    });
}

#[test]
fn the_page_that_opens_a_huge_frame_is_taken_at_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let (found, ()) = both(|| machine.allocate_frames(0), || machine.free(block(5, 0)));
        assert_eq!(machine.free_frames(), 1 - found);
    });
}

#[test]
fn half_of_an_allocated_huge_frame_is_freed_beside_a_request_for_it() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let ((), found) = both(|| machine.free(block(0, 6)), || machine.allocate_frames(6));
        machine.free(block(64, 6));
        assert_eq!(machine.free_frames(), HUGE - found);
    });
}

#[test]
fn the_rest_of_a_bump_block_is_flushed_while_another_cpu_frees_its_pages() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert_eq!(machine.take_huges(1).len(), 1);
        // Pages 0..66 were handed out, the others not yet.
        let (refused, ()) = both(
            || machine.flush_run(frames(66, 128)),
            || {
                machine.free(block(64, 1));
                machine.free(block(0, 6));
            },
        );
        assert_eq!(refused, 0);
        assert_eq!(machine.free_frames_with(HUGE_ORDER), HUGE);
        assert_eq!(machine.free_huges(), 1);
    });
}

#[test]
fn pages_cut_from_a_bump_block_that_another_cpu_opened_have_one_owner() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert_eq!(machine.take_huges(1).len(), 1);
        let ((), taken) = both(
            || {
                // Cut from the bump block: no shared word is read.
                machine.touch(frames(64, 65));
                machine.free(block(64, 0));
            },
            || {
                machine.free(block(0, 6));
                machine.take_pages(65).len() as u64
            },
        );
        assert_eq!(machine.free_frames(), 65 - taken);
    });
}

// ---- Flush beside other calls ----------------------------------------------------

#[test]
fn pages_are_flushed_and_merge_beside_a_request() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 1)));
        let (refused, page) = both(|| machine.flush(&[0, 1], 0), || machine.allocate(0));
        assert!(refused == 0 && page.is_some());
        assert_eq!(machine.free_frames(), HUGE - page.map_or(0, Block::frames));
    });
}
