//! The interleavings of levels that are opened and merged, and of content that goes with its
//! frame from one level to another.

extern crate std;

use super::kit::{
    END, HUGE, Machine, block, both, check, long, model, model_of_three, three, whole_of_three,
};
use crate::frames::request::ZoneChoice;
use crate::frames::segment::statistics::Statistics;
use crate::frames::tests::kit::{blank_segment_with, frames, none_pinned, segments, want};
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};
use crate::frames::zone::segment::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
use core::iter::once;
use std::boxed::Box;

// ---- Open and merge --------------------------------------------------------

#[test]
fn two_open_the_same_giant_frame() {
    long(3, || {
        let machine = Machine::new(&[]);
        let (mine, other) = both(|| machine.allocate(0), || machine.allocate(0));
        let (mine, other) = (mine.unwrap(), other.unwrap());
        assert_ne!(mine, other);
        assert_eq!(machine.free_frames(), END - 2);
        machine.free(mine);
        machine.free(other);
        assert_eq!(machine.free_giants(), 1);
    });
}

#[test]
fn freeing_both_halves_merges_up_to_the_giant_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        both(move || machine.free(low), move || machine.free(high));
        assert_eq!(machine.free_frames(), END);
        assert_eq!(machine.free_giants(), 1);
        assert!(machine.allocate(GIANT_ORDER).is_some());
    });
}

#[test]
fn three_free_the_parts_of_the_last_huge_frame() {
    model_of_three(|| {
        let machine = Machine::new(&[]);
        let parts = [block(0, 6), block(64, 5), block(96, 5)];
        assert!(parts.iter().all(|&part| machine.take_at(part)));
        let [one, two, last] = parts;
        three(
            move || machine.free(one),
            move || machine.free(two),
            move || machine.free(last),
        );
        assert_eq!(machine.free_frames(), END);
        assert_eq!(machine.free_giants(), 1);
    });
}

/// What was split merges and is split again, beside a call that saw it split before.
fn split_again(machine: &'static Machine) {
    let held = machine.allocate(6).unwrap();
    let (mine, other) = both(
        move || {
            machine.free(held);
            machine.allocate(6)
        },
        || machine.allocate(6),
    );
    let (mine, other) = (mine.unwrap(), other.unwrap());
    assert_ne!(mine, other);
}

#[test]
fn a_huge_frame_seen_split_before_it_merges_and_is_split_again() {
    check(2, || {
        let machine = Machine::with_free(&[(0, HUGE)]);
        split_again(machine);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_giant_frame_seen_split_before_it_merges_and_is_split_again() {
    check(1, || {
        let machine = Machine::new(&[]);
        split_again(machine);
        assert_eq!(machine.free_frames(), END - 128);
    });
}

#[test]
fn an_allocated_huge_frame_seen_before_it_is_freed_and_split() {
    long(3, || {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let (mine, other) = both(
            move || {
                machine.free(block(0, HUGE_ORDER));
                machine.allocate_frames(6)
            },
            || machine.allocate_frames(5),
        );
        assert!(mine > 0);
        assert_eq!(machine.free_frames(), HUGE - mine - other);
    });
}

#[test]
fn a_giant_frame_taken_and_opened_again_beside_a_take_of_its_page() {
    check(2, || {
        let machine = Machine::new(&[]);
        let held = machine.allocate(0).unwrap();
        let (giant, taken) = both(
            move || {
                machine.free(held);
                let giant = machine.take_at(block(0, GIANT_ORDER));
                if giant {
                    machine.free(block(0, 0));
                }
                giant
            },
            || machine.take_at(block(0, 0)),
        );
        let free = if giant { 1 } else { END };
        assert_eq!(machine.free_frames(), free - u64::from(taken));
    });
}

#[test]
fn parts_of_an_allocated_giant_frame_are_freed_at_once() {
    model(|| {
        let machine = Machine::new(&[]);
        assert!(machine.allocate(GIANT_ORDER).is_some());
        both(|| machine.free(block(64, 6)), || machine.free(block(0, 6)));
        assert_eq!(machine.free_frames(), HUGE);
        assert_eq!(machine.free_huges(), 1);
        machine.free(block(128, HUGE_ORDER));
        machine.free(block(256, HUGE_ORDER + 1));
        assert_eq!(machine.free_giants(), 1);
    });
}

#[test]
fn two_start_the_same_segment_beside_an_absent_one() {
    model(|| {
        let extents = [(frames(0, END), 0, ZoneKind::Normal)];
        let online: &'static _ = Box::leak(Box::new(segments(
            &extents,
            &[frames(1, 2), frames(HUGE, END)],
        )));
        let take = move || {
            online.allocate(
                once(NodeId(0)),
                ZoneChoice::up_to(ZoneKind::Normal),
                want(0),
                None,
            )
        };
        let (mine, other) = both(take, take);
        assert!(mine.is_some() && other.is_some() && mine != other);
        let segment = online.iter().next().unwrap();
        let segment = segment.online().unwrap();
        assert_eq!(segment.statistics().free_frames, 125);
        segment.validate().unwrap();
    });
}

