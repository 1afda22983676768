//! The pool: the machine's decisions, carried out with files, workers and the service manager.
//!
//! It knows nothing of sockets: what is to be sent is an [`Outgoing`]. Its only thread is the
//! server's, so nothing here is locked; what takes time is given to workers and comes back by
//! [`Pool::work_done`].

use super::closer::Closer;
use super::doors::Doors;
use super::ends::Ends;
use super::keeper::Keeper;
use super::looks::Looks;
use super::notifier;
use super::refills::Refills;
use super::under_way::UnderWay;
use super::workers::{Ticket, Workers};
use crate::fill::Tenure;
use crate::lease::journal::{Journal, Record};
use crate::lease::{Pipes, Serial, Whose};
use crate::machine::{Action, Allocation, ConnectionId, Event, Machine, Now, Spec, Step};
use crate::os::subids::SubordinateIds;
use crate::protocol::Reply;
use crate::store::slab::SlabId;
use crate::store::{Files, Key};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time.
pub(super) fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    Now {
        instant: Instant::now(),
        wall_ms: wall.map_or(0, |wall| {
            u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
        }),
    }
}

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: ConnectionId,
    pub(super) reply: Reply,
    /// With memory and lease pipe.
    pub(super) lease: Option<(Serial, Vec<OwnedFd>)>,
}

/// How long the end waits for a look at what the next daemon would have to watch.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Slabs, leases, and the workers for what takes time.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) machine: Machine,
    pub(super) files: Files,
    pub(super) workers: Workers,
    pub(super) refills: Refills,
    pub(super) looks: Looks,
    pub(super) keeper: Keeper,
    journal: Journal,
    pub(super) folder: Pipes,
    pub(super) ends: Ends,
    pub(super) doors: Doors,
    pub(super) closer: Rc<Closer>,
    pub(super) ids: SubordinateIds,
    pub(super) under_way: BTreeMap<SlabId, UnderWay>,
    /// Of leases that are over, until their slabs are emptied.
    pub(super) tenures: BTreeMap<Serial, Arc<Tenure>>,
    /// Answers of leases that the service manager does not have yet.
    held: VecDeque<(notifier::Ticket, Outgoing)>,
    /// Connections at the last tick.
    pub(super) connections: usize,
}

/// What a pool is made of.
pub(super) struct Parts {
    pub(super) machine: Machine,
    pub(super) files: Files,
    pub(super) workers: Workers,
    pub(super) refills: Refills,
    pub(super) looks: Looks,
    pub(super) keeper: Keeper,
    pub(super) ids: SubordinateIds,
    /// The journal of leases, and their pipes.
    pub(super) known: (Journal, Pipes),
    pub(super) doors: Doors,
    pub(super) closer: Rc<Closer>,
}

impl Pool {
    pub(super) fn new(parts: Parts) -> Self {
        let (journal, folder) = parts.known;
        Self {
            machine: parts.machine,
            files: parts.files,
            workers: parts.workers,
            refills: parts.refills,
            looks: parts.looks,
            keeper: parts.keeper,
            closer: parts.closer,
            journal,
            folder,
            ends: Ends::default(),
            doors: parts.doors,
            ids: parts.ids,
            under_way: BTreeMap::new(),
            tenures: BTreeMap::new(),
            held: VecDeque::new(),
            connections: 0,
        }
    }

    /// The user that `uid` counts as, as far as that is known.
    pub(super) fn user_of(&self, uid: u32) -> u32 {
        self.ids.user_of(uid)
    }

