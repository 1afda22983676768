//! The interleavings of what is known of free memory with everything that hands it out, splits it
//! and merges it. Each frame's content is a watched cell: whatever a run ends with, a frame that is
//! believed to be zero is.

extern crate std;

use super::kit::{END, HUGE, Machine, block, both, check, model, model_of_three, three};
use crate::frames::range::contiguous;
use crate::frames::range::zeroed::Edges;
use crate::frames::request::ZoneChoice;
use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::word::{Content, Mobility};
use crate::node::{NodeId, ZoneKind};

/// One huge frame that is zero, or two.
fn zero_huges(count: u64) -> &'static Machine {
    let machine = Machine::with_free(&[(0, count * HUGE)]);
    for huge in 0..count {
        let huge = block(huge * HUGE, HUGE_ORDER);
        assert!(machine.take_at(huge));
        machine.free_zero(huge);
    }
    let all = count * HUGE;
    assert_eq!(machine.free_and_zero_frames(), (all, all));
    machine
}

/// One huge frame of unknown content, some pages of which have owners.
fn owned_pages<const N: usize>(pages: [u64; N]) -> (&'static Machine, [Block; N]) {
    let machine = Machine::with_free(&[(0, HUGE)]);
    let owned = pages.map(|page| block(page, 0));
    assert!(owned.iter().all(|page| machine.take_at(*page)));
    (machine, owned)
}

/// What calls found is freed; all of the machine is free then.
fn free_all(machine: &Machine, found: impl IntoIterator<Item = Block>, all: u64) {
    machine.free_and_zero_frames();
    found.into_iter().for_each(|found| machine.free(found));
    let (free, _) = machine.free_and_zero_frames();
    assert_eq!(free, all);
}

/// What a worker does: takes the first huge frame of unknown content, zeroes it, gives it back.
fn work(machine: &Machine) -> bool {
    let segment = machine.segment();
    let mut call = segment.calls.begin();
    let word = segment.huge(0);
    let taken = word.is_free_unknown()
        && (segment.take_free_huge(0, word, Mobility::Unmovable.into())).is_ok();
    if taken {
        machine.free_zero(block(0, HUGE_ORDER));
        call.undo();
    }
    taken
}

#[test]
fn a_zero_huge_frame_is_handed_out_once() {
    for order in [HUGE_ORDER, 0, 6] {
        model(move || {
            let machine = zero_huges(1);
            let (zeroed, plain) = both(
                move || machine.allocate_zeroed(order),
                move || machine.allocate(order),
            );
            assert!(zeroed.is_some() || plain.is_some());
            free_all(machine, zeroed.into_iter().chain(plain), HUGE);
        });
    }
}

#[test]
fn pages_of_a_zero_huge_frame_are_handed_out_once() {
    model(|| {
        let machine = zero_huges(1);
        let (first, pages) = both(
            || machine.allocate_zeroed(0).unwrap(),
            || machine.take_pages(2),
        );
        machine.free(first);
        assert_eq!(machine.flush_untouched(&pages, 0), 0);
        assert_eq!(machine.free_and_zero_frames(), (HUGE, 0));
    });
}

/// Of pages nothing is known, whatever their owners say.
#[test]
fn a_huge_frame_that_merges_is_of_unknown_content() {
    for dirty in [false, true] {
        model(move || {
            let machine = zero_huges(1);
            let (one, other) = (block(0, 0), block(64, 0));
            assert!(machine.take_at(one) && machine.take_at(other));
            let ((), ()) = both(
                move || machine.free_zero(one),
                move || match dirty {
                    true => machine.free(other),
                    false => machine.free_zero(other),
                },
            );
            assert_eq!(machine.free_and_zero_frames(), (HUGE, 0));
        });
    }
}

/// A call that saw the huge frame split before it merged takes a page of it while it is zeroed and
/// split anew.
#[test]
fn a_huge_frame_seen_split_is_zeroed_and_split_again() {
    check(2, || {
        let (machine, [first]) = owned_pages([0]);
        let (taken, page) = both(
            || machine.take_at(block(1, 0)),
            move || {
                machine.free(first);
                work(machine);
                machine.allocate_zeroed(0).unwrap()
            },
        );
        if taken {
            machine.free(block(1, 0));
        }
        free_all(machine, [page], HUGE);
    });
}

