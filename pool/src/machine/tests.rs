//! What the machine decides, event by event.

use super::slabs::{FillOrder, Filled, RETRY_AFTER, Slabs};
use super::*;
use crate::config::Source;
use crate::protocol::PageSize;
use choose::Want;

mod flood;

const BYTES: u64 = 4 << 20;

fn key(bytes: u64) -> Key {
    Key {
        page: PageSize::Transparent,
        node: None,
        bytes,
    }
}

fn spec(wanted: u32) -> Spec {
    Spec {
        wanted,
        source: Source::Memfd,
        ..Spec::none(key(BYTES))
    }
}

fn slabs(wanted: u32) -> Slabs {
    let mut slabs = Slabs::new(true);
    slabs.want(&[spec(wanted)]);
    slabs
}

fn want(bytes: u64) -> Want {
    Want {
        bytes,
        node: None,
        page: None,
        top_up: std::time::Duration::ZERO,
        if_faster: false,
    }
}

fn begin_fill(slabs: &mut Slabs, now: Instant) -> Option<FillOrder> {
    let lacking = *slabs.lacking(None, now).first()?;
    slabs.begin_fill(lacking.key)
}

/// Fills all that is wanted; how many.
fn fill_all(slabs: &mut Slabs) -> usize {
    let now = Instant::now();
    let mut filled = 0;
    while let Some(order) = begin_fill(slabs, now) {
        assert!(matches!(
            slabs.filled(order.id, None, true, now),
            Filled::Clean(_)
        ));
        filled += 1;
    }
    filled
}

fn taken(slabs: &mut Slabs) -> Option<SlabId> {
    let pick = slabs.choose(&want(1), 0)?;
    slabs.take(&pick)
}

#[test]
fn no_slab_is_allocated_twice_and_none_before_it_is_filled() {
    let mut slabs = slabs(3);
    let now = Instant::now();
    assert!(taken(&mut slabs).is_none());
    let order = begin_fill(&mut slabs, now).unwrap();
    assert!(taken(&mut slabs).is_none(), "being filled");
    assert_eq!(
        slabs.filled(order.id, None, true, now),
        Filled::Clean(key(BYTES))
    );
    assert_eq!(slabs.filled(order.id, None, true, now), Filled::Unknown);
    assert_eq!(fill_all(&mut slabs), 2);
    let mut seen = Vec::new();
    while let Some(slab) = taken(&mut slabs) {
        assert!(!seen.contains(&slab));
        seen.push(slab);
    }
    assert_eq!((seen.len(), slabs.allocated()), (3, 3));
    assert!(
        begin_fill(&mut slabs, now).is_none(),
        "allocated ones count"
    );
    assert!(!slabs.came_back(seen[0], key(BYTES)));
    assert!(
        !slabs.came_back(seen[0], key(BYTES)),
        "it can come back once only"
    );
    assert_eq!(slabs.rows()[0].dirty_bytes, BYTES);
    slabs.emptied(key(BYTES), BYTES);
    assert_eq!(slabs.rows()[0].dirty_bytes, 0);
    assert_eq!(fill_all(&mut slabs), 1);
}

#[test]
fn classes_grow_and_shrink_at_run_time() {
    let mut slabs = slabs(1);
    fill_all(&mut slabs);
    assert_eq!(slabs.want(&[spec(3)]), (vec![], vec![]));
    assert_eq!(fill_all(&mut slabs), 2);
    slabs.want(&[spec(4)]);
    let now = Instant::now();
    let order = begin_fill(&mut slabs, now).unwrap();
    let (clean, cancelled) = slabs.want(&[spec(1)]);
    assert_eq!((clean.len(), cancelled), (2, vec![order.id]));
    assert_eq!(slabs.filled(order.id, None, true, now), Filled::Unwanted);
    assert_eq!(slabs.rows()[0].clean_slabs, 1);
    let other = Spec {
        key: key(2 << 20),
        ..spec(1)
    };
    slabs.want(&[other]);
    assert_eq!(slabs.rows().len(), 2);
    assert_eq!(slabs.drain().0.len(), 1);
    assert!(taken(&mut slabs).is_none());
    assert!(begin_fill(&mut slabs, now).is_none());
}