    /// For whom a lease counts.
    pub(super) fn whose(&self, record: &Record) -> Whose {
        let user = || Whose::User(self.user_of(record.uid));
        record.grant.map_or_else(user, Whose::Grant)
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(super) fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Removes the pipes of leases that are over; those that cannot be removed cost a name each.
    pub(super) fn remove_other_pipes(&mut self) {
        let journal = &self.journal;
        let is_live = |serial| journal.record(serial).is_some_and(|record| !record.owed);
        let _ = self.folder.retain(is_live);
        let is_over = |serial: &Serial| self.machine.leases().get(*serial).is_none();
        let over: Vec<Serial> = self.ends.serials().filter(is_over).collect();
        for serial in over {
            self.drop_pipe(serial);
        }
    }

    pub(super) fn adopt_allocated(
        &mut self,
        slab: SlabId,
        key: Key,
        bytes: u64,
        file: Option<OwnedFd>,
    ) {
        if let Some(file) = file {
            self.files.adopt_allocated(slab, key, bytes, file);
        }
    }

    /// The machine is told what happened, and what it wants done is done. What is to be sent
    /// is returned, in order.
    pub(super) fn step(&mut self, event: Event) -> Vec<Outgoing> {
        self.progress();
        let actions = self.machine.step(now(), event);
        self.carry_out(actions)
    }

    pub(super) fn carry_out(&mut self, actions: Vec<Action>) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            if let Some(event) = self.act(action, &mut outgoing) {
                actions.extend(self.machine.step(now(), event));
            }
        }
        outgoing
    }

    /// Does what is to be done; what came of it, where the machine must know.
    fn act(&mut self, action: Action, outgoing: &mut Vec<Outgoing>) -> Option<Event> {
        match action {
            Action::Reply { to, reply } => outgoing.push(Outgoing {
                to,
                reply: self.complete(reply),
                lease: None,
            }),
            Action::Allocate(allocation) => {
                let serial = allocation.record.serial;
                match self.allocate(*allocation) {
                    Ok((sent, None)) => outgoing.push(sent),
                    Ok((sent, Some(ticket))) => self.held.push_back((ticket, sent)),
                    Err(error) => {
                        let error = error.to_string();
                        return Some(Event::NotAllocated { serial, error });
                    }
                }
            }
            Action::Grow {
                slab,
                key,
                bytes,
                deadline,
            } => {
                return self.top_up(slab, key, bytes, deadline);
            }
            Action::Fill {
                slab,
                spec,
                has_pages,
            } => {
                let error = self.fill(slab, &spec, has_pages).err()?.to_string();
                self.is_done(slab);
                return Some(Event::Filled {
                    slab,
                    error: Some(error),
                });
            }
            Action::Cancel(slab) => {
                if let Some(under_way) = self.under_way.get(&slab) {
                    under_way.cancel();
                }
            }
            Action::Prepare { from, spec, all } => {
                let spec = self.prepare(spec, &all);
                return Some(Event::Prepared { from, spec });
            }
            Action::OpenGrant { from, grant } => return Some(self.open_grant(from, grant)),
            Action::CloseGrant(id) => self.close_grant(id),
            other => return self.take_back(other),
        }
        None
    }

    /// What concerns slabs and leases that are over.
    fn take_back(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::EndTenure(serial) => {
                if let Some(tenure) = self.refills.end(serial) {
                    self.tenures.insert(serial, tenure);
                }
                self.drop_pipe(serial);
            }
            Action::Empty { slab, whose, lease } => {
                self.stop_refills(slab);
                let ticket = Ticket::Empty(slab, lease.map(|_| whose));
                self.empty(whose, slab, ticket, lease);
            }
            Action::EmptyAgain { slab, whose } => {
                self.stop_refills(slab);
                self.empty(whose, slab, Ticket::EmptyAgain(slab), None);
            }
            // One whose file could not be made has nothing to go back.
            Action::Discard(slab) if self.files.get(slab).is_err() => {
                return Some(Event::Discarded(slab));
            }
            Action::Discard(slab) => {
                self.empty(Whose::Nobody, slab, Ticket::Discard(slab), None);
            }
            Action::ZeroInPlace { slab, node, lease } => {
                self.zero_in_place(slab, node, lease).err()?;
                self.is_done(slab);
                let is_clean = false;
                return Some(Event::Zeroed { slab, is_clean });
            }
            Action::Forget { slab, whose } => {
                if let Some(slab) = self.files.remove(slab) {
                    self.workers.discard(whose, slab);
                }
            }
            Action::Leave(slab) => {
                if let Some(slab) = self.files.remove(slab) {
                    slab.leave();
                }
            }
            Action::KeepClean(slab) => {
                if let Ok(slab) = self.files.get(slab) {
                    self.keeper.keep(slab);
                }
            }
            Action::UnkeepClean(slab) => self.keeper.forget(slab),
            Action::UnkeepLease(serial) => {
                self.tenures.remove(&serial);
                self.keeper.forget_lease(serial);
            }
            Action::RemovePipe(serial) => {
                self.drop_pipe(serial);
                self.folder.remove(serial);
            }
            Action::RecordRevoked(serial) => drop(self.journal.revoke(serial)),
            Action::RecordOwed { serial, has_pages } => {
                drop(self.journal.owe(serial, has_pages));
            }
            Action::RecordOver(serial) => drop(self.journal.end(serial)),
            Action::SetFilling(filling) => self.workers.set_filling(&filling),
            _ => {}
        }
        None
    }

    /// Waits for the end of a lease no more. Its pipe is closed by a thread that may wait.
    fn drop_pipe(&mut self, serial: Serial) {
        if let Some(pipe) = self.ends.remove(serial) {
            let record = self.journal.record(serial);
            let whose = record.map_or(Whose::Nobody, |record| self.whose(record));
            self.closer.close_sent(whose, pipe.into_descriptor());
        }
    }

    /// Answers that the service manager was to have something before, once it has.
    pub(super) fn kept(&mut self) -> Vec<Outgoing> {
        let is_kept = |(ticket, _): &(notifier::Ticket, Outgoing)| self.keeper.has(*ticket);
        let kept = self.held.iter().take_while(|held| is_kept(held)).count();
        self.held.drain(..kept).map(|(_, sent)| sent).collect()
    }

    /// Carries out the steps of an allocation up to its sending, which may have to wait for the service manager.
    fn allocate(
        &mut self,
        allocation: Allocation,
    ) -> io::Result<(Outgoing, Option<notifier::Ticket>)> {
        let Allocation {
            to,
            reply,
            slab,
            record,
            refill_bytes,
        } = allocation;
        let serial = record.serial;
        let mut parts = Vec::new();
        let mut ticket = None;
        for step in Allocation::STEPS {
            match step {
                Step::Mark => parts.push(self.files.get_mut(slab)?.allocate()?),
                Step::UnkeepClean => self.keeper.forget(slab),
                Step::KeepLease => ticket = self.keeper.keep_lease(serial, self.files.get(slab)?),
                Step::MakePipe => {
                    let (ours, theirs) = self.folder.make(serial)?;
                    self.ends.made(serial, ours);
                    parts.push(theirs);
                }
                Step::Record => {
                    self.journal.begin(record.clone())?;
                    self.refills.begin(serial, record.key(), refill_bytes);
                }
                Step::Send => {}
            }
        }
        self.workers.allocated();
        let sent = Outgoing {
            to,
            reply: Reply::Take(reply),
            lease: Some((serial, parts)),
        };
        Ok((sent, ticket))
    }

    /// On whose account it is what follows when a worker is done: a slab is closed, another is made in its place.
    pub(super) fn pays_for(&self, ticket: &Ticket) -> Option<Whose> {
        match ticket {
            Ticket::Empty(_, whose) => *whose,
            Ticket::Fill(_, slab) => self.machine.turn(*slab),
            _ => None,
        }
    }

    /// What the machine does not know of itself.
    fn complete(&self, mut reply: Reply) -> Reply {
        if let Reply::Status(status) = &mut reply {
            status.daemon_pid = std::process::id();
            status.gauges.connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
            for row in &mut status.pools {
                self.refills.complete(row);
            }
        }
        reply
    }

    fn prepare(&mut self, spec: Spec, all: &[Spec]) -> Result<Spec, String> {
        let prepared = self.files.prepare(&[spec], all);
        let prepared = prepared.map_err(|error| error.to_string())?;
        let specs = self.files.install(prepared);
        specs
            .first()
            .copied()
            .ok_or_else(|| "it is no class".into())
    }

    /// What is done from time to time: slabs of revoked clients and of guests are looked at, and what was seen
    /// of them last is told.
    pub(super) fn tick(&mut self) -> Vec<Outgoing> {
        self.workers.read_pressure();
        self.journal.catch_up();
        self.look_at_doors();
        let mut outgoing = self.look_for_pipes();
        let revoked = self.looks.seen();
        let seen = self.see(revoked);
        outgoing.extend(self.step(Event::Tick(seen)));
        self.look();
        self.look_for_holes();
        self.begin_refills();
        outgoing
    }

    /// Ends: what is clean goes back to the kernel, or stays for the next daemon.
    pub(super) fn stop(mut self, keep: bool) {
        // Behind one that is under way, which may not know all.
        self.looks.wait(LAST_LOOK);
        self.look();
        let revoked = self.looks.wait(LAST_LOOK);
        let seen = self.see(revoked);
        self.step(Event::Stop { keep, seen });
        // Closed with this process: a close may wait for a writer.
        self.ends.leave();
        self.doors.leave();
        self.keeper.finish();
    }
}
