//! The interleavings of two and three CPUs over the protocol: split, merge, promise,
//! claim, free in parts.

extern crate std;

use super::kit::{END, Machine, block, both, check, model, model_of_three};
use crate::frames::directory::Directory;
use crate::frames::geometry::{GIANT_ORDER, HUGE_ORDER};
use crate::frames::request::Zones;
use crate::frames::row::Row;
use crate::frames::testkit::{directory, frames, want};
use crate::node::{NodeId, ZoneKind};
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;

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
        let [one, two, three] = parts;
        let others = [one, two].map(|part| thread::spawn(move || machine.free(part)));
        machine.free(three);
        for thread in others {
            thread.join().unwrap();
        }
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
    check(3, || {
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
    check(3, || {
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
        let take = || {
            directory.allocate(
                core::iter::once(NodeId(0)),
                Zones::up_to(ZoneKind::Normal),
                want(0),
            )
        };
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
