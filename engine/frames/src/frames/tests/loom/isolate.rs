//! The interleavings of isolation with everything that changes the same words.

extern crate std;

use super::kit::{END, HUGE, Machine, block, both, check, model, model_of_three, three};
use crate::frames::segment::Segment;
use crate::frames::tests::kit::{frames, segment};
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};
use std::boxed::Box;

/// Isolates the first huge frame, lets `other` run at the same time, and ends the
/// isolation, at the same time or after. `other` says how many frames it keeps.
fn beside(
    free: &'static [(u64, u64)],
    set_up: impl Fn(&Machine) + Copy + Sync + Send + 'static,
    other: impl Fn(&Machine) -> u64 + Copy + Sync + Send + 'static,
) {
    for also_ends in [false, true] {
        model(move || {
            let machine = Machine::with_free(free);
            let before = machine.segment().statistics().free_frames;
            set_up(machine);
            let (_, kept) = both(
                move || {
                    machine.segment().isolate(0).unwrap();
                    if also_ends {
                        machine.segment().end_isolation(0);
                    }
                },
                move || other(machine),
            );
            if !also_ends {
                machine.segment().validate().unwrap();
                machine.segment().end_isolation(0);
            }
            assert_eq!(machine.free_frames(), before - kept);
        });
    }
}

/// One huge frame.
const ONE: &[(u64, u64)] = &[(0, HUGE)];

#[test]
fn a_huge_frame_is_isolated_beside_a_request() {
    for order in [HUGE_ORDER, 0, 1] {
        beside(ONE, |_| {}, move |machine| machine.allocate_frames(order));
    }
}

#[test]
fn a_split_huge_frame_is_isolated_beside_a_request() {
    for order in [0, 1] {
        beside(
            &[(0, 1), (4, 6)],
            |_| {},
            move |machine| machine.allocate_frames(order),
        );
    }
}

#[test]
fn a_split_huge_frame_is_isolated_beside_a_refill() {
    beside(
        &[(62, 66)],
        |_| {},
        |machine| machine.take_pages(3).len() as u64,
    );
}

#[test]
fn a_huge_frame_of_a_whole_giant_frame_is_isolated_beside_a_request_for_that() {
    beside(
        &[(0, END)],
        |_| {},
        |machine| machine.allocate_frames(GIANT_ORDER),
    );
}

#[test]
fn a_block_freed_while_isolation_begins_is_not_lost() {
    // As a block, as pages of a block, as the last pages.
    beside(
        ONE,
        |machine| assert!(machine.take_at(block(0, HUGE_ORDER))),
        |machine| {
            machine.free(block(0, HUGE_ORDER));
            0
        },
    );
    beside(
        ONE,
        |machine| assert!(machine.take_at(block(0, HUGE_ORDER))),
        |machine| {
            machine.free(block(64, 6));
            64
        },
    );
    beside(
        ONE,
        |machine| assert!(machine.take_at(block(64, 6))),
        |machine| {
            machine.free(block(64, 6));
            0
        },
    );
}

#[test]
fn a_huge_frame_flushed_while_isolation_begins_is_not_lost() {
    beside(
        ONE,
        |machine| assert!(machine.take_at(block(0, HUGE_ORDER))),
        |machine| {
            assert_eq!(machine.flush(&[0], HUGE_ORDER), 0);
            0
        },
    );
}

#[test]
fn a_giant_frame_opened_by_a_free_is_isolated_in() {
    model(|| {
        let machine = Machine::new(&[]);
        assert!(machine.take_at(block(0, GIANT_ORDER)));
        let ((), ()) = both(
            || machine.segment().isolate(0).unwrap(),
            || machine.free(block(0, HUGE_ORDER)),
        );
        machine.segment().validate().unwrap();
        assert!(!machine.take_at(block(0, 0)));
        machine.segment().end_isolation(0);
        assert_eq!(machine.free_frames_with(HUGE_ORDER), HUGE);
    });
}

#[test]
fn what_is_isolated_is_not_taken() {
    for wanted in [block(0, HUGE_ORDER), block(0, 0)] {
        model(move || {
            let machine = Machine::with_free(ONE);
            let ((), taken) = both(
                || machine.segment().isolate(0).unwrap(),
                move || machine.take_at(wanted),
            );
            assert!(machine.segment().huge(0).is_isolated());
            assert!(!machine.take_at(block(1, 0)));
            machine.segment().end_isolation(0);
            if taken {
                machine.free(wanted);
            }
            assert_eq!(machine.free_frames(), HUGE);
        });
    }
}

#[test]
fn one_of_two_isolates() {
    model(|| {
        let machine = Machine::with_free(ONE);
        let isolates = || machine.segment().isolate(0).is_ok();
        let (mine, other) = both(isolates, isolates);
        assert!(mine != other);
        machine.segment().end_isolation(0);
        assert_eq!(machine.free_frames(), HUGE);
    });
}

/// A huge frame is in use until a call that took pages of it kept them or gave them back.
#[test]
fn what_is_taken_at_the_end_of_an_isolation_has_one_owner() {
    for order in [6] {
        check(1, move || {
            let machine = Machine::with_free(ONE);
            assert!(machine.take_at(block(0, 6)));
            let (taken, found) = both(
                || {
                    machine.free(block(0, 6));
                    machine.segment().isolate(0).unwrap();
                    let is_empty = machine.segment().first_in_use(0).is_none();
                    let taken = is_empty && machine.segment().take_isolated(0);
                    if taken {
                        machine.touch(block(0, HUGE_ORDER).range());
                    }
                    machine.segment().end_isolation(0);
                    taken
                },
                move || machine.allocate(order),
            );
            assert!(!(taken && found.is_some()), "{found:?} has two owners");
            if taken {
                machine.free(block(0, HUGE_ORDER));
            }
            if let Some(found) = found {
                machine.free(found);
            }
            assert_eq!(machine.free_frames(), HUGE);
        });
    }
}

