//! The daemon: sockets, signals, the service manager, and one loop over them.
//!
//! One thread does everything that is quick (requests, leases, quotas); workers
//! do the rest and wake it. Nothing a client does can stop the loop: messages
//! are bounded, replies that are not read are kept one at a time and not for
//! long, connections are counted by user.
//!
//! What becomes of slabs and leases is decided in [`crate::machine`].
//!
//! A lock or a lease that a stranger has on a file delays each thread that closes or opens it. So that thread opens and closes
//! none on which a stranger may have one, as `openings.rs` among the tests of the daemon sees for each file:
//!
//! | file | how |
//! |---|---|
//! | memory pressure, available memory, limits of cgroups, counts of huge pages | [kept open](crate::os::kept); of pages of a class that its owner adds they are opened once, and strangers can have no lease there |
//! | a peer's cgroup, `/etc/subuid` | `peers.rs` |
//! | the configuration, and what it names | `reload.rs` |
//! | the folder of its own descriptors, the nodes of the machine | looked up once, at the start: a process that lists a folder can keep all waiting that look for a name there |
//! | the folders and sockets of grants | made here while no other process has them; after that opened and removed by threads of their own |
//! | what clients have, too: sockets, lease pipes, memory | closed in `closer.rs`, asked about in `looks.rs` and by workers |
//! | the journal, lease pipes, slabs before clients have them | opened here: no other process reaches them |
//! | mounts | made by workers: that waits for all that is mounted anywhere at that moment |
//!
//! - `pool.rs`, `jobs.rs`: its decisions carried out, with files and workers; `start.rs`: before
//!   all that; `check.rs`, `places.rs`, `warnings.rs`: without a daemon; `reload.rs`: another configuration;
//! - `connections.rs`, `unread.rs`, `closer.rs`, `events.rs`, `listen.rs`: sockets; `peers.rs`: who connected; `clients.rs`: what is done for them;
//!   `doors.rs`: the sockets of grants;
//!   `turns.rs`, `budget.rs`: the order of requests, and how much of the time a user may have;
//!   `ends.rs`: the pipes that end leases;
//! - `workers.rs`: what takes time; `emptying.rs`: memory that is taken away, by users in turn; `under_way.rs`: slabs that they are given; `looks.rs`: what clients can still reach; `refills.rs`: what guests
//!   gave back;
//! - `keeper.rs`: what the service manager keeps over a restart; `notifier.rs`: how it is told; `restore.rs`: slabs and leases of
//!   an earlier daemon.

mod budget;
mod check;
mod clients;
mod closer;
mod connections;
mod doors;
mod emptying;
mod ends;
mod error;
mod events;
mod jobs;
mod keeper;
mod listen;
mod looks;
mod notifier;
mod peers;
mod places;
mod pool;
#[cfg(test)]
mod pool_tests;
mod refills;
mod reload;
mod restore;
mod start;
mod turns;
mod under_way;
mod unread;
mod warnings;
mod workers;

pub use check::{Checked, check};
pub use error::ServeError;

use crate::config::{Config, Size};
use crate::lease::Whose;
use crate::lease::quota::Rules;
use crate::machine::{Machine, Spec, Start};
use crate::os::background;
use crate::os::hugepages;
use crate::os::memory_file;
use crate::os::service;
use crate::os::subids::SubordinateIds;
use crate::os::threads::Threads;
use crate::store::{Files, Key};
use budget::{Budget, processor_time};
use closer::Closer;
use connections::Connections;
use doors::Doors;
use events::Source;
use keeper::{Keeper, Received};
use listen::Listener;
use looks::Looks;
use notifier::Notifier;
use peers::Peers;
use pool::{Parts, Pool, now};
use refills::Refills;
use reload::{Read, Reader};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turns::Turns;
use workers::Workers;

/// How often revoked slabs are looked at and stuck connections are closed.
const TICK: Duration = Duration::from_secs(1);

/// Serves until a signal ends it or it was drained.
///
/// `read` reads the configuration again, on a thread, when a signal asks for it; `mapper` is the command of a process
/// that calls [`mapper::serve`](crate::fill::mapper::serve) with its standard input; `say` gets a line for
/// the operator now and then.
///
/// # Errors
/// What keeps it from starting or going on; see [`ServeError`].
pub fn serve(
    config: &Config,
    read: impl Fn() -> Result<Config, String> + Send + Sync + 'static,
    mapper: Vec<OsString>,
    say: &mut dyn FnMut(&str),
) -> Result<(), ServeError> {
    let mut server = Server::start(config, Arc::new(read), mapper, say)?;
    let result = server.run(say);
    server.stop(config.keep_on_stop, say);
    result
}

struct Server {
    pool: Pool,
    connections: Connections,
    closer: Rc<Closer>,
    turns: Turns,
    listener: Listener,
    peers: Peers,
    /// Of all users together that may do nothing here.
    strangers: Budget,
    /// When connections are accepted again, while they are not.
    listens_at: Option<Instant>,
    signals: UnixStream,
    /// Readable when the configuration is to be read again.
    reloads: UnixStream,
    reader: Reader,
    config: Config,
    /// How often the service manager wants a sign of life.
    watchdog: Option<Duration>,
    /// Pools that do not grow, and of which that was said.
    troubled: BTreeSet<Key>,
    /// Whether all slabs were there once, which was said.
    was_full: bool,
}

