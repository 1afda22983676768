//! The interleavings of what is known of free memory with everything that hands it out, splits it
//! and merges it. Each frame's content is a watched cell: whatever a run ends with, a frame that is
//! believed to be zero is.

extern crate std;

use super::kit::{END, HUGE, Machine, block, both, check, model, model_of_three, three};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::word::{Content, Huge, Mobility};

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
    let bits = segment.huge_bits(0);
    let taken = Huge::is_free_unknown_in(bits)
        && (segment.take_free_huge(0, bits, Mobility::Unmovable.into())).is_ok();
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
        let first = machine.allocate_zeroed(0).unwrap();
        let (one, pages) = both(
            || machine.allocate_zeroed(0).unwrap(),
            || machine.take_pages(2),
        );
        machine.free(one);
        assert_eq!(machine.flush_untouched(&pages, 0), 0);
        let (free, zero) = machine.free_and_zero_frames();
        assert_eq!((free, zero), (HUGE - 1, HUGE - 4));
        machine.free(first);
        assert_eq!(machine.free_and_zero_frames(), (HUGE, 0));
    });
}

#[test]
fn a_page_freed_as_zero_is_zero_until_it_is_taken() {
    model(|| {
        let machine = zero_huges(1);
        let page = machine.allocate_zeroed(0).unwrap();
        let ((), taken) = both(
            move || machine.free_zero(page),
            move || {
                let taken = machine.take_at(page);
                if taken {
                    machine.free(page);
                }
                taken
            },
        );
        // Merged, unless the other CPU had it between.
        let zero = if taken { 0 } else { HUGE };
        assert_eq!(machine.free_and_zero_frames(), (HUGE, zero));
    });
}

#[test]
fn a_huge_frame_merges_to_zero_only_if_all_its_pages_are() {
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
            let zero = if dirty { 0 } else { HUGE };
            assert_eq!(machine.free_and_zero_frames(), (HUGE, zero));
        });
    }
}

/// Nothing was known of the huge frame: the first one writes the marks.
#[test]
fn two_mark_the_first_pages_of_a_huge_frame_at_once() {
    model(|| {
        let (machine, [one, other, _]) = owned_pages([0, 64, 1]);
        let ((), ()) = both(
            move || machine.free_zero(one),
            move || machine.free_zero(other),
        );
        let (free, zero) = machine.free_and_zero_frames();
        assert_eq!(free, HUGE - 1);
        assert!(zero <= 2, "one mark may be lost");
    });
}

#[test]
fn the_first_mark_beside_a_take_and_a_free() {
    model_of_three(|| {
        let (machine, [one, other]) = owned_pages([0, 1]);
        let ((), (), page) = three(
            move || machine.free_zero(one),
            move || machine.free_zero(other),
            || machine.allocate(0).unwrap(),
        );
        machine.free_and_zero_frames();
        machine.free(page);
        machine.free_and_zero_frames();
    });
}

/// A call that saw the huge frame split before it merged takes a page of it while it is split anew
/// with marks.
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

/// What a worker does with free pages: takes and marks them.
fn borrow_pages(machine: &Machine, pages: Block) -> bool {
    let taken = machine.take_at(pages);
    if taken {
        let segment = machine.segment();
        segment.set_borrowed(pages, Some(Content::Zero));
    }
    taken
}

/// Zeroes them and gives them back.
fn return_pages(machine: &Machine, pages: Block) {
    machine.segment().set_borrowed(pages, None);
    machine.free_zero(pages);
}

/// A huge frame of which the pages 32 to 63 are in use.
fn split_huge() -> (&'static Machine, Block) {
    let machine = Machine::with_free(&[(0, HUGE)]);
    let held = block(32, 5);
    assert!(machine.take_at(held));
    (machine, held)
}

#[test]
fn two_workers_have_pages_of_a_huge_frame() {
    model(|| {
        let (machine, held) = split_huge();
        let work = move |pages| {
            assert!(borrow_pages(machine, pages));
            return_pages(machine, pages);
        };
        let ((), ()) = both(move || work(block(0, 5)), move || work(block(64, 5)));
        let (free, zero) = machine.free_and_zero_frames();
        // The marks of one of the two may be lost.
        assert!(free == HUGE - 32 && (zero == 64 || zero == 32), "{zero}");
        machine.free(held);
        assert_eq!(machine.free_and_zero_frames(), (HUGE, 0));
    });
}

#[test]
fn an_owner_frees_pages_beside_those_of_a_worker() {
    model(|| {
        let (machine, held) = split_huge();
        let ((), ()) = both(
            move || {
                // None, if the whole merges just then.
                if borrow_pages(machine, block(0, 5)) {
                    return_pages(machine, block(0, 5));
                }
            },
            move || machine.free(held),
        );
        let (free, zero) = machine.free_and_zero_frames();
        assert!(free == HUGE && zero == 0, "{free} {zero}");
    });
}

#[test]
fn what_a_worker_has_of_a_huge_frame_is_not_freed_by_others() {
    for order in [0, 5, HUGE_ORDER] {
        model(move || {
            let (machine, held) = split_huge();
            let pages = block(0, 5);
            assert!(borrow_pages(machine, pages));
            let ((), wrong) = both(
                move || machine.zero(pages.range()),
                move || machine.segment().give(block(0, order)),
            );
            wrong.unwrap_err();
            return_pages(machine, pages);
            assert_eq!(machine.free_and_zero_frames(), (HUGE - 32, 32));
            machine.free(held);
            machine.free_and_zero_frames();
        });
    }
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
            assert_eq!(machine.free_and_zero_frames(), (HUGE, HUGE));
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

/// Reported memory is not zero, and is kept apart from what is.
#[test]
fn reported_and_zero_pages_of_one_huge_frame_stay_apart() {
    model(|| {
        let (machine, [one, other, _]) = owned_pages([0, 64, 1]);
        let ((), ()) = both(
            move || machine.free_zero(one),
            move || {
                machine
                    .segment()
                    .give_with(other, Content::Reported)
                    .unwrap()
            },
        );
        let statistics = machine.segment().statistics();
        let (zero, reported) = (statistics.zero.frames, statistics.reported.frames);
        assert!(zero + reported <= 1, "{zero} and {reported}");
        machine.free_and_zero_frames();
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
