//! The interleavings of calls of which one frees what is not its own.

extern crate std;

use super::kit::{END, HUGE, Machine, block, both, check, model};
use crate::addr::Frame;
use crate::frames::segment::give::Refused;
use crate::frames::tests::kit::frames;
use crate::frames::word::Content;
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};

#[test]
fn a_block_freed_twice_at_once_is_freed_once() {
    for order in [0, 6, HUGE_ORDER] {
        model(move || {
            let machine = Machine::with_free(&[(0, HUGE)]);
            let held = machine.allocate(order).unwrap();
            let free = move || machine.segment().give(held).is_ok();
            let (one, other) = both(free, free);
            // Pages whose huge frame merges between the two are not seen to be free.
            assert!(one || other);
            assert!(one != other || order < HUGE_ORDER);
            assert_eq!(machine.free_frames(), HUGE);
        });
    }
}

#[test]
fn a_huge_frame_and_a_part_of_it_freed_at_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        let (part, whole) = both(
            || machine.segment().give(block(0, 6)).is_ok(),
            || machine.segment().give(block(0, HUGE_ORDER)),
        );
        // All of it is freed, or the part and what the other call says.
        let given = whole.map_or_else(|refused| refused.given_frames + 64, |()| HUGE);
        assert!(part || whole.is_ok());
        assert_eq!(machine.free_frames(), given);
    });
}

#[test]
fn a_row_freed_twice_at_once_is_freed_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 6)) && machine.take_at(block(64, 6)));
        let given = || match machine.segment().give_part(frames(10, 70)) {
            Ok(()) => 60,
            Err(refused) => refused.given_frames,
        };
        let (one, other) = both(given, given);
        assert_eq!(one + other, 60);
        assert_eq!(machine.free_frames(), 60);
    });
}

#[test]
fn pages_flushed_twice_at_once_are_refused_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, 2)));
        let give = || machine.flush_untouched(&[1, 2, 3].map(Frame::new), 0);
        let (one, other) = both(give, give);
        assert_eq!(one + other, 3);
        assert_eq!(machine.free_frames(), 127);
    });
}

#[test]
fn a_huge_frame_flushed_twice_at_once_is_refused_once() {
    model(|| {
        let machine = Machine::with_free(&[(0, 2 * HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let give = || machine.flush_untouched(&[Frame::new(0)], HUGE_ORDER);
        let (one, other) = both(give, give);
        assert_eq!(one + other, 1);
        assert_eq!(machine.free_frames(), 2 * HUGE);
    });
}

#[test]
fn a_free_frame_freed_beside_a_take_that_fails_is_refused() {
    for freed in [block(0, HUGE_ORDER), block(0, 0)] {
        check(2, move || {
            let machine = Machine::with_free(&[(0, 3 * HUGE)]);
            let (pair, (one, freed)) = both(
                || machine.take_at(block(0, HUGE_ORDER + 1)),
                move || {
                    let one = machine.take_at(block(HUGE, HUGE_ORDER));
                    let given = machine.segment().give(freed);
                    (one, given.map_or(0, |()| freed.frames()))
                },
            );
            assert!(freed == 0 || pair, "a free frame was freed");
            let taken = 2 * HUGE * u64::from(pair) + HUGE * u64::from(one) - freed;
            assert_eq!(machine.free_frames(), 3 * HUGE - taken);
        });
    }
}

#[test]
fn freed_twice_and_taken_in_between_leaves_the_counts_whole() {
    for (order, end) in [(HUGE_ORDER, END), (0, HUGE)] {
        check(2, move || {
            let machine = Machine::new(&[frames(end, END)]);
            let wanted = block(0, order);
            assert!(machine.take_at(wanted));
            both(
                move || machine.segment().give(wanted).is_ok(),
                move || {
                    let _ = machine.segment().give(wanted);
                    machine
                        .segment()
                        .take_at(wanted, crate::frames::Mobility::Unmovable)
                        .is_ok()
                },
            );
            machine.free_frames();
        });
    }
}

/// What it holds then, the call says that freed it.
#[test]
fn a_giant_frame_freed_twice_at_once_is_refused_once() {
    model(|| {
        let machine = Machine::new(&[]);
        let all = block(0, GIANT_ORDER);
        assert!(machine.take_at(all));
        machine.zero(all.range());
        let (zero, other) = both(
            move || machine.segment().give_with(all, Content::Zero).is_ok(),
            move || machine.segment().give(all).is_ok(),
        );
        assert_ne!(zero, other);
        let expected = if zero { END } else { 0 };
        assert_eq!(machine.free_and_zero_frames(), (END, expected));
        assert_eq!((machine.free_frames(), machine.free_giants()), (END, 1));
    });
}

/// Allocated as one, and as its huge frames.
#[test]
fn a_giant_frame_and_a_part_of_it_freed_at_once() {
    for (taken, order) in [GIANT_ORDER, HUGE_ORDER]
        .into_iter()
        .flat_map(|taken| [6, HUGE_ORDER, HUGE_ORDER + 1].map(|order| (taken, order)))
    {
        model(move || {
            let machine = Machine::new(&[]);
            let starts = (0..END).step_by(1 << taken);
            starts.for_each(|start| assert!(machine.take_at(block(start, taken))));
            let (part, whole) = both(
                move || machine.segment().give(block(0, order)),
                || machine.segment().give(block(0, GIANT_ORDER)),
            );
            // All of it is freed, or what each of the two says.
            let given = |given: Result<(), Refused>, frames| {
                given.map_or_else(|refused| refused.given_frames, |()| frames)
            };
            assert!(part.is_ok() || whole.is_ok());
            let free = match whole {
                Ok(()) => END,
                Err(_) => given(part, 1 << order) + given(whole, END),
            };
            assert_eq!(machine.free_frames(), free);
        });
    }
}
