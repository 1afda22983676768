//! The machine's decisions carried out with real files and workers, without sockets.

use super::closer::Closer;
use super::looks::Looks;
use super::pool::{Outgoing, Parts, Pool, now};
use super::refills::Refills;
use super::workers::Workers;
use crate::config::Config;
use crate::fill::Watch;
use crate::lease::journal::Journal;
use crate::lease::quota::Rules;
use crate::lease::{Pipes, Serial};
use crate::machine::{ConnectionId, Event, Machine, Reach, Spec, Start};
use crate::os::peer::Peer;
use crate::os::pressure::Gauge;
use crate::os::{memory_file, need};
use crate::protocol::{
    FillChange, Filling, Give, PageSize, PoolRow, QuotaOf, QuotaRow, RefusalCode, Reply, Request,
    Resize, StatusQuery, Take,
};
use crate::store::Files;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
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

fn pool() -> (tempfile::TempDir, Pool) {
    pool_of(CONFIG)
}

fn pool_of(config: &str) -> (tempfile::TempDir, Pool) {
    let config = Config::parse(Path::new("test"), config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
    let (files, found) = Files::open(folder.path(), &specs, None).unwrap();
    let machine = Machine::new(Start {
        rules: Rules::new(&config, u32::MAX).unwrap(),
        specs: found.specs,
        one_node: true,
        names: (0xabc, 1),
        rate: config.fill.rate.bytes(),
        now: now(),
    });
    let known = (
        Journal::open(folder.path(), 0xabc).unwrap().0,
        Pipes::open(folder.path()).unwrap(),
    );
    let workers = Workers::new(&config.fill).unwrap();
    let refills = Refills::new(Duration::ZERO);
    let mut pool = Pool::new(Parts {
        machine,
        files,
        workers,
        refills,
        looks: Looks::new().unwrap(),
        known,
        closer: Rc::new(Closer::new().unwrap()),
    });
    until(&mut pool, |pool| clean(pool) == 3);
    (folder, pool)
}

/// The only class, as its owner sees it.
fn row(pool: &mut Pool) -> PoolRow {
    let status = Request::Status(StatusQuery::default());
    match request(pool, 0, &peer(0), status).reply {
        Reply::Status(mut status) => status.pools.remove(0),
        other => panic!("{other:?}"),
    }
}

fn clean(pool: &mut Pool) -> u32 {
    row(pool).clean_slabs
}

/// The only reply to a request.
fn request(pool: &mut Pool, from: ConnectionId, peer: &Peer, request: Request) -> Outgoing {
    let mut outgoing = pool.step(Event::Request {
        from,
        peer: peer.clone(),
        request,
    });
    assert_eq!(outgoing.len(), 1, "{outgoing:?}");
    outgoing.remove(0)
}

/// Lets workers work until something has come.
fn until(pool: &mut Pool, mut come: impl FnMut(&mut Pool) -> bool) {
    let begin = Instant::now();
    while !come(pool) {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain");
        assert!(pool.tick().is_empty());
        for done in pool.workers.done() {
            assert!(pool.work_done(done).is_empty());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn end_lease(pool: &mut Pool, serial: Serial) {
    assert!(pool.step(Event::PipeClosed(serial)).is_empty());
}

fn has_revoked(pool: &Pool) -> bool {
    pool.machine.revoked().next().is_some()
}

/// Filling at a rate at which nothing is finished, or as fast as it goes.
fn stall(pool: &mut Pool, stalls: bool) {
    let rate = u64::from(stalls);
    pool.workers.set_filling(&Filling { on: true, rate });
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

fn taken(pool: &mut Pool, uid: u32) -> Result<(Serial, OwnedFd), RefusalCode> {
    let outgoing = request(pool, 0, &peer(uid), Request::Take(LEAST));
    match (outgoing.reply, outgoing.lease) {
        (Reply::Take(_), Some((serial, mut parts))) => {
            assert!(pool.step(Event::Allocated(serial)).is_empty());
            Ok((serial, parts.remove(0)))
        }
        (Reply::Refused(refusal), None) => Err(refusal.code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_kept_stays_charged() {
    let (_folder, mut pool) = pool();
    let (first, memory) = taken(&mut pool, 1000).unwrap();
    let (second, _) = taken(&mut pool, 1000).unwrap();
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    assert_eq!(taken(&mut pool, 1001).unwrap_err(), RefusalCode::Denied);
    // The lease ends, the descriptor is kept: its bytes still count.
    end_lease(&mut pool, first);
    until(&mut pool, |pool| has_revoked(pool));
    for _ in 0..3 {
        pool.tick();
        assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    }
    drop(memory);
    // A process that another test starts at this moment holds every descriptor
    // until it has become another program: then it counts that long.
    until(&mut pool, |pool| !has_revoked(pool) && clean(pool) == 2);
    assert!(taken(&mut pool, 1000).is_ok());
    // Nothing is kept of the other: it is credited once it is emptied and replaced.
    end_lease(&mut pool, second);
    until(&mut pool, |pool| {
        let is_emptied = row(pool).dirty_bytes == 0;
        is_emptied && !has_revoked(pool) && clean(pool) == 2
    });
    assert!(taken(&mut pool, 1000).is_ok());
}

/// Any process can hold the lock that a look needs.
#[test]
fn nothing_waits_for_a_look_at_what_is_kept() {
    let (_folder, mut pool) = pool();
    let (answer, answers) = std::sync::mpsc::channel::<bool>();
    let (begun, begins) = std::sync::mpsc::channel();
    pool.looks = Looks::with(move |slab, _| {
        begun.send(()).unwrap();
        Reach {
            slab,
            is_alone: answers.recv().unwrap(),
            holds_pages: false,
        }
    })
    .unwrap();
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    let _other = taken(&mut pool, 1000).unwrap();
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| has_revoked(pool));
    pool.tick();
    begins.recv().unwrap();
    // It waits now: all else goes on, and no other look is begun.
    until(&mut pool, |pool| clean(pool) == 2);
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    assert!(begins.try_recv().is_err());
    answer.send(false).unwrap();
    until(&mut pool, |_| begins.try_recv().is_ok());
    assert!(has_revoked(&pool));
    answer.send(true).unwrap();
    until(&mut pool, |pool| !has_revoked(pool));
    drop(memory);
}

#[test]
fn a_refusal_for_quota_names_memory_that_a_revoked_client_has_open() {
    let (_folder, mut pool) = pool();
    let (first, memory) = taken(&mut pool, 1000).unwrap();
    let _second = taken(&mut pool, 1000).unwrap();
    let text = |pool: &mut Pool| match request(pool, 0, &peer(1000), Request::Take(LEAST)).reply {
        Reply::Refused(refusal) => refusal.message,
        other => panic!("{other:?}"),
    };
    let held = text(&mut pool);
    assert!(!held.contains("given back"), "all of it is in use: {held}");
    end_lease(&mut pool, first);
    until(&mut pool, |pool| has_revoked(pool));
    let why = "2M of it was given back and can still be reached: a process has the memory open";
    let revoked = text(&mut pool);
    assert!(revoked.contains(why), "{revoked}");
    drop(memory);
}

#[test]
fn a_slab_that_is_given_back_is_charged_until_another_is_clean() {
    let config = CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\"");
    let (_folder, mut pool) = pool_of(&config.replace("\"4M\"", "\"2M\""));
    // From here on nothing is filled.
    stall(&mut pool, true);
    let (serial, _) = taken(&mut pool, 1000).unwrap();
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| {
        row(pool).dirty_bytes == 0 && !has_revoked(pool)
    });
    let seen = (taken(&mut pool, 1000).unwrap_err(), clean(&mut pool));
    assert_eq!(seen, (RefusalCode::Quota, 2), "it uses up what is clean");
    assert!(taken(&mut pool, 0).is_ok(), "the owner has no quota");
    stall(&mut pool, false);
    // With the owner's, that is all of them.
    until(&mut pool, |pool| clean(pool) == 2);
    assert!(taken(&mut pool, 1000).is_ok());
}

#[test]
fn a_quota_counts_the_slab_that_is_allocated_and_not_what_was_requested() {
    let (_folder, mut pool) = pool();
    let kept: Vec<_> = (0..2).map(|_| taken(&mut pool, 1000).unwrap()).collect();
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    // A refused client took nothing from the others.
    assert_eq!(clean(&mut pool), 1);
    assert!(taken(&mut pool, 0).is_ok());
    assert_eq!(taken(&mut pool, 0).unwrap_err(), RefusalCode::Empty);
    drop(kept);
}

#[test]
fn a_row_of_each_quota_says_what_is_held_and_owed() {
    let (_folder, mut pool) = pool();
    let rows = |pool: &mut Pool, viewer: u32| {
        let status = Request::Status(StatusQuery::default());
        match request(pool, 9, &peer(viewer), status).reply {
            Reply::Status(status) => status.quotas,
            other => panic!("{other:?}"),
        }
    };
    let bytes = |row: &QuotaRow| (row.charged_bytes, row.held_bytes, row.owed_bytes);
    let all = rows(&mut pool, 0);
    assert_eq!((all[0].of, all[0].name.as_str()), (QuotaOf::User, "1000"));
    assert_eq!((all.len(), all[0].most_bytes), (1, Some(4 << 20)));
    assert_eq!(bytes(&all[0]), (0, 0, 0));
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    assert_eq!(bytes(&rows(&mut pool, 0)[0]), (2 << 20, 2 << 20, 0));
    assert!(rows(&mut pool, 1000).is_empty(), "a client reads no row");
    // Given back and open all the same, it is owed.
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| has_revoked(pool));
    assert_eq!(bytes(&rows(&mut pool, 0)[0]), (2 << 20, 0, 2 << 20));
    drop(memory);
    until(&mut pool, |pool| bytes(&rows(pool, 0)[0]) == (0, 0, 0));
}

#[test]
fn a_take_beyond_the_quota_destroys_no_clean_slab() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("\"4M\"", "\"3M\""));
    // As fast as any machine: the largest slab would grow to 4 MiB.
    pool.machine.zeroed(64 << 30, 64);
    let take = Take {
        bytes: 3 << 20,
        max_topup_ms: 60_000,
        ..LEAST
    };
    for _ in 0..4 {
        match request(&mut pool, 0, &peer(1000), Request::Take(take.clone())).reply {
            Reply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::Quota),
            other => panic!("{other:?}"),
        }
        assert_eq!(clean(&mut pool), 3);
    }
    assert!(taken(&mut pool, 1000).is_ok());
}

/// Turns filling off or on, as its owner does.
fn turn_filling(pool: &mut Pool, on: bool) {
    let change = FillChange {
        on: Some(on),
        rate: None,
    };
    request(pool, 0, &peer(0), Request::Fill(change));
}

/// With filling turned off nothing takes the place of what is back: a tenant that holds nothing
/// is not refused for ever.
#[test]
fn what_is_given_back_is_not_charged_while_filling_is_turned_off() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("\"4M\"", "\"2M\""));
    turn_filling(&mut pool, false);
    for left in [2, 1] {
        let (serial, memory) = taken(&mut pool, 1000).unwrap();
        end_lease(&mut pool, serial);
        until(&mut pool, |pool| has_revoked(pool));
        assert_eq!(
            taken(&mut pool, 1000).unwrap_err(),
            RefusalCode::Quota,
            "it holds it"
        );
        drop(memory);
        until(&mut pool, |pool| !has_revoked(pool));
        assert_eq!(clean(&mut pool), left);
    }
    // What was given back before it was turned off.
    turn_filling(&mut pool, true);
    stall(&mut pool, true);
    let (serial, _) = taken(&mut pool, 1000).unwrap();
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| {
        row(pool).dirty_bytes == 0 && !has_revoked(pool)
    });
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Quota);
    turn_filling(&mut pool, false);
    assert_eq!(taken(&mut pool, 1000).unwrap_err(), RefusalCode::Empty);
}

