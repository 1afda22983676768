//! Slabs that workers are given: filled, topped up, emptied, zeroed in place.

use super::pool::Pool;
use super::start;
use super::workers::Ticket;
use crate::fill::{Job, Subject, Work, Worker};
use crate::lease::{Serial, Whose};
use crate::machine::{Event, NotGrown, Spec};
use crate::store::Key;
use crate::store::slab::SlabId;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A slab that is being filled or topped up.
#[derive(Debug)]
pub(super) struct UnderWay {
    key: Key,
    /// To be filled.
    bytes: u64,
    cancel: Arc<AtomicBool>,
    done_bytes: Arc<AtomicU64>,
}

impl UnderWay {
    /// It need not be finished.
    pub(super) fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Bytes that have no pages yet; those of a batch that is not done count all.
    fn lacking_bytes(&self) -> u64 {
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        self.bytes.saturating_sub(done_bytes)
    }
}

impl Pool {
    /// How far the slabs are that are being filled.
    pub(super) fn progress(&mut self) {
        let filling: Vec<_> = self.machine.filling().collect();
        for slab in filling {
            if let Some(under_way) = self.under_way.get(&slab) {
                let bytes = under_way.done_bytes.load(Ordering::Relaxed);
                self.machine.progress(slab, bytes);
            }
        }
    }

    /// Has a slab made longer; what came of it, where that is known at once.
    pub(super) fn top_up(
        &mut self,
        slab: SlabId,
        key: Key,
        bytes: u64,
        deadline: Instant,
    ) -> Option<Event> {
        let not_grown = |why| Some(Event::NotGrown { slab, why });
        let more_bytes = bytes.saturating_sub(key.bytes);
        if self.has_room(key, more_bytes, false).is_err() {
            return not_grown(NotGrown::NoPages);
        }
        let fill = Work::Fill {
            page: key.page,
            start: key.bytes,
            end: bytes,
            deadline: Some(deadline),
        };
        // Before the file is touched: without a thread the slab is clean as before.
        let Ok(worker) = self.workers.prompt(key.node) else {
            return not_grown(NotGrown::NoThread);
        };
        let grown = self.grow(slab, key, bytes, fill, &worker);
        let why = NotGrown::Failed(grown.err()?.to_string());
        self.is_done(slab);
        not_grown(why)
    }

    fn grow(
        &mut self,
        slab: SlabId,
        key: Key,
        bytes: u64,
        fill: Work,
        worker: &Worker<Ticket>,
    ) -> io::Result<()> {
        let file = self.files.get_mut(slab)?;
        file.grow(bytes)?;
        let job = Job::new(Ticket::TopUp(slab), file.file(), fill);
        let more_bytes = bytes.saturating_sub(key.bytes);
        self.begin(slab, (key, more_bytes), &job);
        worker
            .send(job)
            .map_err(|_| io::Error::other("a worker ended"))
    }

    pub(super) fn fill(&mut self, slab: SlabId, spec: &Spec, has_pages: bool) -> io::Result<()> {
        let key = spec.key;
        let work = Work::Fill {
            page: key.page,
            start: 0,
            end: key.bytes,
            deadline: None,
        };
        self.has_descriptors()?;
        self.has_room(key, key.bytes, has_pages)
            .map_err(io::Error::other)?;
        let new = Subject::New(Box::new(self.files.new_slab(slab, spec)));
        let job = Job::new(Ticket::Fill(key.node, slab), new, work);
        self.begin(slab, (key, key.bytes), &job);
        self.workers.later(key.node, job)
    }

    /// Connections, and what works for them, keep more than half of all descriptors: else clients that keep memory
    /// open after their leases would shut out everyone.
    fn has_descriptors(&self) -> io::Result<()> {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // What is clean, or will be, needs a lease pipe as well when it is allocated.
        let of_ready = self.machine.ready_slabs() * self.files.descriptors_of_ready();
        let held = (self.files.len() + self.ends.descriptors() + of_ready) as u64;
        if held < start::descriptors_of_leases(most) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "slabs and leases have {held} of {most} descriptors, and the others are for connections: \
             more of them (LimitNOFILE=), or fewer slabs that clients keep open after their leases, would do"
        )))
    }

    /// Whether there is memory for so much more of a slab, beside what others claim.
    fn has_room(&self, key: Key, bytes: u64, has_pages: bool) -> Result<(), String> {
        let claims = self.claims(has_pages).into_iter();
        self.files.has_room(key, bytes, claims)
    }

    /// Bytes that slabs under way still lack, by class, and what is promised to others, and left for guests: not for one
    /// whose user's pages are back.
    pub(super) fn claims(&self, has_pages: bool) -> Vec<(Key, u64)> {
        let under_way = self.under_way.values();
        let lacking = under_way.map(|slab| (slab.key, slab.lacking_bytes()));
        let mut claims: Vec<_> = lacking.collect();
        if !has_pages {
            claims.extend(self.refills.lacking());
            let used_bytes = |slab| self.files.get(slab)?.used_bytes();
            let used_bytes = |slab| used_bytes(slab).unwrap_or(u64::MAX);
            claims.extend(self.machine.promised(used_bytes));
        }
        claims
    }

    pub(super) fn begin(&mut self, slab: SlabId, (key, bytes): (Key, u64), job: &Job<Ticket>) {
        let under_way = UnderWay {
            key,
            bytes,
            cancel: Arc::clone(&job.cancel),
            done_bytes: Arc::clone(&job.done_bytes),
        };
        self.under_way.insert(slab, under_way);
    }

    /// A worker is done with a slab.
    pub(super) fn is_done(&mut self, slab: SlabId) {
        self.under_way.remove(&slab);
    }

    /// Has a slab's pages taken away, by a worker of its own if need be.
    pub(super) fn empty(
        &mut self,
        whose: Whose,
        slab: SlabId,
        ticket: Ticket,
        lease: Option<Serial>,
    ) {
        let Ok(file) = self.files.get_mut(slab).map(|slab| slab.file()) else {
            return;
        };
        let after = lease.and_then(|lease| self.tenures.get(&lease).cloned());
        let job = Job {
            after,
            ..Job::new(ticket, file, Work::Empty)
        };
        self.workers.take_away(whose, job);
    }

    /// Pages of a slab come back, and are promised to others.
    pub(super) fn stop_refills(&self, slab: SlabId) {
        if let Ok(slab) = self.files.get(slab) {
            self.refills.stop(slab.page());
        }
    }

    pub(super) fn zero_in_place(
        &mut self,
        slab: SlabId,
        node: Option<u32>,
        lease: Serial,
    ) -> io::Result<()> {
        let file = self.files.get(slab)?;
        let bytes = file.bytes();
        let after = self.tenures.get(&lease).cloned();
        let work = Work::ZeroInPlace { bytes };
        let job = Job {
            after,
            ..Job::new(Ticket::ZeroInPlace(slab), file.file(), work)
        };
        // It takes no memory.
        let (page, bytes) = (file.page(), 0);
        self.begin(slab, (Key { page, node, bytes }, bytes), &job);
        self.workers.later(node, job)
    }
}
