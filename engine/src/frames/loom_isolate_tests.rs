//! The interleavings of isolation with everything that changes the same words.

extern crate std;

use super::geometry::{GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::loom_tests::{Machine, block, both, model};
use super::segment::Segment;
use crate::addr::FrameRange;

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
    // One page of each pair is in use: an order of 1 is promised by some readings only.
    beside(
        ONE,
        |machine| {
            assert!(machine.claim(block(0, 6)));
            assert!(machine.claim(block(64, 5)));
        },
        |machine| {
            let kept = machine.allocate(6).map_or(0, |block| block.frames());
            kept + machine.allocate(5).map_or(0, |block| block.frames()) + 96
        },
    );
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
