//! The interleavings that must not hide what is free: requests and claims beside calls that
//! fail, give back, or move a block from here to there.

extern crate std;

use super::kit::{END, Machine, block, both, check, model};
use crate::frames::allocate::Search;
use crate::frames::directory::Directory;
use crate::frames::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::request::Zones;
use crate::frames::testkit::{directory, frames, want};
use crate::node::{NodeId, ZoneKind};
use std::boxed::Box;
use std::vec::Vec;

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
        let take = || {
            directory.allocate(
                core::iter::once(NodeId(0)),
                Zones::up_to(ZoneKind::Normal),
                want(0),
            )
        };
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
    // Long: two preemptions show what it is there for.
    check(2, || {
        // 10 pages are free, four of them side by side, no eight.
        let mut reserved: Vec<_> = (0..6).map(|at| frames(2 * at + 4, 2 * at + 5)).collect();
        reserved.push(frames(16, END));
        let extents = [(frames(0, END), 0, ZoneKind::Normal)];
        let directory: &'static Directory<'static> =
            Box::leak(Box::new(directory(&extents, &reserved)));
        let take = |order| {
            directory.allocate(
                core::iter::once(NodeId(0)),
                Zones::up_to(ZoneKind::Normal),
                want(order),
            )
        };
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
            || {
                directory.allocate(
                    core::iter::once(NodeId(0)),
                    Zones::up_to(ZoneKind::Normal),
                    want(0),
                )
            },
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

#[test]
fn a_giant_that_wanders_is_not_missed_though_the_words_add_up_to_the_same() {
    model(|| {
        // Of the first giant frame two huge frames are free, the second is whole.
        let extents = [(frames(0, 2 * END), 0, ZoneKind::Normal)];
        let directory: &'static Directory<'static> =
            Box::leak(Box::new(directory(&extents, &[frames(0, END / 2)])));
        let segment = directory.places[0].segment();
        let giant = || {
            let nodes = core::iter::once(NodeId(0));
            directory.allocate(nodes, Zones::up_to(ZoneKind::Normal), want(GIANT_ORDER))
        };
        let (got, ()) = both(giant, || {
            // Two and three huge frames are free, then three and two; one giant frame always.
            segment.free(block(0, HUGE_ORDER + 1)).unwrap();
            for start in [END, 0] {
                let huge = block(start, HUGE_ORDER);
                if segment.claim(huge).is_ok() {
                    segment.free(huge).unwrap();
                }
            }
            let _ = segment.claim(block(END, HUGE_ORDER + 1));
        });
        assert!(got.is_some());
        segment.validate().unwrap();
    });
}