/// A revoked client may have kept a descriptor or a pin of what was zeroed in place.
#[test]
fn a_class_that_is_trusted_no_more_keeps_no_slab_that_was_used() {
    let trusted = Spec {
        trusted: true,
        ..spec(2)
    };
    let mut slabs = Slabs::new(true);
    slabs.want(&[trusted]);
    assert_eq!(fill_all(&mut slabs), 2);
    let used = [(); 2].map(|()| taken(&mut slabs).unwrap());
    for used in used {
        assert!(slabs.came_back(used, key(BYTES)));
        slabs.begin_zeroing(used, key(BYTES));
    }
    // Else the one that was filled meanwhile would take its place.
    assert!(begin_fill(&mut slabs, Instant::now()).is_none());
    assert!(slabs.zeroed(used[0], key(BYTES)));
    let (clean, _) = slabs.want(&[spec(2)]);
    assert_eq!(clean, [(used[0], BYTES)]);
    // One that was being zeroed meanwhile.
    assert!(!slabs.zeroed(used[1], key(BYTES)));
    assert_eq!(slabs.rows()[0].clean_slabs, 0);
    assert_eq!(fill_all(&mut slabs), 2);
}

#[test]
fn what_cannot_be_filled_is_reported_and_tried_again_later() {
    let mut slabs = slabs(1);
    let now = Instant::now();
    let order = begin_fill(&mut slabs, now).unwrap();
    let filled = slabs.filled(order.id, Some("filling stopped: full".into()), true, now);
    assert_eq!(filled, Filled::Unwanted);
    assert_eq!(
        slabs.rows()[0].trouble.as_deref(),
        Some("filling stopped: full")
    );
    assert!(begin_fill(&mut slabs, now).is_none());
    assert!(begin_fill(&mut slabs, now + RETRY_AFTER).is_some());
}

#[test]
fn under_pressure_clean_slabs_go_one_by_one_down_to_the_floor() {
    let mut slabs = slabs(3);
    assert_eq!(fill_all(&mut slabs), 3);
    assert!(
        slabs.above_the_floor().is_empty(),
        "without a floor all stay"
    );
    let floor = Spec {
        floor: Some(1),
        ..spec(3)
    };
    slabs.want(&[floor]);
    assert_eq!(slabs.above_the_floor().len(), 1);
    assert_eq!(slabs.above_the_floor().len(), 1);
    assert!(slabs.above_the_floor().is_empty());
    assert_eq!(slabs.rows()[0].clean_slabs, 1);
}

#[test]
fn a_slab_that_is_being_filled_says_what_it_lacks() {
    let mut slabs = slabs(1);
    assert_eq!(
        slabs.lacking_bytes(&want(1)),
        None,
        "nothing is being filled"
    );
    let order = begin_fill(&mut slabs, Instant::now()).unwrap();
    slabs.progress(order.id, 1 << 20);
    assert_eq!(slabs.lacking_bytes(&want(1)), Some(3 << 20));
    assert_eq!(slabs.lacking_bytes(&want(BYTES + 1)), None, "too small");
}

/// A machine that has filled so many slabs, in files of a mount.
fn filled(slabs: u32) -> (Machine, Now) {
    let now = Now {
        instant: Instant::now(),
        wall_ms: 0,
    };
    let quotas = "[[quota]]\nuid = 1000\nbytes = \"64M\"\n[[quota]]\nuid = 1001\nbytes = \"64M\"\n";
    let config = crate::config::Config::parse(std::path::Path::new("test"), quotas).unwrap();
    let mut machine = Machine::new(Start {
        rules: Rules::new(&config, u32::MAX).unwrap(),
        specs: vec![spec(slabs)],
        one_node: true,
        names: (0, 0),
        rate: 0,
        now,
    });
    for _ in 0..slabs {
        machine.step(now, Event::Tick(Seen::default()));
        let slab = machine.core.slabs.filling().next().expect("one is filled");
        let filled = Event::Filled { slab, error: None };
        machine.step(now, filled);
    }
    assert_eq!(machine.core.slabs.clean().count(), slabs as usize);
    (machine, now)
}

fn request(uid: u32, request: Request) -> Event {
    let peer = crate::os::peer::Peer {
        pid: 1,
        uid,
        user: uid,
        gid: uid,
        groups: Vec::new(),
        cgroup: None,
    };
    Event::Request {
        from: 1,
        peer,
        grant: None,
        request,
    }
}

fn take(bytes: u64, max_topup_ms: u32) -> Request {
    Request::Take(crate::protocol::Take {
        bytes,
        node: None,
        page: None,
        max_topup_ms,
        topup_if_faster: false,
        label: None,
    })
}

/// A machine with one clean slab, which a client has topped up, and the slab.
fn one_that_tops_up() -> (Machine, Now, SlabId) {
    let (mut machine, now) = filled(1);
    let actions = machine.step(now, request(0, take(2 * BYTES, u32::MAX)));
    let [Action::Grow { slab, .. }] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    let slab = *slab;
    (machine, now, slab)
}