impl Server {
    fn start(
        config: &Config,
        read: Arc<Read>,
        mapper: Vec<OsString>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Self, ServeError> {
        let failed = |error| ServeError::system("handle signals", error);
        let signals = start::signals().map_err(failed)?;
        let reloads = start::reloads().map_err(failed)?;
        let limits = start::within_descriptors(&config.limits, say);
        let owner = rustix::process::geteuid().as_raw();
        check::machine(config)?;
        let received =
            Received::new().map_err(|error| ServeError::system("read LISTEN_FDS", error))?;
        let path = |socket| listen::path_of(socket).ok().flatten();
        let socket = received.socket.as_ref().and_then(path);
        let socket = socket.as_deref().unwrap_or(config.socket.as_ref());
        places::apart(config, socket)?;
        let rules = Rules::new(config, owner).map_err(ServeError::Config)?;
        let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
        // Without `/proc` it does what can be done without.
        let _ = memory_file::descriptors();
        let directory = config.directory.as_ref();
        let (files, found) = Files::open(directory, &specs, received.has_manager)?;
        for note in &found.notes {
            say(note);
        }
        // Again, as one that a link names was made just now.
        places::apart(config, socket)?;
        let known = start::known_leases(files.directory(), directory, say)?;
        let is_activated = received.socket.is_some();
        let listener = match received.socket {
            Some(socket) => Listener::received(socket, &rules)?,
            None => Listener::make(config.socket.as_ref(), &rules)?,
        };
        let no_thread = |error| ServeError::system("start a thread", error);
        let threads = Arc::new(Threads::new().map_err(no_thread)?);
        let workers = Workers::new(&config.fill, Arc::clone(&threads), mapper);
        let mut workers = workers.map_err(|error| ServeError::system("wake itself", error))?;
        if let Err(error) = workers.start_refilling(&found.specs) {
            say(&format!(
                "the process that maps clients' files does not start, and until it does no guest is refilled: {error}"
            ));
        }
        let reader = Reader::new(read, Arc::clone(&threads), workers.waker());
        let refills = Refills::new(Duration::from_secs(config.fill.refill_after_s.into()));
        let now = now();
        let machine = Machine::new(Start {
            rules,
            specs: found.specs.clone(),
            one_node: !hugepages::node_exists(Path::new(hugepages::SYS), 1),
            names: (known.0.prefix(), known.0.next()),
            rate: config.fill.rate.bytes(),
            now,
        });
        let looks = Looks::new().map_err(no_thread)?;
        let closer = Rc::new(Closer::new(Arc::clone(&threads)).map_err(no_thread)?);
        // Root's range, and the daemon's user's, count as users of their own.
        let mut ids = SubordinateIds::of_machine(&[0, owner]);
        ids.read();
        let peers = Peers::new(ids.clone(), workers.waker()).map_err(no_thread)?;
        peers.limit(limits.connections);
        let notifier = Notifier::new(workers.waker()).map_err(no_thread)?;
        let doors = Doors::new(listener.beside(), threads).map_err(no_thread)?;
        let mut pool = Pool::new(Parts {
            machine,
            files,
            workers,
            refills,
            looks,
            known,
            doors,
            ids,
            keeper: Keeper::new(notifier),
            closer: Rc::clone(&closer),
        });
        pool.adopt(received.slabs, say);
        if is_activated {
            pool.machine.activated(now.instant);
        }
        pool.restore_grants(say);
        let restored = pool.restore(received.leases);
        if restored.whole + restored.unknown + restored.ended > 0 {
            say(&format!(
                "leases from before: {} found again, {} unknown, {} ended meanwhile",
                restored.whole, restored.unknown, restored.ended
            ));
        }
        Ok(Self {
            pool,
            connections: Connections::new(&limits, Rc::clone(&closer)),
            closer,
            turns: Turns::default(),
            listener,
            peers,
            strangers: Budget::full(Instant::now()),
            listens_at: None,
            signals,
            reloads,
            reader,
            config: config.clone(),
            watchdog: service::watchdog(),
            troubled: BTreeSet::new(),
            was_full: false,
        })
    }

    /// What has something to read, after at most `most`. A user in debt, and a socket at which nothing is to be
    /// accepted now, are not asked for.
    fn wait(&self, most: Duration) -> io::Result<Vec<Source>> {
        let mut sources = vec![
            (Source::Workers, self.pool.workers.wake()),
            (Source::Signals, self.signals.as_fd()),
            (Source::Reloads, self.reloads.as_fd()),
        ];
        let listens = self.listens_at.is_none();
        sources.extend(listens.then(|| (Source::Listener, self.listener.as_fd())));
        if !self.closer.is_behind() {
            sources.push((Source::Doors, self.pool.doors.as_fd()));
        }
        sources.extend(self.turns.sources());
        events::wait_for(&sources, most)
    }

    fn run(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), ServeError> {
        // Refused, requests wait for a turn of the processor like anything else.
        let _ = background::run_before_others();
        self.tick();
        self.hang_up_on_ended_grants(say);
        self.tell_troubles(say);
        let (lacking, clean) = self.pool.machine.fill_bytes();
        self.was_full = lacking == 0;
        let [lacking, clean] = [lacking, clean].map(Size::new);
        say(&format!("listening; {clean} clean, {lacking} to be filled"));
        self.tell("READY=1");
        // Twice within the time the manager waits.
        let tick = self.watchdog.map_or(TICK, |most| (most / 2).min(TICK));
        let mut ticked = Instant::now();
        while !self.pool.machine.is_drained() {
            let now = Instant::now();
            self.turns.go_on(now);
            let turns = &self.turns;
            let is_aside = |grant| turns.is_aside(Whose::Grant(grant));
            self.pool.doors.go_on(is_aside);
            let wait = tick.saturating_sub(ticked.elapsed());
            let wait = self.turns.wait(now).map_or(wait, |due| due.min(wait));
            let wait = self.listen_again(now).map_or(wait, |due| due.min(wait));
            let unclosed = self.closer.look_after(now);
            let wait = unclosed.map_or(wait, |due| due.min(wait));
            let ready = self.wait(wait);
            for source in ready.map_err(|error| ServeError::system("wait", error))? {
                match source {
                    Source::Queue(whose) => self.turn(whose),
                    Source::Reloads => {
                        let _ = self.reloads.read(&mut [0; 16]);
                        self.reload(say);
                    }
                    Source::Signals if self.signals.read(&mut [0; 16]).is_ok() => return Ok(()),
                    Source::Listener => self.accept(),
                    Source::Doors => self.accept_at_doors(),
                    Source::Workers => {
                        self.work_done();
                        self.reloaded(say);
                    }
                    Source::Signals => {}
                }
                self.hang_up_on_ended_grants(say);
            }
            if ticked.elapsed() >= tick {
                ticked = Instant::now();
                self.tick();
                self.hang_up_on_ended_grants(say);
                self.tell_troubles(say);
                self.tell_full(say);
            }
        }
        say("drained");
        // The unit reads it, and stops the socket too.
        self.tell("STATUS=drained");
        Ok(())
    }

    /// The first time that nothing is left to be filled.
    fn tell_full(&mut self, say: &mut dyn FnMut(&str)) {
        let (lacking, clean) = self.pool.machine.fill_bytes();
        if lacking == 0 && !self.was_full && !self.pool.machine.is_draining() {
            self.was_full = true;
            say(&format!("filled: {} clean", Size::new(clean)));
        }
    }

    /// Why pools do not grow, once for as long as it lasts.
    fn tell_troubles(&mut self, say: &mut dyn FnMut(&str)) {
        let mut troubled = BTreeSet::new();
        for (key, trouble) in self.pool.machine.troubles() {
            if !self.troubled.contains(&key) {
                say(&format!("slabs of {}: {trouble}", Size::new(key.bytes)));
            }
            troubled.insert(key);
        }
        if let Some(trouble) = self.pool.keeper.trouble() {
            say(&trouble);
        }
        self.troubled = troubled;
    }

    /// A manager that does not listen any more changes nothing here.
    fn tell(&mut self, what: &str) {
        self.pool.keeper.notifier().tell(what);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.watchdog.is_some() {
            self.pool.keeper.notifier().tell_alive();
        }
        self.pool.connections = self.connections.len();
        let outgoing = self.pool.tick();
        self.send_on_their_accounts(outgoing);
        self.wait_for_pipes();
        let mut had_one = BTreeSet::new();
        self.let_go_of_read(&mut had_one);
        self.close_due(self.connections.stuck(now), &mut had_one);
        for (user, queue) in self.turns.sweep(now) {
            self.closer.close_sent(user, queue.into());
        }
        let with_lease = self.pool.machine.connections();
        let mut idle = self.connections.idle(now);
        idle.retain(|id| !with_lease.contains(id));
        self.close_due(idle, &mut had_one);
    }

    fn work_done(&mut self) {
        // First, since other threads wake this one by the same descriptor: what they tell later wakes it again.
        let all_done = self.pool.workers.done();
        let outgoing = self.pool.kept();
        self.send_on_their_accounts(outgoing);
        self.welcome_known();
        for done in all_done {
            let begin = processor_time();
            let user = self.pool.pays_for(&done.ticket);
            let outgoing = self.pool.work_done(done);
            if let Some(user) = user {
                self.charge(user, begin);
            }
            self.send_on_their_accounts(outgoing);
        }
    }

    /// Gives back what is not allocated, or leaves it for the next daemon.
    fn stop(mut self, keep: bool, say: &mut dyn FnMut(&str)) {
        self.tell("STOPPING=1");
        let allocated = self.pool.machine.allocated_slabs();
        if allocated > 0 {
            say(&format!("slabs that stay with their clients: {allocated}"));
        }
        // Messages that were not read go with all of them, which may take as long as their senders like.
        self.peers.leave();
        self.connections.leave();
        self.listener.leave();
        self.pool.stop(keep);
    }
}
