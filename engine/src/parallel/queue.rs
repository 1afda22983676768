//! The queue of chunks: [`Share`]s to take from, [`Seat`]s to take from.
//!
//! A chunk is taken by raising its share's counter, so it is taken once. The
//! seat notes what it holds until the work is done; what is still noted when
//! all threads are gone belonged to one that died.

use super::{Chunking, Job, JobError, Plan, Report};
use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A range of one node, and how much of it was taken.
#[derive(Debug)]
pub struct Share {
    node: NodeId,
    frames: FrameRange,
    plan: Plan,
    /// Threads of this very node.
    seats: u32,
    /// Chunks taken; may run past their number.
    taken: AtomicU64,
}

impl Share {
    /// `frames` of `node`, all still to be done.
    pub fn new(node: NodeId, frames: FrameRange) -> Self {
        Self {
            node,
            frames,
            plan: Plan {
                threads: 1,
                chunk_frames: u64::MAX,
                chunks: 0,
            },
            seats: 0,
            taken: AtomicU64::new(0),
        }
    }

    /// Its node.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Its frames.
    pub const fn frames(&self) -> FrameRange {
        self.frames
    }

    /// How it was cut when the last job began.
    pub const fn plan(&self) -> Plan {
        self.plan
    }

    /// The next chunk that nobody has.
    fn take(&self) -> Option<FrameRange> {
        // Looked at first: a counter that is through is left in everybody's cache.
        if self.taken.load(Ordering::Relaxed) >= self.plan.chunks {
            return None;
        }
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        (index < self.plan.chunks).then(|| self.plan.chunk(self.frames, index))
    }
}

/// No chunk is held. No chunk starts there: frame numbers end at 2^52.
const NOTHING: u64 = u64::MAX;

/// A CPU that may work, and what it works on.
#[derive(Debug)]
pub struct Seat {
    node: NodeId,
    /// Which of its node's seats this is, from 0.
    rank: u32,
    /// First frame of the chunk in hand, and the share it is of.
    start: AtomicU64,
    share: AtomicU64,
    chunks: AtomicU32,
}

impl Seat {
    /// A CPU of `node`.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            rank: 0,
            start: AtomicU64::new(NOTHING),
            share: AtomicU64::new(0),
            chunks: AtomicU32::new(0),
        }
    }

    /// The node its CPU is on.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Chunks it finished in the last job.
    pub fn chunks(&self) -> u32 {
        self.chunks.load(Ordering::Relaxed)
    }
}

/// A job under way.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    job: Job,
    shares: &'a [Share],
    seats: &'a [Seat],
}

impl<'a> Queue<'a> {
    /// Cuts the shares for the seats there are.
    pub(super) fn prepare(
        job: &Job,
        shares: &'a mut [Share],
        seats: &'a mut [Seat],
    ) -> Result<Self, JobError> {
        job.check()?;
        if seats.is_empty() {
            return Err(JobError::NoThreads);
        }
        for index in 0..seats.len() {
            let (before, rest) = seats.split_at_mut(index);
            let Some(seat) = rest.first_mut() else {
                continue;
            };
            let last = before.iter().rev().find(|other| other.node == seat.node);
            *seat = Seat::new(seat.node);
            seat.rank = last.map_or(0, |last| last.rank + 1);
        }
        for share in shares.iter_mut() {
            let own = seats.iter().rev().find(|seat| seat.node == share.node);
            share.seats = own.map_or(0, |seat| seat.rank + 1);
            share.plan = job.plan(share.frames, share.seats);
            share.taken = AtomicU64::new(0);
        }
        Ok(Self {
            job: *job,
            shares,
            seats,
        })
    }

    pub(super) fn seats(&self) -> &'a [Seat] {
        self.seats
    }

    /// Whether the job has no thread for this seat.
    fn is_spare(&self, seat: &Seat) -> bool {
        self.job
            .threads_per_node
            .is_some_and(|most| seat.rank >= most)
    }

    /// Whether the thread in `seat` takes from `share` under Linux's rules.
    fn may(&self, index: usize, seat: &Seat, share: &Share) -> bool {
        if share.seats > 0 {
            return share.node == seat.node && seat.rank < share.plan.threads;
        }
        // Nobody's: one thread is borrowed, another one for each node, and none
        // that the job has no use for.
        let working = (0..)
            .zip(self.seats)
            .filter(|(_, seat)| !self.is_spare(seat));
        let nth = usize::from(share.node.0) % working.clone().count().max(1);
        working.map(|(index, _)| index).nth(nth) == Some(index)
    }

    /// What the thread in seat `index` does.
    pub(super) fn work(&self, index: usize, work: &(dyn Fn(FrameRange) + Sync)) {
        let Some(seat) = self.seats.get(index) else {
            return;
        };
        if self.is_spare(seat) {
            return;
        }
        match self.job.chunking {
            Chunking::Padata => self.each(|share| self.may(index, seat, share), 0, seat, work),
            Chunking::Stealing => {
                self.each(|share| share.node == seat.node, 0, seat, work);
                // Thieves begin at different places.
                let from = self.shares.len() * index / self.seats.len();
                self.each(|share| share.node != seat.node, from, seat, work);
            }
        }
    }

    /// Takes chunks of the shares `mine` says yes to until there are none.
    fn each(
        &self,
        mine: impl Fn(&Share) -> bool,
        from: usize,
        seat: &Seat,
        work: &(dyn Fn(FrameRange) + Sync),
    ) {
        let (before, after) = self.shares.split_at(from.min(self.shares.len()));
        let numbers = (from as u64..).zip(after).chain((0..).zip(before));
        for (number, share) in numbers.filter(|(_, share)| mine(share)) {
            while let Some(chunk) = share.take() {
                seat.share.store(number, Ordering::Relaxed);
                seat.start.store(chunk.start().get(), Ordering::Relaxed);
                work(chunk);
                seat.chunks.fetch_add(1, Ordering::Relaxed);
                seat.start.store(NOTHING, Ordering::Relaxed);
            }
        }
    }

    /// After all threads are gone: does what was left, and counts.
    pub(super) fn finish(&self, work: &(dyn Fn(FrameRange) + Sync)) -> Report {
        let mut report = Report::default();
        for seat in self.seats {
            if let Some(chunk) = self.held(seat) {
                work(chunk);
                report.redone_chunks += 1;
                seat.start.store(NOTHING, Ordering::Relaxed);
            }
            report.threads += u32::from(seat.chunks() > 0);
        }
        for share in self.shares {
            report.frames += share.frames.count();
            report.chunks += share.plan.chunks;
            while let Some(chunk) = share.take() {
                work(chunk);
                report.left_chunks += 1;
            }
        }
        report
    }

    /// The chunk a seat still holds.
    fn held(&self, seat: &Seat) -> Option<FrameRange> {
        let start = seat.start.load(Ordering::Relaxed);
        if start == NOTHING {
            return None;
        }
        let number = usize::try_from(seat.share.load(Ordering::Relaxed)).ok()?;
        let share = self.shares.get(number)?;
        let index = share.plan.index_of(share.frames, Frame::new(start));
        Some(share.plan.chunk(share.frames, index))
    }
}
