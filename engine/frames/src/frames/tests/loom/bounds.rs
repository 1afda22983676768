//! The interleavings of calls that raise and lower the bounds on blocks of pages, and of
//! searches that rely on them. What holds for pairs (order 1) holds for every order.

extern crate std;

use super::kit::{HUGE, Machine, block, both, check, model, model_of_three, three};
use crate::addr::Frame;
use crate::frames::word::Mobility::Unmovable;
use crate::frames::word::geometry::HUGE_ORDER;

#[test]
fn neighbours_freed_at_once_are_found_as_a_pair() {
    model(|| {
        let machine = Machine::with_free(&[(2, 4)]);
        assert!(machine.take_at(block(2, 0)) && machine.take_at(block(3, 0)));
        both(|| machine.free(block(2, 0)), || machine.free(block(3, 0)));
        assert_eq!(machine.free_frames_with(1), 2);
    });
}

#[test]
fn neighbours_flushed_at_once_are_found_as_a_pair() {
    model(|| {
        let machine = Machine::with_free(&[(2, 4), (9, 10)]);
        assert!(machine.take_at(block(2, 1)) && machine.take_at(block(9, 0)));
        both(|| machine.flush(&[2, 9], 0), || machine.flush(&[3], 0));
        assert_eq!(machine.free_frames_with(1), 3);
    });
}

#[test]
fn a_pair_freed_while_the_bound_of_its_huge_frame_is_lowered_is_found() {
    model(|| {
        let machine = Machine::with_free(&[(4, 5), (6, 7), (8, 10)]);
        assert!(machine.take_at(block(8, 1)));
        let ((), ()) = both(
            || machine.segment().lower_bound(0, 1),
            || machine.free(block(8, 1)),
        );
        assert_eq!(machine.free_frames_with(1), 4);
    });
}

#[test]
fn a_pair_freed_while_the_bound_of_its_giant_frame_is_lowered_is_found() {
    model(|| {
        let machine = Machine::with_free(&[(4, 5), (6, 7), (8, 10)]);
        assert!(machine.take_at(block(8, 1)));
        machine.segment().lower_bound(0, 1);
        let ((), ()) = both(
            || machine.segment().lower_giant_bound(0, Unmovable, 1),
            || machine.free(block(8, 1)),
        );
        assert_eq!(machine.free_frames_with(1), 4);
    });
}

/// Both bounds are lowered at once, by two CPUs, while a third one frees the pair.
#[test]
fn a_pair_freed_while_both_bounds_are_lowered_is_found() {
    check(2, || {
        let machine = Machine::with_free(&[(4, 5), (6, 7), (8, 10)]);
        assert!(machine.take_at(block(8, 1)));
        three(
            || machine.segment().lower_bound(0, 1),
            || machine.segment().lower_giant_bound(0, Unmovable, 1),
            || machine.free(block(8, 1)),
        );
        assert_eq!(machine.free_frames_with(1), 4);
    });
}

#[test]
fn a_pair_freed_beside_a_search_for_it_is_found_afterwards() {
    model(|| {
        let machine = Machine::with_free(&[(4, 5), (6, 7), (8, 10)]);
        assert!(machine.take_at(block(8, 1)));
        let (pair, ()) = both(|| machine.allocate(1), || machine.free(block(8, 1)));
        if pair.is_some() {
            assert_eq!(machine.free_frames(), 2);
        } else {
            assert_eq!(machine.free_frames_with(1), 4);
        }
    });
}

#[test]
fn a_pair_flushed_in_another_huge_frame_is_found() {
    model(|| {
        // A page of it is free all the time, so that nothing but the bounds says that more is.
        let machine = Machine::with_free(&[(4, 5), (6, 7), (256, 258), (260, 261)]);
        assert!(machine.take_at(block(256, 1)));
        let (pair, refused) = both(|| machine.allocate(1), || machine.flush(&[256, 257], 0));
        assert_eq!(refused, 0);
        if let Some(pair) = pair {
            machine.free(pair);
        }
        assert_eq!(machine.free_frames_with(1), 5);
    });
}

/// The first pair of an allocated huge frame is freed while the last page of another huge
/// frame is taken, which is what set the giant frame's bound to nothing.
#[test]
fn a_pair_that_opens_a_huge_frame_is_found_beside_the_last_page_of_another() {
    model_of_three(|| {
        let machine = Machine::with_free(&[(0, 1), (HUGE, 2 * HUGE)]);
        assert!(machine.take_at(block(HUGE, HUGE_ORDER)));
        let (last, (), pair) = three(
            || machine.take_at(block(0, 0)),
            || machine.free(block(HUGE, 1)),
            || machine.allocate(1),
        );
        assert!(last);
        if pair.is_some() {
            assert_eq!(machine.free_frames(), 0);
        } else {
            assert_eq!(machine.free_frames_with(1), 2);
        }
    });
}

#[test]
fn two_that_lower_the_bounds_at_once_leave_them_true() {
    check(2, || {
        // Four side by side and some more; and eight, all there is of their huge frame.
        let free = [(4, 8), (9, 10), (11, 12), (13, 14), (15, 16), (128, 136)];
        let machine = Machine::with_free(&free);
        let (eight, large) = both(|| machine.allocate(3), || machine.allocate(5));
        assert!(eight.is_some() && large.is_none());
        assert_eq!(machine.free_frames_with(2), 8);
    });
}

#[test]
fn pages_taken_and_freed_while_the_bound_is_lowered() {
    check(2, || {
        let machine = Machine::with_free(&[(4, 5), (6, 7)]);
        let (pair, ()) = both(
            || machine.allocate(1),
            || {
                let pages = machine.take_pages(2);
                pages
                    .iter()
                    .for_each(|page: &Frame| machine.free(block(page.get(), 0)));
            },
        );
        assert!(pair.is_none(), "no two are side by side");
        assert_eq!(machine.free_frames(), 2);
    });
}

/// A huge frame that is full and partial again starts its bound anew.
#[test]
fn a_pair_freed_beside_the_last_page_taken_is_found() {
    check(2, || {
        let machine = Machine::with_free(&[(0, 1), (8, 10)]);
        assert!(machine.take_at(block(8, 0)) && machine.take_at(block(9, 0)));
        three(
            || assert!(machine.take_at(block(0, 0))),
            || machine.free(block(8, 0)),
            || machine.free(block(9, 0)),
        );
        assert_eq!(machine.free_frames_with(1), 2);
    });
}
