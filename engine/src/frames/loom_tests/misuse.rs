//! The interleavings of calls of which one frees what is not its own.

extern crate std;

use super::kit::{END, Machine, block, both, model};
use crate::frames::geometry::HUGE_ORDER;
use crate::frames::testkit::frames;

#[test]
fn freed_twice_at_once_counts_once() {
    for order in [0, 6, HUGE_ORDER] {
        model(move || {
            let machine = Machine::new(&[frames(128, END)]);
            let held = machine.allocate(order).unwrap();
            let free = move || machine.segment.free(held).is_ok();
            let (one, other) = both(free, free);
            assert!(one != other);
            assert_eq!(machine.free_frames(), 128);
        });
    }
}

#[test]
fn a_whole_and_a_part_freed_at_once() {
    model(|| {
        let machine = Machine::new(&[frames(128, END)]);
        assert!(machine.claim(block(0, 6)) && machine.claim(block(64, 6)));
        let (part, whole) = both(
            || machine.segment.free(block(0, 6)).is_ok(),
            || machine.segment.free(block(0, HUGE_ORDER)).is_ok(),
        );
        assert!(part != whole);
        // The pages that were freed are free, once; the rest of a refused block is not.
        let free = machine.free_frames();
        assert!(if whole { free == 128 } else { free == 64 });
    });
}

#[test]
fn a_free_frame_freed_beside_a_claim_that_fails() {
    for freed in [block(0, HUGE_ORDER), block(0, 0)] {
        model(move || {
            let machine = Machine::new(&[frames(384, END)]);
            let (pair, (one, freed)) = both(
                || machine.segment.claim(block(0, HUGE_ORDER + 1)).is_ok(),
                move || {
                    let one = machine.segment.claim(block(128, HUGE_ORDER)).is_ok();
                    (
                        one,
                        machine.segment.free(freed).map_or(0, |()| freed.frames()),
                    )
                },
            );
            assert!(freed == 0 || pair, "a free frame was freed");
            let taken = 256 * u64::from(pair) + 128 * u64::from(one) - freed;
            assert_eq!(machine.free_frames(), 384 - taken);
        });
    }
}

#[test]
fn freed_twice_and_given_out_in_between_leaves_the_counts_whole() {
    for (order, reserved) in [(HUGE_ORDER, END), (0, 128)] {
        model(move || {
            let machine = Machine::new(&[frames(reserved, END)]);
            let wanted = block(0, order);
            machine.segment.claim(wanted).unwrap();
            both(
                move || machine.segment.free(wanted).is_ok(),
                move || {
                    let _ = machine.segment.free(wanted);
                    machine.segment.claim(wanted).is_ok()
                },
            );
            machine.segment.validate().unwrap();
        });
    }
}
