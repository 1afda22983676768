//! The queue of chunks: [`WorkRange`]s, taken from by [`Worker`]s.
//!
//! A chunk is taken by raising its range's counter, so it is taken once. The
//! worker records it until the work is done; a chunk still recorded when all
//! threads are gone is one whose thread panicked.

use super::{Chunking, Job, JobError, Plan, Worker};
use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;
use crate::sync::{AtomicU64, Ordering};

/// The result of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Frames in all ranges.
    pub frames: u64,
    /// Chunks they were cut into.
    pub chunks: u64,
    /// Threads that took at least one chunk; the caller that did left-over
    /// chunks is not among them.
    pub threads: u32,
    /// Chunks whose thread panicked, done again by the caller.
    pub redone_chunks: u64,
    /// Chunks that no thread took, done by the caller.
    pub left_chunks: u64,
}

/// A range of one node, and how much of it was taken.
#[derive(Debug)]
pub struct WorkRange {
    node: NodeId,
    frames: FrameRange,
    plan: Plan,
    /// Workers of its node.
    workers: u32,
    /// Chunks taken; may exceed their number.
    taken: AtomicU64,
}

impl WorkRange {
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
            workers: 0,
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

    /// The next chunk that was not taken.
    fn take(&self) -> Option<FrameRange> {
        // Read first: an exhausted counter stays shared by all caches.
        if self.taken.load(Ordering::Relaxed) >= self.plan.chunks {
            return None;
        }
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        (index < self.plan.chunks).then(|| self.plan.chunk(self.frames, index))
    }
}

/// A job in progress.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    job: Job,
    ranges: &'a [WorkRange],
    workers: &'a [Worker],
}

impl<'a> Queue<'a> {
    /// Cuts the ranges for the workers there are.
    pub(super) fn prepare(
        job: &Job,
        ranges: &'a mut [WorkRange],
        workers: &'a mut [Worker],
    ) -> Result<Self, JobError> {
        job.check()?;
        if workers.is_empty() {
            return Err(JobError::NoThreads);
        }
        for index in 0..workers.len() {
            let (before, rest) = workers.split_at_mut(index);
            let Some(worker) = rest.first_mut() else {
                continue;
            };
            let last = before.iter().rev().find(|other| other.node == worker.node);
            *worker = Worker::new(worker.node);
            worker.rank = last.map_or(0, |last| last.rank + 1);
        }
        for range in ranges.iter_mut() {
            let own = workers
                .iter()
                .rev()
                .find(|worker| worker.node == range.node);
            range.workers = own.map_or(0, |worker| worker.rank + 1);
            range.plan = job.plan(range.frames, range.workers);
            range.taken = AtomicU64::new(0);
        }
        Ok(Self {
            job: *job,
            ranges,
            workers,
        })
    }

    pub(super) fn workers(&self) -> &'a [Worker] {
        self.workers
    }

    /// Whether the job has no thread for this worker.
    fn is_spare(&self, worker: &Worker) -> bool {
        self.job
            .threads_per_node
            .is_some_and(|most| worker.rank >= most)
    }

    /// Whether `worker` takes from `range` under Linux's rules.
    fn may(&self, index: usize, worker: &Worker, range: &WorkRange) -> bool {
        if range.workers > 0 {
            return range.node == worker.node && worker.rank < range.plan.threads;
        }
        // A node without workers: one of the others, a different one for each node,
        // and none that the job leaves out.
        let working = (0..)
            .zip(self.workers)
            .filter(|(_, worker)| !self.is_spare(worker));
        let nth = usize::from(range.node.0) % working.clone().count().max(1);
        working.map(|(index, _)| index).nth(nth) == Some(index)
    }

    /// The work of worker number `index`.
    pub(super) fn work(&self, index: usize, work: &(dyn Fn(FrameRange) + Sync)) {
        let Some(worker) = self.workers.get(index) else {
            return;
        };
        if self.is_spare(worker) {
            return;
        }
        match self.job.chunking {
            Chunking::Padata => self.each(|range| self.may(index, worker, range), 0, worker, work),
            Chunking::Stealing => {
                self.each(|range| range.node == worker.node, 0, worker, work);
                // Each worker starts stealing elsewhere.
                let from = self.ranges.len() * index / self.workers.len();
                self.each(|range| range.node != worker.node, from, worker, work);
            }
        }
    }

    /// Takes the chunks of all `wanted` ranges, from number `from` on.
    fn each(
        &self,
        wanted: impl Fn(&WorkRange) -> bool,
        from: usize,
        worker: &Worker,
        work: &(dyn Fn(FrameRange) + Sync),
    ) {
        let (before, after) = self.ranges.split_at(from.min(self.ranges.len()));
        let numbers = (from as u64..).zip(after).chain((0..).zip(before));
        for (number, range) in numbers.filter(|(_, range)| wanted(range)) {
            while let Some(chunk) = range.take() {
                worker.begin(number, chunk.start().get());
                work(chunk);
                worker.end();
            }
        }
    }

    /// After all threads are gone: does what was left, and counts.
    pub(super) fn finish(&self, work: &(dyn Fn(FrameRange) + Sync)) -> Report {
        let mut report = Report::default();
        for worker in self.workers {
            if let Some(chunk) = self.in_hand(worker) {
                work(chunk);
                report.redone_chunks += 1;
                worker.forget();
            }
            report.threads += u32::from(worker.chunks() > 0);
        }
        for range in self.ranges {
            report.frames += range.frames.count();
            report.chunks += range.plan.chunks;
            while let Some(chunk) = range.take() {
                work(chunk);
                report.left_chunks += 1;
            }
        }
        report
    }

    /// The chunk a worker still has in hand.
    fn in_hand(&self, worker: &Worker) -> Option<FrameRange> {
        let (number, start) = worker.in_hand()?;
        let range = self.ranges.get(usize::try_from(number).ok()?)?;
        let index = range.plan.index_of(range.frames, Frame::new(start));
        Some(range.plan.chunk(range.frames, index))
    }
}
