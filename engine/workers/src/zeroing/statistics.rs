//! What the workers did: [`Counters`] while they run, [`Statistics`] at one moment.
#![deny(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};

/// What workers and requests for zeros did; sums since the workers were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that were zeroed.
    pub zeroed_bytes: u64,
    /// Batches they were zeroed in.
    pub batches: u64,
    /// Time that took, of all workers.
    pub zeroing_ns: u64,
    /// Bytes of blocks of which another call freed some while a worker zeroed them.
    pub freed_twice_bytes: u64,
    /// Times a worker waited because allocation was busy, or for the rate limit.
    pub back_offs: u64,
    /// Bytes that requests for zeros found known to be zero.
    pub hit_bytes: u64,
    /// Bytes that the host brought back zero for them.
    pub reported_bytes: u64,
    /// Bytes that were zeroed on the spot for them.
    pub missed_bytes: u64,
    /// Bytes that were known to be zero while free and are no more, although no request for zeros
    /// was given them: handed out for other use, merged with what is not known, given to the host,
    /// found not to be zero. Those that a worker has, or that are isolated, are among them
    /// meanwhile. Exact while no call is in flight.
    pub wasted_bytes: u64,
}

/// Sums that workers add to.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counters {
    zeroed_bytes: AtomicU64,
    batches: AtomicU64,
    zeroing_ns: AtomicU64,
    freed_twice_bytes: AtomicU64,
    back_offs: AtomicU64,
}

impl Counters {
    /// A batch was zeroed.
    pub(super) fn add_batch(&self, bytes: u64, ns: u64) {
        self.zeroed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.zeroing_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Another call freed some of what a worker had.
    pub(super) fn add_freed_twice(&self, bytes: u64) {
        self.freed_twice_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A worker waits although there is work.
    pub(super) fn add_back_off(&self) {
        self.back_offs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Statistics {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Statistics {
            zeroed_bytes: read(&self.zeroed_bytes),
            batches: read(&self.batches),
            zeroing_ns: read(&self.zeroing_ns),
            freed_twice_bytes: read(&self.freed_twice_bytes),
            back_offs: read(&self.back_offs),
            ..Statistics::default()
        }
    }
}
