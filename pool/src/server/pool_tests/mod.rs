//! The machine's decisions carried out with real files and workers, without sockets.

mod grants;
mod returns;
mod rows;
mod takes;

use super::closer::Closer;
use super::doors::Doors;
use super::keeper::Keeper;
use super::listen::Beside;
use super::looks::Looks;
use super::notifier::Notifier;
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
use crate::os::subids::SubordinateIds;
use crate::os::threads::Threads;
use crate::os::{memory_file, need};
use crate::protocol::{
    FillChange, Filling, Give, Label, PageSize, PoolRow, QuotaOf, QuotaRow, RefusalCode, Reply,
    Request, Resize, StatusQuery, Take,
};
use crate::store::Files;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
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
    let (folder, mut pool) = pool_on(Threads::new().unwrap(), config);
    until(&mut pool, |pool| clean(pool) == 3);
    (folder, pool)
}

fn pool_on(threads: Threads, config: &str) -> (tempfile::TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool_in(folder.path(), threads, config);
    (folder, pool)
}

/// The next one in a folder.
fn pool_in(folder: &Path, threads: Threads, config: &str) -> Pool {
    let threads = Arc::new(threads);
    let config = Config::parse(Path::new("test"), config).unwrap();
    let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
    let (files, found) = Files::open(folder, &specs, false).unwrap();
    let own = || files.directory().try_clone_to_owned().unwrap();
    let journal = Journal::open(own(), 0xabc).unwrap().0;
    let machine = Machine::new(Start {
        rules: Rules::new(&config, u32::MAX).unwrap(),
        specs: found.specs,
        one_node: true,
        names: (journal.prefix(), journal.next()),
        rate: config.fill.rate.bytes(),
        now: now(),
    });
    let known = (journal, Pipes::new(own()));
    let beside = Beside::of(folder.join("pool.sock"), Arc::new(own()));
    let workers = Workers::new(&config.fill, Arc::clone(&threads), Vec::new()).unwrap();
    let wake = workers.waker();
    let refills = Refills::new(Duration::ZERO);
    Pool::new(Parts {
        machine,
        files,
        workers,
        refills,
        looks: Looks::new().unwrap(),
        known,
        doors: Doors::new(Some(beside), Arc::clone(&threads)).unwrap(),
        ids: SubordinateIds::of_machine(&[0]),
        keeper: Keeper::new(Notifier::new(wake).unwrap()),
        closer: Rc::new(Closer::new(threads).unwrap()),
    })
}

/// Tasks that have all threads of a pool that are ready, until this is dropped.
fn hold_threads(pool: &Pool) -> mpsc::Sender<()> {
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let hold = || {
        let goes_on = Arc::clone(&goes_on);
        pool.workers.threads().start("held", move || {
            let _ = goes_on.lock().unwrap().recv();
        })
    };
    while hold().is_ok() {}
    go_on
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
        grant: None,
        request,
    });
    assert_eq!(outgoing.len(), 1, "{outgoing:?}");
    outgoing.remove(0)
}

/// Lets workers work until something has come.
fn until(pool: &mut Pool, mut come: impl FnMut(&mut Pool) -> bool) {
    let begin = Instant::now();
    while !come(pool) {
        assert!(begin.elapsed() < Duration::from_secs(300), "waited in vain");
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
    label: None,
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

/// Turns filling off or on, as its owner does.
fn turn_filling(pool: &mut Pool, on: bool) {
    let change = FillChange {
        on: Some(on),
        rate: None,
    };
    request(pool, 0, &peer(0), Request::Fill(change));
}
