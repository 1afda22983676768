//! A user that takes and gives as fast as it can, beside another.

use super::*;
use crate::lease::quota::Account;

const FLOOD: u32 = 1000;
const OTHER: u32 = 1001;

/// Has a user take once, and give back; whether it got memory.
fn take_and_give(machine: &mut Machine, now: Now, user: u32, bytes: u64) -> bool {
    take_and_keep(machine, now, user, bytes, 0).is_some()
}

/// Has a user take once, and give back all but what it has pinned; its slab, if it got one.
fn take_and_keep(
    machine: &mut Machine,
    now: Now,
    user: u32,
    bytes: u64,
    pinned_bytes: u64,
) -> Option<SlabId> {
    let actions = machine.step(now, request(user, take(bytes, 0)));
    let [Action::Allocate(allocation)] = actions.as_slice() else {
        return None;
    };
    let (slab, serial) = (allocation.slab, allocation.record.serial);
    machine.step(now, Event::Allocated(serial));
    machine.step(now, Event::PipeClosed(serial));
    machine.step(now, emptied(slab, pinned_bytes));
    Some(slab)
}

fn fill_one(machine: &mut Machine, now: Now) {
    let slab = machine.core.slabs.filling().next().expect("one is filled");
    machine.step(now, Event::Filled { slab, error: None });
}

/// A machine whose slabs are all clean, for two users with so many bytes.
fn with_users(classes: &[(u64, u32)], flood: u64, other: u64) -> (Machine, Now) {
    let now = Now {
        instant: Instant::now(),
        wall_ms: 0,
    };
    let quota = format!(
        "[[quota]]\nuid = {FLOOD}\nbytes = {flood}\n[[quota]]\nuid = {OTHER}\nbytes = {other}\n"
    );
    let config = crate::config::Config::parse(std::path::Path::new("test"), &quota).unwrap();
    let specs = classes.iter().map(|(bytes, wanted)| Spec {
        key: key(*bytes),
        ..spec(*wanted)
    });
    let mut machine = Machine::new(Start {
        rules: Rules::new(&config, u32::MAX).unwrap(),
        specs: specs.collect(),
        one_node: true,
        names: (0, 0),
        rate: 0,
        now,
    });
    machine.step(now, Event::Tick(Seen::default()));
    while machine.core.slabs.filling().next().is_some() {
        fill_one(&mut machine, now);
    }
    (machine, now)
}

/// How often the other user gets memory while so many slabs are filled, beside a flood for slabs of so many bytes.
fn takes_beside_a_flood(classes: &[(u64, u32)], flood: u64, other: u64, fills: usize) -> usize {
    let (mut machine, now) = with_users(classes, 3 * flood, other);
    let mut takes = 0;
    for _ in 0..fills {
        while take_and_give(&mut machine, now, FLOOD, flood) {}
        takes += usize::from(take_and_give(&mut machine, now, OTHER, other));
        fill_one(&mut machine, now);
    }
    takes
}

#[test]
fn a_user_that_takes_and_gives_makes_itself_wait() {
    // Slabs of half the size: each of the other's is filled after one of the flood's at most.
    let takes = takes_beside_a_flood(&[(BYTES, 4), (BYTES / 2, 1)], BYTES, BYTES / 2, 60);
    assert!(takes >= 29, "{takes} of 60");
    // Of one class: half of what is filled.
    let takes = takes_beside_a_flood(&[(BYTES, 4)], BYTES, BYTES, 60);
    assert!(takes >= 29, "{takes} of 60");
}

/// Pages that a machine has, and those that nobody uses.
struct Pages {
    free: u64,
}

impl Pages {
    /// Has all filled that there are pages for, once more after a while where there were none; how many slabs.
    fn fill(&mut self, machine: &mut Machine, now: &mut Now) -> usize {
        let mut filled = 0;
        for _ in 0..2 {
            loop {
                let Some(slab) = machine.core.slabs.filling().next() else {
                    break;
                };
                let next = machine.fills.next_of(slab).unwrap();
                let promised = machine.returns.promised(|_| 0).into_iter();
                let promised = promised.filter(|_| !next.has_pages);
                let needed = next.key.bytes + promised.map(|(_, bytes)| bytes).sum::<u64>();
                let left = self.free.checked_sub(needed);
                let error = left.is_none().then(|| "no pages".to_owned());
                if left.is_some() {
                    self.free -= next.key.bytes;
                    filled += 1;
                }
                machine.step(*now, Event::Filled { slab, error });
            }
            now.instant += RETRY_AFTER;
            machine.step(*now, Event::Tick(Seen::default()));
        }
        filled
    }
}