#[test]
fn a_giant_frame_keeps_what_is_known_of_each_huge_frame() {
    model(|| {
        let machine = Machine::new(&[]);
        assert!(machine.take_at(block(0, GIANT_ORDER)));
        machine.free_zero(block(2 * HUGE, HUGE_ORDER + 1));
        let ((), ()) = both(
            || machine.free_zero(block(0, HUGE_ORDER)),
            || machine.free(block(HUGE, HUGE_ORDER)),
        );
        assert_eq!(machine.free_giants(), 1);
        assert_eq!(machine.free_and_zero_frames(), (END, 3 * HUGE));
        // Taken as one, all of it is zeroed that is not zero; freed, nothing is known.
        let giant = machine.allocate_zeroed(GIANT_ORDER).unwrap();
        machine.free(giant);
        assert_eq!(machine.free_and_zero_frames(), (END, 0));
        let page = machine.allocate_zeroed(0).unwrap();
        machine.free(page);
        assert_eq!(machine.free_and_zero_frames(), (END, 0));
    });
}

#[test]
fn a_zero_giant_frame_is_split_beside_a_request_for_all_of_it() {
    for order in [HUGE_ORDER, HUGE_ORDER + 1, 0] {
        check(1, move || {
            let machine = Machine::new(&[]);
            assert!(machine.take_at(block(0, GIANT_ORDER)));
            machine.free_zero(block(0, GIANT_ORDER));
            let (part, giant) = both(
                move || machine.allocate_zeroed(order),
                || machine.allocate(GIANT_ORDER),
            );
            assert!(part.is_some() || giant.is_some());
            free_all(machine, part.into_iter().chain(giant), END);
            assert_eq!(machine.free_giants(), 1);
        });
    }
}

#[test]
fn a_block_of_zero_huge_frames_is_taken_beside_one_of_them() {
    model(|| {
        let machine = zero_huges(2);
        let (pair, one) = both(
            || machine.allocate_zeroed(HUGE_ORDER + 1),
            || machine.take_at(block(HUGE, HUGE_ORDER)),
        );
        assert!(pair.is_none() || !one);
        let one = one.then_some(block(HUGE, HUGE_ORDER));
        free_all(machine, pair.into_iter().chain(one), 2 * HUGE);
    });
}

#[test]
fn huge_frames_of_known_content_are_taken_by_two_refills() {
    model(|| {
        let machine = zero_huges(2);
        let (mine, other) = both(|| machine.take_huges(2), || machine.take_huges(1));
        assert!(mine.iter().all(|huge| !other.contains(huge)));
        let taken = (mine.len() + other.len()) as u64 * HUGE;
        let left = 2 * HUGE - taken;
        assert_eq!(machine.free_and_zero_frames(), (left, left));
    });
}

#[test]
fn a_worker_beside_a_request_hides_nothing() {
    for order in [HUGE_ORDER, 0] {
        model(move || {
            let machine = Machine::with_free(&[(0, HUGE)]);
            let (worked, found) = both(move || work(machine), move || machine.allocate(order));
            assert!(worked || found.is_some());
            free_all(machine, found, HUGE);
        });
    }
}

/// To the tables what a worker has is allocated: one of the two frees is refused, whichever comes
/// second, and nothing is known of what was freed first.
#[test]
fn a_wild_free_of_what_a_worker_has_is_told_one_of_the_two() {
    for order in [0, 6, HUGE_ORDER] {
        model(move || {
            let machine = Machine::with_free(&[(0, HUGE)]);
            let all = block(0, HUGE_ORDER);
            assert!(machine.take_at(all));
            machine.zero(all.range());
            let (back, wild) = both(
                move || machine.segment().give_with(all, Content::Zero).is_ok(),
                move || machine.segment().give(block(0, order)).is_ok(),
            );
            assert_ne!(back, wild);
            let expected = if back { (HUGE, HUGE) } else { (1 << order, 0) };
            assert_eq!(machine.free_and_zero_frames(), expected);
        });
    }
}