/// A slab of a user, and what is done once its lease is over.
fn gives_back(machine: &mut Machine, now: Now, uid: u32) -> (SlabId, Vec<Action>) {
    let actions = machine.step(now, request(uid, take(1, 0)));
    let [Action::Allocate(allocation)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    let (slab, serial) = (allocation.slab, allocation.record.serial);
    machine.step(now, Event::Allocated(serial));
    (slab, machine.step(now, Event::PipeClosed(serial)))
}

/// The slab of a user with a quota, whose lease is over, and that is being emptied.
fn given_back(machine: &mut Machine, now: Now) -> SlabId {
    let (slab, actions) = gives_back(machine, now, 1000);
    let is_it = |action: &Action| matches!(action, Action::Empty { slab: it, .. } if *it == slab);
    assert!(actions.iter().any(is_it), "{actions:?}");
    slab
}

fn emptied(slab: SlabId, used_bytes: u64) -> Event {
    Event::Emptied {
        slab,
        is_alone: true,
        used_bytes,
    }
}

/// A look that finds a slab that only the daemon has, with so many bytes in use.
fn look(slab: SlabId, used_bytes: u64, holds_pages: bool) -> Event {
    let revoked = vec![Reach {
        slab,
        is_alone: true,
        holds_pages,
        used_bytes,
    }];
    Event::Tick(Seen {
        revoked,
        ..Seen::default()
    })
}

fn forgets(actions: &[Action], slab: SlabId) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Forget { slab: it, .. } if *it == slab);
    actions.iter().any(is_it)
}