/// What the owner is refused with.
fn refused(pool: &mut Pool) -> (RefusalCode, Option<u32>) {
    let take = Take {
        bytes: 1,
        node: None,
        page: None,
        max_topup_ms: 0,
        topup_if_faster: false,
    };
    match request(pool, 0, &peer(0), Request::Take(take)).reply {
        Reply::Refused(refusal) => (refusal.code, refusal.retry_after_ms),
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_hear_when_to_ask_again_only_while_something_is_filled() {
    let (_folder, mut pool) =
        pool_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    // From here on nothing is finished.
    stall(&mut pool, true);
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    let resized = request(&mut pool, 0, &peer(0), Request::Resize(more));
    assert!(matches!(resized.reply, Reply::Resize(_)));
    let _kept: Vec<_> = (0..3).map(|_| taken(&mut pool, 0).unwrap()).collect();
    // As fast as any machine, however busy this one is.
    pool.machine.zeroed(64 << 30, 6_400_000_000);
    let (code, ms) = refused(&mut pool);
    assert_eq!(code, RefusalCode::Empty);
    // A slab of 2 MiB takes less than that.
    assert_eq!(ms, Some(20));
    turn_filling(&mut pool, false);
    assert_eq!(refused(&mut pool), (RefusalCode::Empty, None));
    turn_filling(&mut pool, true);
    stall(&mut pool, true);
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("memory");
    std::fs::write(&figures, "some avg10=50.00 avg60=0 avg300=0 total=0\n").unwrap();
    let gauge = Gauge::of_files(figures, "/nonexistent");
    pool.workers.set_watch(Watch::new(Some(10.0), gauge));
    pool.tick();
    assert_eq!(refused(&mut pool), (RefusalCode::Empty, None));
}

#[test]
fn the_first_client_waits_where_it_has_started_the_daemon_and_nothing_is_clean() {
    let (_folder, mut pool) =
        pool_of(&CONFIG.replace("rate = \"0\"", "rate = \"0\", batch = \"1\""));
    let now = Instant::now();
    let waits = |pool: &mut Pool| refused(pool).0 == RefusalCode::Busy;
    // The daemon had memory for its first client: others hear that there is none.
    pool.machine.activated(now);
    stall(&mut pool, true);
    let _kept: Vec<_> = (0..3).map(|_| taken(&mut pool, 0).unwrap()).collect();
    let more = Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        slabs: 4,
    };
    request(&mut pool, 0, &peer(0), Request::Resize(more));
    assert!(!waits(&mut pool));
    pool.machine.activated(now);
    assert!(waits(&mut pool));
    // Not for what never comes.
    let none = Take {
        bytes: 1 << 40,
        ..LEAST
    };
    let Reply::Refused(refusal) = request(&mut pool, 0, &peer(0), Request::Take(none)).reply else {
        panic!("there is no such slab");
    };
    assert_eq!(refusal.code, RefusalCode::Empty);
    // And not for ever.
    let begin = now.checked_sub(Duration::from_secs(30)).expect("an uptime");
    pool.machine.activated(begin);
    assert!(!waits(&mut pool));
}

#[test]
fn a_lease_is_ended_by_its_connection_or_by_the_owner_and_by_no_other() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("4M", "6M"));
    let mut leases = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..3 {
        let sent = request(&mut pool, 1, &peer(1000), Request::Take(LEAST));
        kept.push(sent.lease.unwrap());
        match sent.reply {
            Reply::Take(taken) => leases.push(taken.lease),
            other => panic!("{other:?}"),
        }
    }
    let mut give = |from, uid, at: usize| {
        let lease = leases[at].clone();
        let give = Request::Give(Give { lease });
        match request(&mut pool, from, &peer(uid), give).reply {
            Reply::Refused(refusal) => Err(refusal.code),
            Reply::Give => Ok(()),
            other => panic!("{other:?}"),
        }
    };
    let unknown = Err(RefusalCode::UnknownLease);
    assert_eq!(give(2, 1001, 0), Err(RefusalCode::Denied));
    assert_eq!(give(2, 1000, 0), unknown, "one user, two VMMs");
    assert_eq!(give(1, 1000, 0), Ok(()));
    assert_eq!(give(3, 0, 1), Ok(()));
    assert_eq!(give(1, 1000, 1), unknown);
}

