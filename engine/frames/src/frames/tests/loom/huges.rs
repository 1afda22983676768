//! The interleavings of whole huge frames: one, many, or blocks of several of them.

extern crate std;

use super::kit::{END, HUGE, Machine, block, both, model, model_of_three, three};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_ORDER};

#[test]
fn two_take_huge_frames_of_a_whole_giant_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        let (mine, other) = both(|| machine.take_huges(2), || machine.take_huges(2));
        assert!(mine.iter().all(|huge| !other.contains(huge)));
        let taken = (mine.len() + other.len()) as u64;
        assert!(taken >= 2, "the slower one may come out empty");
        assert_eq!(machine.free_frames(), END - HUGE * taken);
    });
}

#[test]
fn huge_frames_are_taken_while_the_giant_frame_is_opened() {
    for order in [0, HUGE_ORDER + 1] {
        model(move || {
            let machine = Machine::new(&[]);
            let (taken, other) = both(|| machine.take_huges(2), move || machine.allocate(order));
            // At least two huge frames are left; they are a pair, or one of each.
            let is_apart = taken.len() == 2 && taken[0].get() / 256 != taken[1].get() / 256;
            assert!(other.is_some() || order > 0 && is_apart);
            let other = other.map_or(0, Block::frames);
            assert_eq!(
                machine.free_frames(),
                END - HUGE * taken.len() as u64 - other
            );
        });
    }
}

#[test]
fn huge_frames_flushed_by_two_merge_to_a_giant_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        assert_eq!(machine.take_huges(4).len(), 4);
        let refused = both(
            || machine.flush(&[0, HUGE], HUGE_ORDER),
            || machine.flush(&[2 * HUGE, 3 * HUGE], HUGE_ORDER),
        );
        assert_eq!(refused, (0, 0));
        assert_eq!(machine.free_giants(), 1);
        assert_eq!(machine.free_frames_with(GIANT_ORDER), END);
    });
}

#[test]
fn huge_frames_flushed_bring_their_content_to_the_owner_of_the_giant_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        assert_eq!(machine.take_huges(4).len(), 4);
        let (giant, refused) = both(
            || machine.allocate_frames(GIANT_ORDER),
            || machine.flush(&[0, HUGE, 2 * HUGE, 3 * HUGE], HUGE_ORDER),
        );
        assert_eq!(refused, 0);
        assert_eq!(machine.free_frames(), END - giant);
    });
}

/// The count of a giant frame is raised while the CPU that opens it writes the words below.
#[test]
fn a_huge_frame_is_flushed_while_its_giant_frame_is_opened_for_another() {
    model(|| {
        let machine = Machine::new(&[]);
        // Opened once, so that its words are valid for ever, then allocated as one.
        let opened = machine.allocate(0).unwrap();
        machine.free(opened);
        assert!(machine.take_at(block(0, GIANT_ORDER)));
        let (refused, ()) = both(
            || machine.flush(&[0], HUGE_ORDER),
            || machine.free(block(2 * HUGE, HUGE_ORDER)),
        );
        assert_eq!(refused, 0);
        assert_eq!(machine.free_frames_with(HUGE_ORDER), 2 * HUGE);
        assert_eq!(machine.free_huges(), 2);
    });
}

#[test]
fn all_huge_frames_of_a_giant_frame_are_flushed_while_it_is_opened() {
    model_of_three(|| {
        let machine = Machine::new(&[]);
        let opened = machine.allocate(0).unwrap();
        machine.free(opened);
        assert!(machine.take_at(block(0, GIANT_ORDER)));
        let (one, other, ()) = three(
            || machine.flush(&[0], HUGE_ORDER),
            || machine.flush(&[HUGE], HUGE_ORDER),
            || machine.free(block(2 * HUGE, HUGE_ORDER + 1)),
        );
        assert_eq!((one, other), (0, 0));
        assert_eq!(machine.free_giants(), 1);
        assert_eq!(machine.free_frames_with(GIANT_ORDER), END);
    });
}

#[test]
fn two_take_the_last_huge_frames() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2 * HUGE)]);
        let (mine, other) = both(
            || machine.allocate(HUGE_ORDER),
            || machine.allocate(HUGE_ORDER),
        );
        assert!(mine.is_some() && other.is_some() && mine != other);
        assert_eq!(machine.allocate(0), None);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_block_of_two_huge_frames_takes_both_or_none() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2 * HUGE)]);
        let (pair, given) = both(
            || machine.allocate_frames(HUGE_ORDER + 1),
            || machine.take_at(block(HUGE, HUGE_ORDER)),
        );
        assert!((pair > 0) != given);
        assert_eq!(machine.free_frames(), if given { HUGE } else { 0 });
    });
}

#[test]
fn a_block_of_two_huge_frames_that_is_not_taken_leaves_all_free() {
    model(|| {
        let machine = Machine::with_free(&[(0, 3 * HUGE)]);
        let (pair, huge) = both(
            || machine.allocate_frames(HUGE_ORDER + 1),
            || machine.allocate(HUGE_ORDER).map(Block::frames),
        );
        assert_eq!(huge, Some(HUGE), "three were free");
        assert_eq!(machine.free_frames(), 2 * HUGE - pair);
    });
}

#[test]
fn of_two_that_take_the_same_giant_frame_one_has_it() {
    for zeroed in [false, true] {
        model(move || {
            let machine = Machine::new(&[]);
            let (one, other) = both(
                || machine.allocate(GIANT_ORDER),
                move || match zeroed {
                    false => machine.allocate(GIANT_ORDER),
                    true => machine.allocate_zeroed(GIANT_ORDER),
                },
            );
            assert!(one.is_some() != other.is_some());
            assert_eq!(machine.free_frames(), 0);
            machine.free(block(0, GIANT_ORDER));
            assert_eq!((machine.free_frames(), machine.free_giants()), (END, 1));
        });
    }
}
