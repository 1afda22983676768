//! The interleavings of asking other CPUs for what their magazines hold. On the machine of
//! [`super::bulk`], by its rules.

extern crate std;

use super::bulk::{Ground, all_but};
use super::kit::{Machine, block, both, model};
use crate::frames::slot::{Asked, CpuSlot};
use loom::thread;
use std::boxed::Box;

/// A machine whose only page, 64, is taken, and a slot that says its CPU holds `frames`.
fn taken_by_who_holds(frames: u32) -> (&'static Ground, &'static CpuSlot) {
    let ground = Ground::new(&all_but(&[(64, 65)]));
    assert_eq!(ground.take_pages(1).len(), 1);
    let slot: &'static CpuSlot = Box::leak(Box::new(CpuSlot::default()));
    assert!(slot.take());
    slot.set_held(frames);
    (ground, slot)
}

/// Somebody holds a page in a magazine and gives it back, asked or not, while another
/// one needs it.
///
/// `take` is what that one does. A claim looks once, so that nothing but the slot tells it of
/// what came back; an allocation looks again after a fence.
fn who_is_owed_nothing_finds_all(polls: bool, take: fn(&Ground) -> bool) {
    model(move || {
        let (ground, slot) = taken_by_who_holds(1);
        let owner = move || {
            while polls && !slot.is_asked() {
                thread::yield_now();
            }
            slot.begin_answer();
            assert_eq!(ground.give_pages(&[64]), 0);
            slot.answer();
        };
        let needs_it = move || {
            take(ground) || {
                if let Some(asked) = Asked::all(core::slice::from_ref(slot)) {
                    while asked.owed_frames() > 0 {
                        thread::yield_now();
                    }
                }
                take(ground)
            }
        };
        let ((), found) = both(owner, needs_it);
        assert!(found);
        assert_eq!(ground.settled(), 0);
    });
}

const TAKE: [fn(&Ground) -> bool; 2] = [
    |ground| ground.allocate(0).is_some(),
    |ground| ground.claim(block(64, 0)),
];

#[test]
fn who_asked_and_is_owed_nothing_finds_what_was_held() {
    for take in TAKE {
        who_is_owed_nothing_finds_all(true, take);
    }
}

#[test]
fn who_sees_nothing_held_finds_what_came_back_unasked() {
    for take in TAKE {
        who_is_owed_nothing_finds_all(false, take);
    }
}

/// The last page of a magazine may be handed out, not given back, after others went back.
#[test]
fn who_sees_that_the_last_page_was_handed_out_finds_what_came_back_before() {
    for take in TAKE {
        model(move || {
            let (ground, slot) = taken_by_who_holds(2);
            let owner = move || {
                // A full magazine gave back one page, and the other one was allocated.
                assert_eq!(ground.give_pages(&[64]), 0);
                slot.set_held(1);
                slot.set_held(0);
            };
            let needs_it = move || {
                let owes = Asked::all(core::slice::from_ref(slot)).is_some();
                take(ground) || owes
            };
            let ((), found) = both(owner, needs_it);
            assert!(found);
        });
    }
}

/// Who finds nothing free sees who took it, also one that has not kept it yet.
#[test]
fn who_finds_nothing_beside_a_refill_asks_for_it() {
    for take in TAKE {
        model(move || {
            let ground = Ground::new(&all_but(&[(64, 65)]));
            let slot: &'static CpuSlot = Box::leak(Box::new(CpuSlot::default()));
            let refills = move || {
                slot.set_held(1);
                let taken = ground.take_pages(1).len();
                slot.set_held(taken as u32);
            };
            let needs_it = move || take(ground) || slot.ask() || take(ground);
            let ((), found_or_asked) = both(refills, needs_it);
            assert!(found_or_asked);
        });
    }
}

/// What a call in flight keeps of a range that is isolated just then, the next call of its CPU
/// gives back: it is asked. `keeps` says whether it kept something.
fn who_keeps_some_of_an_isolated_range_is_asked(
    was_asked: bool,
    set_up: fn(&Machine),
    keeps: fn(&Machine) -> bool,
) {
    model(move || {
        let machine = Machine::new(&[]);
        set_up(machine);
        let slot: &'static CpuSlot = Box::leak(Box::new(CpuSlot::default()));
        if was_asked {
            slot.ask_anyway();
        }
        let owner = move || {
            if slot.is_asked() {
                slot.begin_answer();
                slot.answer();
            }
            let kept = keeps(machine);
            slot.set_held(kept.into());
            kept
        };
        let isolates = move || {
            machine.segment.isolate(0).unwrap();
            slot.ask_anyway();
        };
        let (kept, ()) = both(owner, isolates);
        assert!(!kept || slot.is_asked());
    });
}

#[test]
fn a_page_freed_beside_an_isolation_is_asked_for() {
    for was_asked in [false, true] {
        who_keeps_some_of_an_isolated_range_is_asked(
            was_asked,
            |machine| assert!(machine.claim(block(0, 0))),
            |machine| machine.segment.allocated_page(block(0, 0).start).is_some(),
        );
    }
}

#[test]
fn a_page_taken_beside_an_isolation_is_asked_for() {
    for was_asked in [false, true] {
        who_keeps_some_of_an_isolated_range_is_asked(
            was_asked,
            |machine| assert!(machine.claim(block(0, 6))),
            |machine| {
                machine
                    .allocate(6)
                    .is_some_and(|found| found.start < block(128, 0).start)
            },
        );
    }
}
