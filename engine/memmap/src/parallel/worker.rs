//! The CPUs of a job: [`Worker`], and how a kernel starts them: [`Workers`].

use crate::node::NodeId;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// CPUs that can be given work; what the kernel provides.
pub trait Workers {
    /// Runs `work(index)` for each of `workers`, all at the same time, each on a
    /// CPU of that worker's node if there is one, and returns when every thread
    /// has returned or panicked out of `work`. What they wrote is visible to the
    /// caller then. Fewer threads may run than there are workers, even none: the
    /// caller of [`run`](super::run) does what is left.
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync));
}

/// No other CPU: all of the work is done by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Workers for Alone {
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        for index in 0..workers.len() {
            work(index);
        }
    }
}

/// No chunk is in hand. No chunk starts there: frame numbers end at 2^52.
const NOTHING: u64 = u64::MAX;

/// A CPU that may work, and the chunk it has in hand.
#[derive(Debug)]
pub struct Worker {
    pub(super) node: NodeId,
    /// Which of its node's workers this is, from 0.
    pub(super) rank: u32,
    /// First frame of the chunk in hand, or [`NOTHING`].
    start: AtomicU64,
    /// The number of the range the chunk is part of.
    range: AtomicU64,
    chunks: AtomicU32,
}

impl Worker {
    /// A CPU of `node`.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            rank: 0,
            start: AtomicU64::new(NOTHING),
            range: AtomicU64::new(0),
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

    /// Begins the chunk of range number `range` that starts at frame `start`.
    pub(super) fn begin(&self, range: u64, start: u64) {
        self.range.store(range, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
    }

    /// The chunk in hand is done.
    pub(super) fn end(&self) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.forget();
    }

    /// No chunk is in hand any more.
    pub(super) fn forget(&self) {
        self.start.store(NOTHING, Ordering::Relaxed);
    }

    /// Number of the range and first frame of the chunk in hand.
    pub(super) fn in_hand(&self) -> Option<(u64, u64)> {
        let start = self.start.load(Ordering::Relaxed);
        (start != NOTHING).then(|| (self.range.load(Ordering::Relaxed), start))
    }
}