#[test]
fn a_client_reads_no_row_of_another_user() {
    let other = "[[quota]]\nuid = 1002\nbytes = \"4M\"\n";
    let (_folder, mut pool) = pool_of(&format!("{CONFIG}{other}"));
    let _kept = request(&mut pool, 1, &peer(1000), Request::Take(LEAST));
    let status = Request::Status(StatusQuery::default());
    let mut rows = |from, uid| match request(&mut pool, from, &peer(uid), status.clone()).reply {
        Reply::Status(status) => status.leases,
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(2, 1002), [], "another user");
    assert_eq!(rows(3, 1000).len(), 1, "the same user");
    assert_eq!(rows(4, 0).len(), 1, "root");
}

#[test]
fn the_end_of_a_lease_ends_what_is_put_back_into_it() {
    // At this rate a page takes weeks.
    let slow = CONFIG.replace("rate = \"0\"", "rate = \"0\", refill_rate = \"1\"");
    let slow = slow.replace("slabs = 3", "slabs = 3\nrefill = \"2M\"");
    let (_folder, mut pool) = pool_of(&slow);
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    let (_other, _its_memory) = taken(&mut pool, 1000).unwrap();
    memory_file::punch(&memory, 0, 2 << 20).unwrap();
    until(&mut pool, |pool| !pool.workers.may_refill(None));
    assert_eq!(row(&mut pool).hole_bytes, 2 << 20);
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| {
        pool.workers.may_refill(None) && has_revoked(pool)
    });
    assert_eq!(memory_file::held_bytes(&memory).unwrap(), 0);
    let row = row(&mut pool);
    assert_eq!((row.hole_bytes, row.refilled_bytes), (0, 0));
}

/// A slab whose emptying cannot go on, as with a client that keeps its file's lock, and
/// another that comes back after it.
fn a_return_that_stands_still(config: &str) {
    let (_folder, mut pool) = pool_of(config);
    let (first, held) = taken(&mut pool, 1000).unwrap();
    let (second, memory) = taken(&mut pool, 1000).unwrap();
    let tenure = pool.refills.tenure(first);
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
        end_lease(&mut pool, first);
        end_lease(&mut pool, second);
        let bytes = |file| memory_file::held_bytes(file).unwrap();
        until(&mut pool, |_| bytes(&memory) == 0);
        assert_eq!(bytes(&held), 2 << 20);
        drop(release);
    });
    drop((held, memory));
    until(&mut pool, |pool| {
        let is_emptied = row(pool).dirty_bytes == 0;
        is_emptied && !has_revoked(pool) && clean(pool) == 3
    });
    pool.tick();
    assert!(taken(&mut pool, 1000).is_ok());
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