// ---- Content goes with the frame -------------------------------------------

#[test]
fn a_freed_huge_frame_brings_its_content() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        let held = machine.allocate(HUGE_ORDER).unwrap();
        both(
            || {
                let found = machine.allocate(0).or_else(|| machine.allocate(6));
                found.map(|found| machine.free(found))
            },
            move || machine.free(held),
        );
        assert_eq!(machine.free_frames(), HUGE);
    });
}

#[test]
fn pages_that_merge_bring_their_content_to_the_owner_of_the_huge_frame() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        let low = machine.allocate(6).unwrap();
        let high = machine.allocate(6).unwrap();
        let (taken, ()) = both(
            move || {
                machine.free(low);
                machine.allocate_frames(HUGE_ORDER)
            },
            move || machine.free(high),
        );
        assert_eq!(machine.free_frames(), HUGE - taken);
    });
}

#[test]
fn a_giant_frame_that_merges_brings_its_content() {
    model(|| {
        let machine = Machine::new(&[]);
        let low = machine.allocate(GIANT_ORDER - 1).unwrap();
        let high = machine.allocate(GIANT_ORDER - 1).unwrap();
        machine.free(low);
        let (taken, ()) = both(
            || machine.allocate_frames(GIANT_ORDER),
            move || machine.free(high),
        );
        assert_eq!(machine.free_frames(), END - taken);
    });
}

#[test]
fn a_freed_huge_frame_brings_its_content_to_both_its_next_owners() {
    whole_of_three(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        let held = machine.allocate(HUGE_ORDER).unwrap();
        let (one, two, ()) = three(
            || machine.allocate_frames(6),
            || machine.allocate_frames(6),
            move || machine.free(held),
        );
        assert_eq!(machine.free_frames(), HUGE - one - two);
    });
}

#[test]
fn a_freed_giant_frame_brings_its_content_to_both_its_next_owners() {
    model_of_three(|| {
        let machine = Machine::new(&[]);
        let held = machine.allocate(GIANT_ORDER).unwrap();
        let (one, two, ()) = three(
            || machine.allocate_frames(6),
            || machine.allocate_frames(HUGE_ORDER),
            move || machine.free(held),
        );
        assert_eq!(machine.free_frames(), END - one - two);
    });
}

// ---- A given block -------------------------------------------------------------

#[test]
fn a_given_page_and_any_page_are_never_the_same() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2)]);
        let (any, given) = both(
            || machine.allocate(0).unwrap(),
            || machine.take_at(block(0, 0)),
        );
        assert_eq!(given, any.start.get() == 1);
        assert_eq!(machine.free_frames(), if given { 0 } else { 1 });
    });
}

#[test]
fn a_given_page_of_a_whole_giant_frame_beside_a_huge_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        let (huge, given) = both(
            || machine.allocate(HUGE_ORDER).unwrap(),
            || machine.take_at(block(65, 0)),
        );
        assert_eq!(given, huge.start.get() != 0);
        assert_eq!(machine.free_frames(), END - HUGE - u64::from(given));
    });
}

#[test]
fn a_given_block_that_is_free_all_the_time_is_taken() {
    for wanted in [
        block(256, HUGE_ORDER),
        block(256, 0),
        block(256, HUGE_ORDER + 1),
    ] {
        check(2, move || {
            let machine = Machine::new(&[]);
            let held = machine.allocate(6).unwrap();
            let (taken, ()) = both(
                move || machine.take_at(wanted),
                move || {
                    machine.free(held);
                    assert!(machine.take_at(block(64, 6)));
                },
            );
            assert!(taken);
            assert_eq!(machine.free_frames(), END - 64 - wanted.frames());
        });
    }
}

#[test]
fn three_cpus_open_take_and_give_back() {
    model_of_three(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        let (_, given, _) = three(
            || machine.free(machine.allocate(0).unwrap()),
            || machine.take_at(block(64, 6)),
            || {
                machine
                    .take_pages(2)
                    .iter()
                    .for_each(|page| machine.free(block(page.get(), 0)))
            },
        );
        assert_eq!(machine.free_frames(), if given { 64 } else { HUGE });
    });
}

/// No call gets past the state of a segment whose memory is not there.
#[test]
fn an_absent_segment_is_never_written_nor_taken_from() {
    model(|| {
        let segment = blank_segment_with(frames(0, END), none_pinned());
        let absent: &'static _ = Box::leak(Box::new(ZoneSegment::new(
            segment,
            NodeId(0),
            ZoneKind::Normal,
            None,
        )));
        let look =
            move || absent.online().is_none() && absent.statistics() == Statistics::default();
        assert_eq!(both(look, look), (true, true));
        assert_eq!(absent.written_bytes(), 0);
    });
}
