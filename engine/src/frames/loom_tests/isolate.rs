//! The interleavings of isolation with everything that changes the same words.

extern crate std;

use super::bulk::all_but;
use super::kit::{Machine, block, both, check, model, preemptions};
use crate::addr::FrameRange;
use crate::frames::geometry::{GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use crate::frames::segment::Segment;
use crate::frames::testkit::{frames, segment};
use std::boxed::Box;

const END: u64 = 1 << GIANT_ORDER;

/// Isolates the first huge frame, lets `other` run at the same time, and ends the
/// isolation, at the same time or after. `other` says how many frames it keeps.
fn beside(
    reserved: &'static [FrameRange],
    set_up: impl Fn(&Machine) + Copy + Sync + Send + 'static,
    other: impl Fn(&Machine) -> u64 + Copy + Sync + Send + 'static,
) {
    for also_ends in [false, true] {
        model(move || {
            let machine = Machine::new(reserved);
            let before = machine.segment.statistics().free_frames;
            set_up(machine);
            let (_, kept) = both(
                move || {
                    machine.segment.isolate(0).unwrap();
                    if also_ends {
                        machine.segment.end_isolation(0);
                    }
                },
                move || other(machine),
            );
            if !also_ends {
                machine.segment.validate().unwrap();
                machine.segment.end_isolation(0);
            }
            assert_eq!(machine.free_frames(), before - kept);
        });
    }
}

/// All of memory but the first huge frame is in use.
const ONE: &[FrameRange] = &[match FrameRange::new(HUGE_FRAMES as u64, END) {
    Some(range) => range,
    None => FrameRange::EMPTY,
}];

fn is_isolated(segment: &Segment<'_>) -> bool {
    segment.huge(0).isolated
}

#[test]
fn loom_a_huge_frame_is_isolated_or_taken() {
    for order in [HUGE_ORDER, 0, 1] {
        beside(
            ONE,
            |_| {},
            move |machine| machine.allocate(order).map_or(0, |block| block.frames()),
        );
    }
}

#[test]
fn loom_a_giant_frame_is_isolated_in_or_taken() {
    beside(
        &[],
        |_| {},
        |machine| {
            machine
                .allocate(GIANT_ORDER)
                .map_or(0, |block| block.frames())
        },
    );
}

#[test]
fn loom_what_is_freed_while_isolation_begins_is_not_lost() {
    // As a block, as a page of a block, as the last page.
    beside(
        ONE,
        |machine| assert!(machine.claim(block(0, HUGE_ORDER))),
        |machine| {
            machine.free(block(0, HUGE_ORDER));
            0
        },
    );
    beside(
        ONE,
        |machine| assert!(machine.claim(block(0, HUGE_ORDER))),
        |machine| {
            machine.free(block(64, 6));
            64
        },
    );
    beside(
        ONE,
        |machine| assert!(machine.claim(block(64, 6))),
        |machine| {
            machine.free(block(64, 6));
            0
        },
    );
}

#[test]
fn loom_a_promise_given_back_to_an_isolated_frame_is_not_lost() {
    for also_ends in [false, true] {
        // Long: two preemptions show what it is there for.
        check(2, move || {
            // A pair, and a page for which one of it can be claimed while all the others are
            // promised as a pair.
            let machine = Machine::new(&all_but(&[(0, 1), (64, 66)]));
            let (claimed, pair) = both(
                move || {
                    let claimed = machine.claim(block(64, 0));
                    machine.segment.isolate(0).unwrap();
                    if also_ends {
                        machine.segment.end_isolation(0);
                    }
                    u64::from(claimed)
                },
                || machine.allocate(1).map_or(0, |block| block.frames()),
            );
            if !also_ends {
                machine.segment.validate().unwrap();
                machine.segment.end_isolation(0);
            }
            assert_eq!(machine.free_frames(), 3 - claimed - pair);
        });
    }
}

#[test]
fn loom_what_is_isolated_is_not_claimed() {
    model(|| {
        let machine = Machine::new(ONE);
        let (_, claimed) = both(
            || machine.segment.isolate(0).unwrap(),
            || machine.claim(block(0, HUGE_ORDER)),
        );
        assert!(is_isolated(&machine.segment));
        assert!(!machine.claim(block(1, 0)));
        machine.segment.end_isolation(0);
        if claimed {
            machine.free(block(0, HUGE_ORDER));
        }
        assert_eq!(machine.free_frames(), HUGE_FRAMES.into());
    });
}

#[test]
fn loom_one_of_two_isolates() {
    model(|| {
        let machine = Machine::new(ONE);
        let (one, other) = both(
            || machine.segment.isolate(0).is_ok(),
            || machine.segment.isolate(0).is_ok(),
        );
        assert!(one != other);
        machine.segment.end_isolation(0);
        assert_eq!(machine.free_frames(), HUGE_FRAMES.into());
    });
}

/// A call may have been promised what nobody uses any more: it is in use until that call
/// found it or gave it back.
#[test]
fn loom_what_is_taken_at_the_end_of_an_isolation_is_nobody_else_s() {
    for order in [6, 0] {
        // Very long: one preemption shows what it is there for.
        check(1, move || {
            let machine = Machine::new(ONE);
            assert!(machine.claim(block(0, 6)));
            let (taken, found) = both(
                || {
                    machine.free(block(0, 6));
                    machine.segment.isolate(0).unwrap();
                    let taken = machine.segment.first_in_use(0).is_none();
                    if taken {
                        machine.segment.take_isolated(0);
                        machine.touch(block(0, HUGE_ORDER));
                    } else {
                        machine.segment.end_isolation(0);
                    }
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
            assert_eq!(machine.free_frames(), HUGE_FRAMES.into());
        });
    }
}

/// One saw the huge frame allocated below a giant frame that was merged, taken and opened again
/// meanwhile.
#[test]
fn loom_one_of_two_isolates_while_the_giant_frame_goes_round() {
    check(2, || {
        let machine = Machine::new(&[]);
        assert!(machine.claim(block(0, HUGE_ORDER)));
        let isolates = || machine.segment.isolate(0).is_ok();
        let (one, other) = both(isolates, move || {
            machine.free(block(0, HUGE_ORDER));
            let is_taken = machine.claim(block(0, GIANT_ORDER));
            (is_taken, isolates())
        });
        let (is_taken, other) = other;
        assert!(one != other, "both have it, or nobody");
        if is_taken {
            machine.free(block(0, GIANT_ORDER));
        }
        machine.segment.end_isolation(0);
        assert_eq!(machine.free_frames(), END);
    });
}

/// At the end of the segment, where pages are allocated one by one.
#[test]
fn loom_a_page_freed_twice_beside_a_take_leaves_the_counts_whole() {
    check(2, || {
        let start = END - u64::from(HUGE_FRAMES);
        let reserved = frames(0, start - u64::from(HUGE_FRAMES));
        let segment = segment(frames(0, END - 64), &[reserved]);
        let segment: &'static Segment<'_> = Box::leak(Box::new(segment));
        segment.isolate(3).unwrap();
        let page = block(start, 0);
        let ((), _) = both(move || segment.take_isolated(3), move || segment.free(page));
        segment.validate().unwrap();
    });
}
