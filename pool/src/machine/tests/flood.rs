//! A user that takes and gives as fast as it can, beside another.

use super::*;

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

/// Those that a user has pinned are never replaced, for lack of pages: what another gives back is, in whosever turn.
#[test]
fn a_user_whose_slabs_cannot_be_emptied_has_none_filled_with_pages_of_another() {
    let (mut machine, mut now) = with_users(&[(BYTES, 4)], 3 * BYTES, BYTES);
    let pinned = [(); 3].map(|()| take_and_keep(&mut machine, now, FLOOD, BYTES, BYTES).unwrap());
    for round in 0..20 {
        assert!(
            take_and_give(&mut machine, now, OTHER, BYTES),
            "in round {round}"
        );
        // What was begun before those pages were there cannot be filled, and then again with what it gave back.
        for error in [Some("no pages"), None, Some("no pages")] {
            let Some(slab) = machine.core.slabs.filling().next() else {
                panic!("one is lacking");
            };
            let error = error.map(str::to_owned);
            machine.step(now, Event::Filled { slab, error });
            now.instant += RETRY_AFTER;
            machine.step(now, Event::Tick(Seen::default()));
        }
    }
    for slab in pinned {
        machine.step(now, look(slab, 0, false));
    }
    while machine.core.slabs.filling().next().is_some() {
        fill_one(&mut machine, now);
        machine.step(now, Event::Tick(Seen::default()));
    }
    assert!((0..3).all(|_| take_and_keep(&mut machine, now, FLOOD, BYTES, 0).is_some()));
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
        slabs.filled(order.id, is_large.then(|| "no memory".into()), now);
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
