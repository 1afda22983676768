//! The workers of a daemon: for each node one that fills in the background and one
//! that puts back what guests gave back; one for each client that waits for memory;
//! and those that take memory away (`emptying.rs`).
//!
//! Each has one of the [`Threads`] that are ready: to begin one may take long.
//!
//! What is being worked on comes back with the result as its [`Ticket`].

use super::emptying::{Emptying, End};
use crate::config::Fill;
use crate::fill::{self, Done, Job, Mapper, Pace, Policy, Watch, Worker};
use crate::lease::{Serial, Whose};
use crate::machine::Spec;
use crate::os::pressure::Gauge;
use crate::os::threads::Threads;
use crate::protocol::Filling;
use crate::store::slab::{Slab, SlabId};
use rustix::event::EventfdFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// What is being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// A slab is being filled.
    Fill(Option<u32>, SlabId),
    /// A client waits.
    TopUp(SlabId),
    /// A slab that is back is being emptied; of this user's lease.
    Empty(SlabId, Option<Whose>),
    /// A slab of a trusted client is being zeroed in place.
    ZeroInPlace(SlabId),
    /// A revoked slab holds pages again.
    EmptyAgain(SlabId),
    /// A client made its slab longer.
    Shorten(Serial),
    /// A clean slab goes back to the kernel.
    Discard(SlabId),
    /// Pages are put back into the slab of a lease.
    Refill(Option<u32>, Serial),
}

/// What a node's worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Background,
    Refill,
}

/// All workers.
#[derive(Debug)]
pub(super) struct Workers {
    /// What each node's pace begins with.
    rate: Option<u64>,
    watch: Arc<Watch>,
    on: bool,
    cpus: Vec<usize>,
    nice: Option<u8>,
    /// The command of [`Mapper::by`].
    mapper: Vec<OsString>,
    /// Of filling, for each node.
    paces: BTreeMap<Option<u32>, Arc<Pace>>,
    refill_pace: Arc<Pace>,
    batch_bytes: u64,
    /// What maps files of clients on each node; the first that needs it starts its process, if that does not run.
    mappers: BTreeMap<Option<u32>, Arc<Mapper>>,
    started: BTreeMap<(Kind, Option<u32>), Worker<Ticket>>,
    emptying: Emptying,
    threads: Arc<Threads>,
    report: Sender<Done<Ticket>>,
    reports: Receiver<Done<Ticket>>,
    wake: Arc<OwnedFd>,
    /// Nodes whose refilling worker has something to do.
    refilling: BTreeSet<Option<u32>>,
}

