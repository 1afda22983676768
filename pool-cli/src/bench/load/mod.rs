//! `--load`: what requests cost, and what a member waits for its memory beside others that
//! load the daemon. No VMM is started.
//!
//! Each round starts each daemon again, in turns where there are several. Root takes slabs as fast
//! as it goes, on one connection; then a member takes one after the other, with a pause
//! between, alone and beside each [`Flood`], on a connection that it has and on one that it
//! opens for each.

mod floods;
pub(crate) mod record;

use super::own_daemon::{Kind, OwnDaemon, Server, Setup};
use crate::Program;
use crate::failure::Failure;
use crate::progress::Progress;
use firstlight_pool::client::{Allocated, Client};
use firstlight_pool::protocol::{PageSize, Take};
use floods::{Flood, OTHER_MEMBER, as_user};
pub(super) use record::Record;
use record::{Connection, REQUESTS, Round, Waits};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two takes of the member: it stays within its share of the daemon's time.
const PAUSE: Duration = Duration::from_millis(2);

/// The member whose takes are timed.
const MEMBER: u32 = 65_001;

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Load<'a> {
    /// A slab is a page of this size.
    pub page: PageSize,
    /// Takes of each kind and round: as many slabs are kept.
    pub takes: u32,
    pub runs: u32,
    /// Other programs whose daemons are measured, too, in turns.
    pub beside: &'a [PathBuf],
    pub stop: &'a AtomicBool,
}

impl Load<'_> {
    /// What the slabs of a round need.
    pub(super) fn bytes(&self) -> u64 {
        self.page.bytes() * u64::from(self.takes)
    }
}

/// All rounds of this program's daemon, and of others in turn; fewer where it is to stop.
pub(super) fn measure(program: Program, load: Load<'_>) -> Result<Record, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::pool("--load needs root, to be another user"));
    }
    let others = [None]
        .into_iter()
        .chain(load.beside.iter().cloned().map(Some));
    let mut all: Vec<(Option<PathBuf>, Vec<Round>)> =
        others.map(|other| (other, Vec::new())).collect();
    for round in 0..load.runs {
        for turn in 0..all.len() {
            if load.stop.load(Ordering::Relaxed) {
                return Ok(Record::of((load.page, load.takes), all));
            }
            let turn = if round % 2 == 0 {
                turn
            } else {
                all.len() - 1 - turn
            };
            if let Some((other, rounds)) = all.get_mut(turn) {
                let server = other
                    .as_deref()
                    .map_or(Server::This(program), Server::Other);
                rounds.push(round_of(load, server)?);
            }
        }
    }
    Ok(Record::of((load.page, load.takes), all))
}

/// A daemon of `server`, measured once.
fn round_of(load: Load<'_>, server: Server<'_>) -> Result<Round, Failure> {
    // In memory, as below /run: a disk would be what is measured.
    let shared = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
    let folder = shared.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
    let folder = folder.map_err(Failure::pool_at("a folder"))?;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).map_err(Failure::pool_at("a folder"))?;
    let Load { page, takes, .. } = load;
    let bytes = page.bytes();
    let quotas: String = [MEMBER, OTHER_MEMBER]
        .map(|uid| format!("[[quota]]\nuid = {uid}\nbytes = {}\n", load.bytes()))
        .concat();
    let mut daemon = OwnDaemon::with(&Setup {
        folder: folder.path(),
        server,
        kind: Kind::of(page),
        sizes: &BTreeSet::from([bytes]),
        rate: Some("0"),
        more: &quotas,
    })?;
    daemon.fill(bytes, takes)?;
    let mut client = Client::connect(daemon.socket())?;
    let mut round = Round::new(timed(takes, Duration::ZERO, || {
        client.take(Take::of(bytes))
    })?);
    let begin = Instant::now();
    for _ in 0..REQUESTS {
        client.status()?;
    }
    round.requests(REQUESTS, begin.elapsed());
    drop(client);
    let progress = Progress::new();
    for (at, flood) in Flood::ALL.into_iter().enumerate() {
        progress.say(format!(
            "waits beside load {} of {}",
            at + 1,
            Flood::ALL.len()
        ));
        for connection in Connection::ALL {
            if load.stop.load(Ordering::Relaxed) {
                return Ok(round);
            }
            daemon.fill(bytes, takes)?;
            let socket = daemon.socket();
            let times = flood.beside(socket, || member(socket, load, connection))?;
            round.add(connection, flood, times?);
        }
    }
    daemon.stop()?;
    Ok(round)
}

/// What the member waits for its memory.
fn member(socket: &Path, load: Load<'_>, connection: Connection) -> Result<Waits, Failure> {
    let (bytes, takes) = (load.page.bytes(), load.takes);
    let act = || {
        let new = || Client::connect(socket);
        match connection {
            Connection::New => timed(takes, PAUSE, || new()?.take(Take::of(bytes))),
            Connection::Open => {
                let mut client = new()?;
                timed(takes, PAUSE, || client.take(Take::of(bytes)))
            }
        }
    };
    as_user(MEMBER, act).map_err(Failure::pool_at("the member"))?
}

/// Each of some takes; what they took lasts until all are done.
fn timed(
    takes: u32,
    pause: Duration,
    mut one: impl FnMut() -> Result<Allocated, firstlight_pool::client::ClientError>,
) -> Result<Waits, Failure> {
    let mut waits = Waits::default();
    let mut allocated = Vec::new();
    for _ in 0..takes {
        thread::sleep(pause);
        let begin = Instant::now();
        let taken = one()?;
        waits.add(begin.elapsed());
        allocated.push(taken);
    }
    Ok(waits)
}
