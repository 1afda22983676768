//! The broker without sockets: peers are made up, memory and workers are real.

use super::broker::{Answer, Broker};
use super::keeper::Keeper;
use super::refills::Refills;
use super::workers::Workers;
use crate::config::Config;
use crate::fill::Watch;
use crate::lease::journal::Journal;
use crate::lease::quota::Rules;
use crate::lease::{Pipes, Serial, Viewer};
use crate::os::peer::Peer;
use crate::os::pressure::Gauge;
use crate::os::{memory_file, need};
use crate::protocol::{PageSize, RefusalCode, Reply, Request, Resize, StatusQuery, Take};
use crate::store::{Spec, Store};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 3
    [[quota]]
    uid = 1000
    bytes = \"4M\"
";

fn broker() -> (tempfile::TempDir, Broker) {
    broker_of(CONFIG)
}

fn broker_of(config: &str) -> (tempfile::TempDir, Broker) {
    let config = Config::parse(Path::new("test"), config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
    let (store, _) = Store::open(folder.path(), &specs, None).unwrap();
    let rules = Rules::new(&config, u32::MAX).unwrap();
    let workers = Workers::new(&config.fill).unwrap();
    let mut broker = Broker::new(
        store,
        rules,
        workers,
        Keeper::new(),
        Refills::new(Duration::ZERO),
        (
            Journal::open(folder.path(), 0xabc).unwrap().0,
            Pipes::open(folder.path()).unwrap(),
        ),
    );
    until(&mut broker, |broker| clean(broker) == 3);
    (folder, broker)
}

fn clean(broker: &Broker) -> u32 {
    broker.store.rows()[0].clean_slabs
}

/// Lets workers work until something has come.
fn until(broker: &mut Broker, come: impl Fn(&Broker) -> bool) {
    let begin = Instant::now();
    while !come(broker) {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain");
        broker.tick();
        for done in broker.workers.done() {
            assert!(broker.work_done(done).is_none());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn peer(uid: u32) -> Peer {
    Peer {
        pid: 1,
        uid,
        user: uid,
        gid: uid,
        groups: Vec::new(),
        cgroup: None,
    }
}

/// Any slab.
const LEAST: Take = Take {
    bytes: 1,
    node: None,
    page: None,
    max_topup_ms: 0,
    topup_if_faster: false,
};

fn ask(broker: &mut Broker, uid: u32) -> Result<(Serial, OwnedFd), RefusalCode> {
    match broker.handle(0, &peer(uid), Request::Take(LEAST), None) {
        Answer::Lend { serial, memory, .. } => Ok((serial, memory)),
        Answer::Reply(Reply::Refused(refusal)) => Err(refusal.code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_kept_stays_charged() {
    let (_folder, mut broker) = broker();
    let (first, memory) = ask(&mut broker, 1000).unwrap();
    let (second, _) = ask(&mut broker, 1000).unwrap();
    assert_eq!(ask(&mut broker, 1000).unwrap_err(), RefusalCode::Quota);
    assert_eq!(ask(&mut broker, 1001).unwrap_err(), RefusalCode::Denied);
    // The lease ends, the descriptor is kept: its bytes still count.
    broker.end_lease(first);
    until(&mut broker, |broker| !broker.formers.is_empty());
    for _ in 0..3 {
        broker.tick();
        assert_eq!(ask(&mut broker, 1000).unwrap_err(), RefusalCode::Quota);
    }
    drop(memory);
    // A process that another test starts at this moment holds every descriptor
    // until it has become another program: then it counts that long.
    until(&mut broker, |broker| {
        broker.formers.is_empty() && clean(broker) == 2
    });
    assert!(ask(&mut broker, 1000).is_ok());
    // Nothing is kept of the other: it is credited once it is emptied and replaced.
    broker.end_lease(second);
    until(&mut broker, |broker| {
        let is_emptied = broker.store.rows()[0].dirty_bytes == 0;
        is_emptied && broker.formers.is_empty() && clean(broker) == 2
    });
    assert!(ask(&mut broker, 1000).is_ok());
}

#[test]
fn a_slab_that_is_given_back_is_charged_until_another_is_clean() {
    let config = CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\"");
    let (_folder, mut broker) = broker_of(&config.replace("\"4M\"", "\"2M\""));
    // From here on nothing is filled.
    broker.workers.set_rate(Some(0));
    let (serial, _) = ask(&mut broker, 1000).unwrap();
    broker.end_lease(serial);
    until(&mut broker, |broker| {
        broker.store.rows()[0].dirty_bytes == 0 && broker.formers.is_empty()
    });
    let seen = (ask(&mut broker, 1000).unwrap_err(), clean(&broker));
    assert_eq!(seen, (RefusalCode::Quota, 2), "it burns the stock");
    assert!(ask(&mut broker, 0).is_ok(), "the owner has no quota");
    broker.workers.set_rate(None);
    // With the owner's, that is all of them.
    until(&mut broker, |broker| clean(broker) == 2);
    assert!(ask(&mut broker, 1000).is_ok());
}

#[test]
fn a_quota_counts_the_slab_that_is_lent_and_not_what_was_asked() {
    let (_folder, mut broker) = broker();
    let kept: Vec<_> = (0..2).map(|_| ask(&mut broker, 1000).unwrap()).collect();
    assert_eq!(ask(&mut broker, 1000).unwrap_err(), RefusalCode::Quota);
    // A refused client took nothing from the others.
    assert_eq!(clean(&broker), 1);
    assert!(ask(&mut broker, 0).is_ok());
    assert_eq!(ask(&mut broker, 0).unwrap_err(), RefusalCode::Empty);
    drop(kept);
}

#[test]
fn a_take_beyond_the_quota_destroys_no_clean_slab() {
    let (_folder, mut broker) = broker_of(&CONFIG.replace("\"4M\"", "\"3M\""));
    // As fast as any machine: the largest slab would grow to 4 MiB.
    (broker.counters.zeroed_bytes, broker.counters.zeroing_ns) = (1 << 30, 1);
    let take = Take {
        bytes: 3 << 20,
        max_topup_ms: 60_000,
        ..LEAST
    };
    for _ in 0..4 {
        match broker.handle(0, &peer(1000), Request::Take(take.clone()), None) {
            Answer::Reply(Reply::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Quota),
            other => panic!("{other:?}"),
        }
        assert_eq!(clean(&broker), 3);
    }
    assert!(ask(&mut broker, 1000).is_ok());
}

/// What the owner is refused with.
fn refused(broker: &mut Broker) -> (RefusalCode, Option<u32>) {
    let take = Take {
        bytes: 1,
        node: None,
        page: None,
        max_topup_ms: 0,
        topup_if_faster: false,
    };
    match broker.handle(0, &peer(0), Request::Take(take), None) {
        Answer::Reply(Reply::Refused(refusal)) => (refusal.code, refusal.retry_after_ms),
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_hear_when_to_ask_again_only_while_something_is_filled() {
    let (_folder, mut broker) =
        broker_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    // From here on nothing is finished.
    broker.workers.set_rate(Some(0));
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    let answer = broker.handle(0, &peer(0), Request::Resize(more), None);
    assert!(matches!(answer, Answer::Reply(Reply::Resize(_))));
    let _kept: Vec<_> = (0..3).map(|_| ask(&mut broker, 0).unwrap()).collect();
    // As fast as any machine, however busy this one is.
    (broker.counters.zeroed_bytes, broker.counters.zeroing_ns) = (1 << 30, 100_000_000);
    let (code, ms) = refused(&mut broker);
    assert_eq!(code, RefusalCode::Empty);
    // A slab of 2 MiB takes less than that.
    assert_eq!(ms, Some(20));
    broker.wakes_until = Some(Instant::now() + Duration::from_secs(3600));
    assert_eq!(refused(&mut broker), (RefusalCode::Busy, Some(20)));
    broker.workers.turn_filling(false);
    assert_eq!(refused(&mut broker), (RefusalCode::Empty, None));
    broker.workers.turn_filling(true);
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("memory");
    std::fs::write(&figures, "some avg10=50.00 avg60=0 avg300=0 total=0\n").unwrap();
    let gauge = Gauge::of_files(figures, "/nonexistent");
    broker.workers.set_watch(Watch::new(Some(10.0), gauge));
    broker.workers.read_pressure();
    assert_eq!(refused(&mut broker), (RefusalCode::Empty, None));
}

#[test]
fn the_first_client_waits_where_it_has_started_the_daemon_and_nothing_is_clean() {
    let (_folder, mut broker) =
        broker_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    let now = Instant::now();
    let waits = |broker: &mut Broker| refused(broker).0 == RefusalCode::Busy;
    // The daemon had memory for its first client: others hear that there is none.
    broker.activated(now);
    broker.workers.set_rate(Some(0));
    let _kept: Vec<_> = (0..3).map(|_| ask(&mut broker, 0).unwrap()).collect();
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    broker.handle(0, &peer(0), Request::Resize(more), None);
    assert!(!waits(&mut broker));
    broker.activated(now);
    assert!(waits(&mut broker));
    // Not for what never comes.
    let none = Take {
        bytes: 1 << 40,
        ..LEAST
    };
    let Answer::Reply(Reply::Refused(refusal)) =
        broker.handle(0, &peer(0), Request::Take(none), None)
    else {
        panic!("there is no such slab");
    };
    assert_eq!(refusal.code, RefusalCode::Empty);
    // And not for ever.
    let begin = now.checked_sub(Duration::from_secs(30)).expect("an uptime");
    broker.activated(begin);
    assert!(!waits(&mut broker));
}

#[test]
fn a_lease_is_ended_by_its_connection_by_its_pipe_or_by_the_owner_and_by_no_other() {
    let (_folder, mut broker) = broker_of(&CONFIG.replace("4M", "6M"));
    let mut taken = Vec::new();
    for _ in 0..3 {
        match broker.handle(1, &peer(1000), Request::Take(LEAST), None) {
            Answer::Lend {
                serial, lease_pipe, ..
            } => taken.push((broker.leases.id(serial).unwrap(), lease_pipe)),
            other => panic!("{other:?}"),
        }
    }
    let mut give = |from, uid, at: usize, pipe: Option<usize>| {
        let lease = taken[at].0.clone();
        let pipe = pipe.map(|at: usize| taken[at].1.try_clone().unwrap());
        let request = Request::Give(crate::protocol::Give { lease });
        match broker.handle(from, &peer(uid), request, pipe) {
            Answer::Reply(Reply::Refused(refusal)) => Err(refusal.code),
            Answer::Reply(Reply::Give) => Ok(()),
            other => panic!("{other:?}"),
        }
    };
    let unknown = Err(RefusalCode::UnknownLease);
    assert_eq!(give(2, 1001, 0, None), Err(RefusalCode::Denied));
    assert_eq!(give(2, 1000, 0, None), unknown, "one user, two VMMs");
    assert_eq!(give(2, 1000, 0, Some(1)), unknown, "another pipe");
    assert_eq!(give(2, 1000, 0, Some(0)), Ok(()));
    assert_eq!(give(1, 1000, 1, None), Ok(()));
    assert_eq!(give(3, 0, 2, None), Ok(()));
    assert_eq!(give(1, 1000, 2, None), unknown);
}

#[test]
fn the_end_of_a_lease_ends_what_is_put_back_into_it() {
    // At this rate a page takes weeks.
    let slow = CONFIG.replace("rate = \"0\"", "rate = \"0\", refill_rate = \"1\"");
    let slow = slow.replace("slabs = 3", "slabs = 3\nrefill = \"2M\"");
    let (_folder, mut broker) = broker_of(&slow);
    let (serial, memory) = ask(&mut broker, 1000).unwrap();
    let (_other, _its_memory) = ask(&mut broker, 1000).unwrap();
    memory_file::punch(&memory, 0, 2 << 20).unwrap();
    until(&mut broker, |broker| !broker.workers.may_refill(None));
    assert_eq!(
        broker.status(Viewer::Owner, StatusQuery::default()).pools[0].hole_bytes,
        2 << 20
    );
    broker.end_lease(serial);
    until(&mut broker, |broker| {
        broker.workers.may_refill(None) && !broker.formers.is_empty()
    });
    assert_eq!(memory_file::held_bytes(&memory).unwrap(), 0);
    let row = broker
        .status(Viewer::Owner, StatusQuery::default())
        .pools
        .remove(0);
    assert_eq!((row.hole_bytes, row.refilled_bytes), (0, 0));
}

/// A slab whose emptying cannot go on, as with a client that keeps its file's lock, and
/// another that comes back after it.
fn a_return_that_stands_still(config: &str) {
    let (_folder, mut broker) = broker_of(config);
    let (first, held) = ask(&mut broker, 1000).unwrap();
    let (second, memory) = ask(&mut broker, 1000).unwrap();
    let tenure = broker.refills.tenure(first);
    thread::scope(|scope| {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        scope.spawn(move || {
            tenure.during(|| {
                begun.send(()).unwrap();
                let _ = released.recv();
            })
        });
        begins.recv().unwrap();
        broker.end_lease(first);
        broker.end_lease(second);
        let bytes = |file| memory_file::held_bytes(file).unwrap();
        until(&mut broker, |_| bytes(&memory) == 0);
        assert_eq!(bytes(&held), 2 << 20);
        drop(release);
    });
    drop((held, memory));
    until(&mut broker, |broker| {
        let is_emptied = broker.store.rows()[0].dirty_bytes == 0;
        is_emptied && broker.formers.is_empty() && clean(broker) == 3
    });
    broker.tick();
    assert!(ask(&mut broker, 1000).is_ok());
}

#[test]
fn a_return_waits_for_no_other() {
    a_return_that_stands_still(CONFIG);
}

#[test]
fn a_return_to_a_mount_waits_for_no_other() {
    if !rustix::process::geteuid().is_root() {
        return need::skip("root", "only root may mount");
    }
    a_return_that_stands_still(&CONFIG.replace("memfd", "mount"));
}
