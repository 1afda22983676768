//! What becomes of memory that is given back.

use super::*;
use crate::fill::{Job, Work};
use crate::server::workers::Ticket;
use crate::store::slab::SlabId;
use std::sync::atomic::{AtomicBool, Ordering};

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
            used_bytes: 0,
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

/// A pool in which a page that is to be put back takes weeks.
fn pool_that_refills_slowly() -> (tempfile::TempDir, Pool) {
    let slow = CONFIG.replace("rate = \"0\"", "rate = \"0\", refill_rate = \"1\"");
    pool_of(&slow.replace("slabs = 3", "slabs = 3\nrefill = \"2M\""))
}

/// A guest gives its page back, and waits for it.
fn wait_for_a_page(pool: &mut Pool, memory: &OwnedFd) {
    memory_file::punch(memory, 0, 2 << 20).unwrap();
    until(pool, |pool| !pool.workers.may_refill(None));
}

#[test]
fn the_end_of_a_lease_ends_what_is_put_back_into_it() {
    let (_folder, mut pool) = pool_that_refills_slowly();
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    let (other, _its_memory) = taken(&mut pool, 1000).unwrap();
    wait_for_a_page(&mut pool, &memory);
    assert_eq!(row(&mut pool).hole_bytes, 2 << 20);
    // What it still lacks is not left for slabs.
    let claimed = |pool: &Pool| {
        pool.claims(false)
            .iter()
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
    };
    assert_eq!((claimed(&pool), pool.claims(true).len()), (2 << 20, 0));
    // Where pages of another come back, a turn that waits for its pace ends.
    assert!(!pool.refills.is_stopped(serial));
    end_lease(&mut pool, other);
    assert!(pool.refills.is_stopped(serial));
    until(&mut pool, |pool| !pool.refills.is_stopped(serial));
    end_lease(&mut pool, serial);
    until(&mut pool, |pool| {
        pool.workers.may_refill(None) && has_revoked(pool)
    });
    assert_eq!(memory_file::held_bytes(&memory).unwrap(), 0);
    let row = row(&mut pool);
    assert_eq!((row.hole_bytes, row.refilled_bytes), (0, 0));
}

#[test]
fn what_a_revoked_client_drew_stops_refills_when_it_is_taken_away() {
    let (_folder, mut pool) = pool_that_refills_slowly();
    let drew = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&drew);
    pool.looks = Looks::with(move |slab, _| Reach {
        slab,
        is_alone: false,
        holds_pages: seen.load(Ordering::Relaxed),
        used_bytes: 0,
    })
    .unwrap();
    let (revoked, _its_memory) = taken(&mut pool, 1000).unwrap();
    let (serial, memory) = taken(&mut pool, 1000).unwrap();
    end_lease(&mut pool, revoked);
    until(&mut pool, |pool| has_revoked(pool) && clean(pool) == 2);
    wait_for_a_page(&mut pool, &memory);
    for _ in 0..3 {
        pool.tick();
        assert!(!pool.refills.is_stopped(serial));
    }
    drew.store(true, Ordering::Relaxed);
    until(&mut pool, |pool| pool.refills.is_stopped(serial));
}

/// To begin a process may take long: clients do not wait for that, where a new configuration is the first with `refill` either.
#[test]
fn the_process_that_maps_files_is_begun_by_the_worker_that_needs_it() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("slabs = 3", "slabs = 3\nrefill = \"2M\""));
    pool.workers.set_mapper(vec!["/nothing/there".into()]);
    let (_serial, memory) = taken(&mut pool, 1000).unwrap();
    memory_file::punch(&memory, 0, 2 << 20).unwrap();
    pool.tick();
    assert!(!pool.workers.may_refill(None), "it has something to do");
    until(&mut pool, |pool| {
        let trouble = row(pool).trouble.unwrap_or_default();
        trouble.contains("No such file")
    });
}

/// What others lack, or are promised, is not put back for a guest.
#[test]
fn no_guest_is_refilled_with_what_slabs_still_lack() {
    let (_folder, mut pool) = pool_of(&CONFIG.replace("slabs = 3", "slabs = 3\nrefill = \"2M\""));
    let (_serial, memory) = taken(&mut pool, 1000).unwrap();
    let key = pool.machine.leases().iter().next().unwrap().1.key;
    let slab = SlabId(u64::MAX);
    let job = Job::new(
        Ticket::TopUp(slab),
        Arc::new(memory.try_clone().unwrap()),
        Work::Empty,
    );
    pool.begin(slab, (key, 1 << 50), &job);
    memory_file::punch(&memory, 0, 2 << 20).unwrap();
    until(&mut pool, |pool| {
        let trouble = row(pool).trouble.unwrap_or_default();
        trouble.contains("is for slabs that are being filled or replaced")
    });
    pool.is_done(slab);
    let row = row(&mut pool);
    assert_eq!((row.hole_bytes, row.refilled_bytes), (2 << 20, 0));
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