/// One CPU saw the huge frame allocated below a giant frame that was merged, taken and opened
/// again meanwhile.
#[test]
fn one_of_two_isolates_while_the_giant_frame_merges_and_opens() {
    check(2, || {
        let machine = Machine::new(&[]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let isolates = || machine.segment().isolate(0).is_ok();
        let (one, other) = both(isolates, move || {
            machine.free(block(0, HUGE_ORDER));
            let is_taken = machine.take_at(block(0, GIANT_ORDER));
            (is_taken, isolates())
        });
        let (is_taken, other) = other;
        assert!(one != other, "both have it, or none");
        if is_taken {
            machine.free(block(0, GIANT_ORDER));
        }
        machine.segment().end_isolation(0);
        assert_eq!(machine.free_frames(), END);
    });
}

/// At the end of the segment, where pages are allocated one by one.
#[test]
fn a_page_freed_twice_beside_the_end_of_an_isolation_leaves_the_counts_whole() {
    check(2, || {
        let start = END - HUGE;
        let reserved = frames(0, start - HUGE);
        let segment = segment(frames(0, END - 64), &[reserved]);
        let segment: &'static Segment<'_> = Box::leak(Box::new(segment));
        segment.isolate(3).unwrap();
        let page = block(start, 0);
        let (_, _) = both(move || segment.take_isolated(3), move || segment.give(page));
        segment.validate().unwrap();
    });
}

/// Once an isolated huge frame was seen empty, no call keeps a page of it.
#[test]
fn a_page_taken_beside_an_isolation_is_seen_in_use_or_given_back() {
    for pages in [false, true] {
        model(move || {
            let machine = Machine::with_free(&[(0, HUGE - 1)]);
            let (in_use, taken) = both(
                || {
                    machine.segment().isolate(0).unwrap();
                    machine.segment().in_use(0)
                },
                move || match pages {
                    true => machine.take_pages(1).len() as u64,
                    false => machine.take_at(block(0, 0)).into(),
                },
            );
            // One page was in use before.
            assert!(in_use > taken);
            machine.segment().end_isolation(0);
            assert_eq!(machine.free_frames(), HUGE - 1 - taken);
        });
    }
}

// ---- Three CPUs ------------------------------------------------------------------

/// An isolation that loses to another CPU hides no other huge frame from a third.
#[test]
fn an_isolation_beside_a_take_hides_no_other_huge_frame() {
    for (order, preemptions) in [(HUGE_ORDER, 2)] {
        check(preemptions, move || {
            let machine = Machine::with_free(&[(0, 2 * HUGE)]);
            let ((), taken, found) = three(
                || machine.segment().isolate(0).unwrap(),
                || machine.take_at(block(0, HUGE_ORDER)),
                move || machine.allocate(order),
            );
            let found = found.expect("the second huge frame, or the first");
            machine.segment().validate().unwrap();
            machine.segment().end_isolation(0);
            let taken = HUGE * u64::from(taken) + found.frames();
            assert_eq!(machine.free_frames(), 2 * HUGE - taken);
        });
    }
}

/// A page taken of a huge frame that is isolated just then is given back, while a third CPU
/// frees another one.
#[test]
fn a_split_huge_frame_is_isolated_beside_a_take_and_a_free() {
    for also_ends in [false, true] {
        model_of_three(move || {
            let machine = Machine::with_free(&[(0, 2)]);
            assert!(machine.take_at(block(0, 0)));
            let ((), taken, ()) = three(
                move || {
                    machine.segment().isolate(0).unwrap();
                    if also_ends {
                        machine.segment().end_isolation(0);
                    }
                },
                || machine.take_at(block(1, 0)),
                || machine.free(block(0, 0)),
            );
            if !also_ends {
                machine.segment().validate().unwrap();
                machine.segment().end_isolation(0);
            }
            assert_eq!(machine.free_frames(), 2 - u64::from(taken));
        });
    }
}

/// What a call gives back of a huge frame whose isolation ended meanwhile was not hidden.
#[test]
fn the_end_of_an_isolation_hides_no_page() {
    model_of_three(|| {
        let machine = Machine::with_free(&[(0, 1), (64, 65)]);
        machine.segment().isolate(0).unwrap();
        machine.segment().end_isolation(0);
        let ((), taken, found) = three(
            || {
                machine.segment().isolate(0).unwrap();
                machine.segment().end_isolation(0);
            },
            || u64::from(machine.take_at(block(0, 0))),
            || machine.allocate_frames(0),
        );
        assert_eq!(machine.free_frames(), 2 - taken - found);
    });
}

/// Merging, isolation and a request meet in one huge frame.
#[test]
fn a_huge_frame_is_isolated_while_it_merges_beside_a_request() {
    model_of_three(|| {
        let machine = Machine::with_free(ONE);
        assert!(machine.take_at(block(64, 0)));
        let ((), (), found) = three(
            || machine.segment().isolate(0).unwrap(),
            || machine.free(block(64, 0)),
            || machine.allocate_frames(0),
        );
        machine.segment().validate().unwrap();
        machine.segment().end_isolation(0);
        assert_eq!(machine.free_frames(), HUGE - found);
    });
}
