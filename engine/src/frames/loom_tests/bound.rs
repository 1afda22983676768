//! The interleavings of those who raise and lower the bounds on blocks of pages, and of who
//! believes them. On the machine of [`super::bulk`], by its rules.

extern crate std;

use super::bulk::{Ground, all_but};
use super::kit::{block, both, check, model};
use crate::addr::Frame;

#[test]
fn neighbours_freed_at_once_are_found_as_a_pair() {
    model(|| {
        let ground = Ground::new(&all_but(&[(2, 4)]));
        assert!(ground.claim(block(2, 0)) && ground.claim(block(3, 0)));
        both(|| ground.free(block(2, 0)), || ground.free(block(3, 0)));
        assert_eq!(ground.settled_with(1), 2);
    });
}

#[test]
fn neighbours_given_back_at_once_are_found_as_a_pair() {
    model(|| {
        let ground = Ground::new(&all_but(&[(2, 4), (9, 10)]));
        assert!(ground.claim(block(2, 1)) && ground.claim(block(9, 0)));
        both(|| ground.give_pages(&[2, 9]), || ground.give_pages(&[3]));
        assert_eq!(ground.settled_with(1), 3);
    });
}

#[test]
fn a_promise_that_takes_another_page_leaves_the_bound() {
    model(|| {
        // Four pages in one block are free, and then a page before them.
        let ground = Ground::new(&all_but(&[(0, 1), (4, 8)]));
        assert!(ground.claim(block(0, 0)));
        let (taken, ()) = both(|| ground.take_pages(1), || ground.free(block(0, 0)));
        if taken == [Frame::new(0)] {
            assert_eq!(ground.settled_with(2), 4);
        } else {
            assert_eq!(ground.settled(), 4);
        }
    });
}

#[test]
fn a_block_that_comes_back_while_the_bound_is_lowered_is_found() {
    model(|| {
        // Two pages are free, not side by side; then two that are.
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7), (8, 10)]));
        assert!(ground.claim(block(8, 1)));
        let (pair, ()) = both(|| ground.allocate(1), || ground.free(block(8, 1)));
        if pair.is_some() {
            assert_eq!(ground.settled(), 2);
        } else {
            assert_eq!(ground.settled_with(1), 4);
        }
    });
}

#[test]
fn a_block_of_another_huge_frame_that_comes_back_is_found() {
    model(|| {
        // A page of it is free all the time, so that nothing but the bounds says that more is.
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7), (256, 258), (260, 261)]));
        assert!(ground.claim(block(256, 1)));
        let (pair, ()) = both(
            || ground.allocate(1),
            || assert_eq!(ground.give_pages(&[256, 257]), 0),
        );
        let () = pair.map_or((), |pair| ground.free(pair));
        assert_eq!(ground.settled_with(1), 5);
    });
}

#[test]
fn two_that_lower_the_bounds_at_once_leave_them_true() {
    check(3, || {
        // Four side by side and some more; and eight, all there is of their huge frame.
        let ground = Ground::new(&all_but(&[
            (4, 8),
            (9, 10),
            (11, 12),
            (13, 14),
            (15, 16),
            (128, 136),
        ]));
        let (eight, large) = both(|| ground.allocate(3), || ground.allocate(5));
        assert!(eight.is_some() && large.is_none());
        assert_eq!(ground.settled_with(2), 8);
    });
}

#[test]
fn pages_taken_and_given_back_while_the_bound_is_lowered() {
    check(2, || {
        // The huge frame is emptied and freed into while somebody measures it.
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7)]));
        let (pair, ()) = both(
            || ground.allocate(1),
            || {
                for frame in ground.take_pages(2) {
                    ground.free(block(frame.get(), 0));
                }
            },
        );
        assert!(pair.is_none(), "no two are side by side");
        assert_eq!(ground.settled(), 2);
    });
}

#[test]
fn all_huge_frames_partly_free_and_one_emptied_and_freed_into() {
    model(|| {
        let free = [(0, 2), (130, 131), (258, 259), (386, 387)];
        let ground = Ground::new(&all_but(&free));
        assert!(ground.claim(block(0, 0)));
        // For a moment it counts twice among the partly free ones.
        both(
            || assert_eq!(ground.take_pages(1).len(), 1),
            || ground.free(block(0, 0)),
        );
        assert_eq!(ground.settled(), 4);
    });
}