/// Of a class with slabs of two sizes: those of the small one that a user has pinned are not replaced with pages of
/// another's large one, nor is what the pool lacks itself.
#[test]
fn pages_that_a_user_gave_back_are_filled_for_it_alone() {
    let large = 8 * BYTES;
    let (mut machine, mut now) = with_users(&[(BYTES, 3), (large, 2)], 2 * BYTES, large);
    let mut pages = Pages { free: 0 };
    let pinned = [(); 2].map(|()| take_and_keep(&mut machine, now, FLOOD, BYTES, BYTES).unwrap());
    assert_eq!(pages.fill(&mut machine, &mut now), 0);
    for round in 0..10 {
        // The pool lacks one of each itself, too.
        for bytes in [BYTES, large] {
            machine.core.slabs.want(&[Spec {
                key: key(bytes),
                ..spec(4)
            }]);
        }
        let taken = take_and_keep(&mut machine, now, OTHER, large, 0);
        assert!(taken.is_some(), "in round {round}");
        pages.free += large;
        assert_eq!(pages.fill(&mut machine, &mut now), 1, "in round {round}");
    }
    // They come as soon as there are pages.
    for slab in pinned {
        machine.step(now, look(slab, 0, false));
        pages.free += BYTES;
        assert_eq!(pages.fill(&mut machine, &mut now), 1);
    }
    assert_eq!(machine.charged(&Account::Uid(FLOOD)), 0);
    assert_eq!(machine.charged(&Account::Uid(OTHER)), 0);
}

/// Of one slab, from the moment on that its lease is over until another is filled in its place.
#[test]
fn what_is_back_of_a_slab_is_promised_and_once_only() {
    let (mut machine, mut now) = with_users(&[(BYTES, 1)], BYTES, BYTES);
    let promised = |machine: &Machine, used_bytes| {
        let promised = machine.promised(|_| used_bytes);
        promised.iter().map(|(_, bytes)| bytes).sum::<u64>()
    };
    let fails = |machine: &mut Machine, now: Now| {
        let slab = machine.core.slabs.filling().next();
        let slab = slab.expect("one is to be filled");
        let error = Some("no pages".to_owned());
        machine.step(now, Event::Filled { slab, error });
    };
    let actions = machine.step(now, request(FLOOD, take(BYTES, 0)));
    let [Action::Allocate(allocation)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    let (slab, serial) = (allocation.slab, allocation.record.serial);
    machine.step(now, Event::Allocated(serial));
    assert_eq!(promised(&machine, 0), 0);
    // It is being emptied.
    machine.step(now, Event::PipeClosed(serial));
    for used_bytes in [BYTES, BYTES / 4, 0] {
        assert_eq!(promised(&machine, used_bytes), BYTES - used_bytes);
    }
    // Of its pages a quarter is pinned, then none.
    machine.step(now, emptied(slab, BYTES / 4));
    assert_eq!(promised(&machine, 0), BYTES - BYTES / 4);
    machine.step(now, look(slab, 0, false));
    assert_eq!(promised(&machine, 0), BYTES);
    fails(&mut machine, now);
    now.instant += RETRY_AFTER;
    machine.step(now, Event::Tick(Seen::default()));
    // The one that is being filled has them.
    let filling = machine.core.slabs.filling().next().unwrap();
    assert!(machine.fills.next_of(filling).unwrap().has_pages);
    assert_eq!(promised(&machine, 0), 0);
    fill_one(&mut machine, now);
    assert_eq!(promised(&machine, 0), 0);
    machine.step(now, look(slab, 0, true));
    assert_eq!(promised(&machine, 0), 0);
    assert_eq!(machine.charged(&Account::Uid(FLOOD)), 0);
}

/// One fill that failed, as where a program has all pages for a moment, gives one that takes and gives nothing.
#[test]
fn what_the_pool_lacks_has_its_turn_beside_a_flood_also_after_one_could_not_be_filled() {
    let (mut machine, mut now) = with_users(&[(BYTES, 2)], 2 * BYTES, BYTES);
    machine.core.slabs.want(&[spec(40)]);
    Pages { free: 0 }.fill(&mut machine, &mut now);
    for _ in 0..38 {
        while take_and_give(&mut machine, now, FLOOD, BYTES) {}
        now.instant += RETRY_AFTER;
        machine.step(now, Event::Tick(Seen::default()));
        for _ in 0..2 {
            fill_one(&mut machine, now);
        }
    }
    let clean = machine.core.slabs.clean().count();
    assert!(clean >= 30, "{clean} are clean");
}

#[test]
fn a_class_that_cannot_be_filled_is_tried_after_the_others() {
    let large = key(8 * BYTES);
    let mut slabs = slabs(3);
    slabs.want(&[
        spec(3),
        Spec {
            key: large,
            ..spec(1)
        },
    ]);
    let mut now = Instant::now();
    let mut tried = Vec::new();
    for _ in 0..8 {
        let order = begin_fill(&mut slabs, now).expect("the large one is lacking");
        let is_large = order.spec.key == large;
        slabs.filled(order.id, is_large.then(|| "no memory".into()), true, now);
        tried.push(is_large);
        // So long that it may be tried again.
        now += RETRY_AFTER;
    }
    // Once at most before the three others are filled.
    assert_eq!(
        tried.iter().rposition(|is_large| !is_large),
        Some(3),
        "{tried:?}"
    );
}