/// Why the owner's request for memory is refused.
fn refusal(machine: &mut Machine, now: Now, take: Request) -> String {
    match machine.step(now, request(0, take)).as_slice() {
        [
            Action::Reply {
                reply: Reply::Refused(refusal),
                ..
            },
        ] => refusal.message.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_size_that_is_not_kept_is_refused_otherwise_than_one_that_is_not_ready() {
    let (mut machine, now) = filled(1);
    let giant = Request::Take(crate::protocol::Take {
        bytes: BYTES,
        node: None,
        page: Some(PageSize::Giant),
        max_topup_ms: 0,
        topup_if_faster: false,
        label: None,
    });
    assert_eq!(
        refusal(&mut machine, now, take(2 * BYTES, 0)),
        "no slabs of 8M or more are configured, the largest are of 4M"
    );
    assert_eq!(
        refusal(&mut machine, now, giant),
        "no slabs of 4M or more of 1G pages are configured"
    );
    machine.step(now, request(0, take(BYTES, 0)));
    assert_eq!(
        refusal(&mut machine, now, take(BYTES, 0)),
        "no slab of 4M is ready"
    );
    // A slab of which more than half is there may be topped up, once one is clean: waiting helps.
    let larger = BYTES + BYTES / 2;
    assert_eq!(
        refusal(&mut machine, now, take(larger, 5000)),
        "no slab of 6M is ready"
    );
    let misses = &machine.core.counters.misses;
    assert_eq!((misses.no_class, misses.empty), (2, 2));
}

#[test]
fn a_slab_that_is_topped_up_is_seen_though_no_lease_has_it() {
    let (mut machine, now, slab) = one_that_tops_up();
    let seen = |machine: &mut Machine| {
        let status = Request::Status(crate::protocol::StatusQuery::default());
        match machine.step(now, request(0, status)).as_slice() {
            [
                Action::Reply {
                    reply: Reply::Status(status),
                    ..
                },
            ] => (
                status.pools[0].allocated_slabs,
                status.leases.len(),
                status.gauges.topping_up_slabs,
            ),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seen(&mut machine), (1, 0, 1));
    machine.step(now, Event::ToppedUp { slab, error: None });
    assert_eq!(seen(&mut machine), (1, 1, 0));
}

/// What is to be filled yet, and what is clean, at each step of a slab's way.
#[test]
fn a_daemon_is_full_when_no_slab_is_to_be_filled() {
    let mut slabs = slabs(2);
    assert_eq!(slabs.fill_bytes(), (2 * BYTES, 0));
    let now = Instant::now();
    let order = begin_fill(&mut slabs, now).unwrap();
    assert_eq!(slabs.fill_bytes(), (2 * BYTES, 0), "one is being filled");
    slabs.filled(order.id, None, true, now);
    assert_eq!(slabs.fill_bytes(), (BYTES, BYTES));
    fill_all(&mut slabs);
    assert_eq!(slabs.fill_bytes(), (0, 2 * BYTES));
    taken(&mut slabs).unwrap();
    assert_eq!(slabs.fill_bytes(), (0, BYTES), "an allocated one is there");
}

#[test]
fn a_client_that_hangs_up_ends_its_top_up_and_no_other() {
    let (mut machine, now, slab) = one_that_tops_up();
    assert!(machine.step(now, Event::HungUp(2)).is_empty());
    let actions = machine.step(now, Event::HungUp(1));
    let [Action::Cancel(cancelled)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(*cancelled, slab);
}

fn is_emptied_again(actions: &[Action], slab: SlabId) -> bool {
    let is_it =
        |action: &Action| matches!(action, Action::EmptyAgain { slab: it, .. } if *it == slab);
    actions.iter().any(is_it)
}

/// What none reserves any longer goes when it is emptied once more; what is pinned stays.
#[test]
fn a_slab_is_charged_while_its_mount_counts_any_of_it() {
    let (mut machine, now) = filled(2);
    let [first, second] = [(); 2].map(|()| given_back(&mut machine, now));
    assert!(!forgets(&machine.step(now, emptied(first, BYTES)), first));
    let actions = machine.step(now, look(first, BYTES, false));
    assert!(is_emptied_again(&actions, first), "{actions:?}");
    let actions = machine.step(now, look(first, 0, false));
    assert!(!forgets(&actions, first), "it is being emptied");
    machine.step(now, Event::EmptiedAgain(first));
    let actions = machine.step(now, look(first, BYTES, false));
    assert!(!is_emptied_again(&actions, first) && !forgets(&actions, first));
    // Another's is no matter of it.
    assert!(forgets(&machine.step(now, emptied(second, 0)), second));
    assert!(forgets(&machine.step(now, look(first, 0, false)), first));
}

#[test]
fn a_slab_with_pages_that_its_revoked_client_drew_is_emptied_before_it_is_closed() {
    let (mut machine, now) = filled(1);
    let slab = given_back(&mut machine, now);
    let is_held = Event::Emptied {
        slab,
        is_alone: false,
        used_bytes: 0,
    };
    machine.step(now, is_held);
    let actions = machine.step(now, look(slab, BYTES, true));
    assert!(is_emptied_again(&actions, slab), "{actions:?}");
    assert!(!forgets(&actions, slab), "{actions:?}");
    machine.step(now, Event::EmptiedAgain(slab));
    assert!(!forgets(&machine.step(now, look(slab, BYTES, false)), slab));
    assert!(forgets(&machine.step(now, look(slab, 0, false)), slab));
}

#[test]
fn a_slab_that_could_not_grow_is_kept_only_where_it_is_still_wanted() {
    let fewer = Request::Resize(crate::protocol::Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: BYTES,
        slabs: 0,
    });
    for (meanwhile, why, is_kept) in [
        (None, NotGrown::NoPages, true),
        (None, NotGrown::NoThread, true),
        (Some(Request::Drain), NotGrown::NoThread, false),
        (Some(fewer), NotGrown::NoPages, false),
    ] {
        let (mut machine, now, slab) = one_that_tops_up();
        for action in meanwhile.map_or_else(Vec::new, |it| machine.step(now, request(0, it))) {
            if let Action::Prepare { from, spec, .. } = action {
                let spec = Ok(spec);
                machine.step(now, Event::Prepared { from, spec });
            }
        }
        let actions = machine.step(now, Event::NotGrown { slab, why });
        let is_discarded = |action: &Action| matches!(action, Action::Discard(it) if *it == slab);
        assert_eq!(!actions.iter().any(is_discarded), is_kept, "{actions:?}");
        assert_eq!(machine.core.slabs.clean().count(), usize::from(is_kept));
        if machine.is_draining() {
            assert!(!machine.is_drained(), "its pages are still there");
            machine.step(now, Event::Discarded(slab));
            assert!(machine.is_drained());
        }
    }
}

#[test]
fn no_inode_leaves_before_its_mark_and_no_lease_begins_that_the_next_daemon_does_not_know() {
    let at = |step: Step| Allocation::STEPS.iter().position(|one| *one == step);
    assert_eq!(at(Step::Mark), Some(0));
    assert!(at(Step::Record) < at(Step::Send) && at(Step::MakePipe) < at(Step::Record));
    assert_eq!(at(Step::Send), Some(Allocation::STEPS.len() - 1));
}

#[test]
fn who_is_refused_is_told_as_which_user_and_what_would_let_it_in() {
    let peer = Peer {
        pid: 1,
        uid: 4711,
        user: 4711,
        gid: 4711,
        groups: Vec::new(),
        cgroup: None,
    };
    let text = denied(&peer);
    assert!(text.starts_with("user 4711 is "), "{text}");
    assert!(text.contains("group") && text.contains("quota"), "{text}");
}