impl Workers {
    pub(super) fn new(
        fill: &Fill,
        threads: Arc<Threads>,
        mapper: Vec<OsString>,
    ) -> io::Result<Self> {
        let batch_bytes = fill.batch.as_ref().bytes();
        let pause_at = *fill.pause_at_pressure.as_ref();
        let pause_at = (pause_at > 0).then(|| f64::from(pause_at));
        let some = |rate: u64| (rate > 0).then_some(rate);
        // Page by page: a burst would be in the guest's way.
        let refill_rate = some(fill.refill_rate.bytes());
        // Before any client comes.
        fill::nodes();
        let watch = Arc::new(Watch::new(pause_at, Gauge::of_machine()));
        watch.read();
        let refill_pace = Pace::new(refill_rate, 1, Arc::clone(&watch));
        let (report, reports) = mpsc::channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            rate: some(fill.rate.bytes()),
            watch,
            on: true,
            cpus: fill
                .cpus
                .as_ref()
                .map_or_else(Vec::new, |cpus| cpus.as_ref().0.clone()),
            nice: fill.nice.as_ref().map(|nice| *nice.as_ref()),
            mapper,
            paces: BTreeMap::new(),
            refill_pace: Arc::new(refill_pace),
            batch_bytes,
            mappers: BTreeMap::new(),
            started: BTreeMap::new(),
            emptying: Emptying::new(),
            threads,
            report,
            reports,
            wake: Arc::new(rustix::event::eventfd(0, flags)?),
            refilling: BTreeSet::new(),
        })
    }

    /// Readable when something is done.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What another thread makes readable when it has something to tell.
    pub(super) fn waker(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> Arc<Threads> {
        Arc::clone(&self.threads)
    }

    /// With another command of what maps files, for nodes whose worker has not begun.
    #[cfg(test)]
    pub(super) fn set_mapper(&mut self, command: Vec<OsString>) {
        self.mapper = command;
    }

    /// A client has memory that it is about to touch.
    pub(super) fn allocated(&self) {
        for pace in self.paces.values() {
            pace.allocated();
        }
        self.refill_pace.allocated();
    }

    /// Fills so from now on.
    pub(super) fn set_filling(&mut self, filling: &Filling) {
        self.on = filling.on;
        self.rate = (filling.rate > 0).then_some(filling.rate);
        for pace in self.paces.values() {
            pace.set_rate(self.rate);
            pace.turn(self.on);
        }
    }

    fn pace(&mut self, node: Option<u32>) -> Arc<Pace> {
        let (rate, watch) = (self.rate, Arc::clone(&self.watch));
        let (on, burst_bytes) = (self.on, self.batch_bytes);
        let pace = self.paces.entry(node).or_insert_with(|| {
            let pace = Pace::new(rate, burst_bytes, watch);
            pace.turn(on);
            Arc::new(pace)
        });
        Arc::clone(pace)
    }

    /// Whether filling is paused because tasks wait for memory.
    pub(super) fn is_paused(&self) -> bool {
        self.watch.is_paused()
    }

    /// With another watch, for paces that begin later.
    #[cfg(test)]
    pub(super) fn set_watch(&mut self, watch: Watch) {
        self.watch = Arc::new(watch);
    }

    /// Looks whether tasks wait for memory; the daemon's tick does.
    pub(super) fn read_pressure(&self) {
        self.watch.read();
    }

    /// Whether the node's refilling worker does nothing.
    pub(super) fn may_refill(&self, node: Option<u32>) -> bool {
        !self.refilling.contains(&node)
    }

    /// Everything done since it was last asked.
    pub(super) fn done(&mut self) -> Vec<Done<Ticket>> {
        let mut count = [0; 8];
        // Read before the queue is: what comes in between wakes again.
        let _ = rustix::io::read(&self.wake, &mut count);
        let done: Vec<_> = self.reports.try_iter().collect();
        for done in &done {
            if let Ticket::Refill(node, _) = done.ticket {
                self.refilling.remove(&node);
            }
        }
        done
    }

    /// Work that may take its time.
    pub(super) fn later(&mut self, node: Option<u32>, job: Job<Ticket>) -> io::Result<()> {
        self.send(Kind::Background, node, job)
    }

    /// Starts what refills guests, where some are, before there are clients: its processes would have their descriptors
    /// until they run, and the thread that all clients wait for begins none.
    ///
    /// # Errors
    /// A process does not start; the worker tries it again when a guest is to be refilled.
    pub(super) fn start_refilling(&mut self, specs: &[Spec]) -> io::Result<()> {
        let refilled = specs.iter().filter(|spec| spec.refill_bytes > 0);
        let nodes: BTreeSet<_> = refilled.map(|spec| spec.key.node).collect();
        nodes.into_iter().try_for_each(|node| {
            self.make_sure(Kind::Refill, node)?;
            self.mappers
                .get(&node)
                .map_or(Ok(()), |mapper| mapper.start())
        })
    }

    /// Pages to put back.
    pub(super) fn refill(&mut self, node: Option<u32>, job: Job<Ticket>) -> io::Result<()> {
        self.send(Kind::Refill, node, job)?;
        self.refilling.insert(node);
        Ok(())
    }

    /// Memory that is taken away, whatever node it is from: a user's, that may make this wait.
    pub(super) fn take_away(&self, whose: Whose, job: Job<Ticket>) {
        self.end(whose, End::Empty(job));
    }

    /// Closes a slab, which takes its mount down, and waits for all that was set on its file: whose it was.
    pub(super) fn discard(&self, whose: Whose, slab: Slab) {
        self.end(whose, End::Close(slab));
    }

    fn end(&self, whose: Whose, end: End) {
        let Some(ends) = self.emptying.push(whose, end) else {
            return;
        };
        let policy = Policy {
            batch_bytes: self.batch_bytes,
            ..Policy::default()
        };
        let report = self.reporter();
        // Without another one it waits for those that there are.
        self.threads.start_soon("take-away", move || {
            for end in ends {
                match end {
                    End::Empty(job) => fill::serve([job], &policy, &report),
                    End::Close(slab) => drop(slab.discard()),
                }
            }
        });
    }

    /// What a worker does with its results.
    fn reporter(&self) -> impl Fn(Done<Ticket>) + Send + 'static {
        let (report, wake) = (self.report.clone(), Arc::clone(&self.wake));
        move |done| {
            // Without a receiver the daemon is on its way out.
            if report.send(done).is_ok() {
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        }
    }

    /// A thread for work that a client waits for: one each, so that none waits for another's.
    pub(super) fn prompt(&self, node: Option<u32>) -> io::Result<Worker<Ticket>> {
        let place = node.map_or("any".into(), |node| node.to_string());
        let policy = Policy {
            node,
            batch_bytes: self.batch_bytes,
            ..Policy::default()
        };
        let name = format!("prompt-{place}");
        Worker::start(&self.threads, &name, policy, self.reporter())
    }

    fn make_sure(&mut self, kind: Kind, node: Option<u32>) -> io::Result<()> {
        if !self.started.contains_key(&(kind, node)) {
            let worker = self.start(kind, node)?;
            self.started.insert((kind, node), worker);
        }
        Ok(())
    }

    fn send(&mut self, kind: Kind, node: Option<u32>, job: Job<Ticket>) -> io::Result<()> {
        self.make_sure(kind, node)?;
        let gone = || io::Error::other("a worker ended");
        let worker = self.started.get(&(kind, node)).ok_or_else(gone)?;
        worker.send(job).map_err(|_| gone())
    }

    fn start(&mut self, kind: Kind, node: Option<u32>) -> io::Result<Worker<Ticket>> {
        let place = node.map_or("any".into(), |node| node.to_string());
        let (name, background) = match kind {
            Kind::Background => (format!("fill-{place}"), self.pace(node)),
            Kind::Refill => (format!("refill-{place}"), Arc::clone(&self.refill_pace)),
        };
        let mut policy = Policy {
            background: Some(background),
            shared: kind == Kind::Refill,
            node,
            cpus: self.cpus.clone(),
            nice: self.nice,
            batch_bytes: self.batch_bytes,
            mapper: Arc::default(),
        };
        if kind == Kind::Refill {
            policy.mapper = Arc::new(Mapper::by(&self.mapper, &policy));
            self.mappers.insert(node, Arc::clone(&policy.mapper));
        }
        Worker::start(&self.threads, &name, policy, self.reporter())
    }
}