/// The first page that is freed opens a huge frame, beside the wild free of another page of it that a
/// worker has with the rest, and its return.
#[test]
fn the_first_free_beside_a_wild_free_of_what_a_worker_has() {
    model_of_three(|| {
        let machine = Machine::with_free(&[(0, HUGE)]);
        assert!(machine.take_at(block(0, HUGE_ORDER)));
        let its = block(64, 6);
        let ((), wild, back) = three(
            move || machine.free_zero(block(0, 0)),
            move || machine.segment().give(block(64, 0)).is_ok(),
            move || machine.segment().give_with(its, Content::Zero).is_ok(),
        );
        assert_ne!(wild, back);
        let free = 1 + if back { 64 } else { 1 };
        assert_eq!(machine.free_and_zero_frames(), (free, 0));
    });
}

#[test]
fn a_zero_huge_frame_is_isolated_beside_a_request_for_it() {
    for also_ends in [false, true] {
        model(move || {
            let machine = zero_huges(1);
            let ((), found) = both(
                move || {
                    machine.segment().isolate(0).unwrap();
                    if also_ends {
                        machine.segment().end_isolation(0);
                    }
                },
                || machine.allocate_zeroed(HUGE_ORDER),
            );
            if !also_ends {
                machine.segment().validate().unwrap();
                machine.segment().end_isolation(0);
            }
            let left = if found.is_some() { 0 } else { HUGE };
            assert_eq!(machine.free_and_zero_frames(), (left, left));
        });
    }
}

#[test]
fn a_huge_frame_is_freed_as_zero_while_it_is_isolated() {
    for pages in [false, true] {
        model(move || {
            let machine = zero_huges(1);
            let held = block(0, if pages { 6 } else { HUGE_ORDER });
            assert!(machine.take_at(held));
            let ((), ()) = both(
                || machine.segment().isolate(0).unwrap(),
                move || machine.free_zero(held),
            );
            machine.segment().validate().unwrap();
            machine.segment().end_isolation(0);
            let zero = if pages { 0 } else { HUGE };
            assert_eq!(machine.free_and_zero_frames(), (HUGE, zero));
        });
    }
}

/// What an isolation takes is handed out.
#[test]
fn what_an_isolation_takes_is_not_known_any_more() {
    model(|| {
        let machine = zero_huges(1);
        machine.segment().isolate(0).unwrap();
        let taken = machine.segment().take_isolated(0);
        assert!(taken);
        machine.touch(block(0, HUGE_ORDER).range());
        machine.segment().end_isolation(0);
        machine.free(block(0, HUGE_ORDER));
        assert_eq!(machine.free_and_zero_frames(), (HUGE, 0));
    });
}

/// One of the two is found, whichever the worker has.
#[test]
fn a_worker_beside_a_request_for_zeros_leaves_one_to_it() {
    check(2, || {
        let machine = Machine::with_free(&[(0, 2 * HUGE)]);
        let (_, found) = both(
            || work(machine),
            || machine.allocate_zeroed(HUGE_ORDER).expect("one of the two"),
        );
        free_all(machine, [found], 2 * HUGE);
    });
}

/// The end of a row of zeros is taken with all of its huge frame, whose rest is given back.
#[test]
fn a_row_of_zeros_hides_nothing_of_the_huge_frame_it_ends_in() {
    check(2, || {
        let machine = zero_huges(1);
        let (found, taken) = both(
            || {
                let want = RangeRequest {
                    frames: 40,
                    align_frames: 1,
                    mobility: Mobility::Unmovable,
                    content: ContentRequest::Any,
                };
                let nodes = core::iter::once(NodeId(0));
                let zones = ZoneChoice::up_to(ZoneKind::Normal);
                contiguous::allocate_on(&machine.segments, nodes, want, zones, None)
            },
            || {
                let (row, purpose) = (block(0, 6), Mobility::Unmovable.into());
                let (online, mut edges) = (machine.segment(), Edges::default());
                let mut call = machine.segments.range_calls.begin();
                let is_taken = edges.take(online, row, purpose).is_some();
                edges.give_rest(online, row.range());
                call.undo();
                if is_taken { row.frames() } else { 0 }
            },
        );
        // 64 frames in a row are free all along.
        let found = found.expect("frames in a row");
        assert_eq!(machine.free_frames(), HUGE - found.count() - taken);
    });
}
