//! The rate limit of all workers together: [`Pace`].
#![deny(unsafe_code)]

use crate::sync::{AtomicU64, Ordering, recheck_u64};

/// When all bytes zeroed so far are paid for.
///
/// *A batch begins when all before it are paid for*: so from any moment on no more is zeroed than
/// the rate allows, and one batch a worker. *A change of the rate forgives what was charged*, also
/// what a worker that is in the middle of a batch charges after it.
#[derive(Debug)]
pub(super) struct Pace {
    paid_ns: AtomicU64,
    /// Changes of the rate.
    changes: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            paid_ns: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Whether a batch may begin; else when.
    pub(super) fn may_begin(&self, now_ns: u64) -> Result<(), u64> {
        match self.paid_ns.load(Ordering::Relaxed) {
            paid if paid > now_ns => Err(paid),
            _ => Ok(()),
        }
    }

    /// Charges a batch that has begun, at the rate of this moment; 0: no limit.
    pub(super) fn charge(&self, now_ns: u64, bytes: u64, bytes_per_second: impl Fn() -> u64) {
        // Acquire: the rate is no older than that. Pairs with `forgive`.
        let changes = self.changes.load(Ordering::Acquire);
        let rate = bytes_per_second();
        if rate == 0 {
            return;
        }
        // Rounded up, so that small batches are not free.
        let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        let mut paid = self.paid_ns.load(Ordering::Acquire);
        let charged = |paid: u64| paid.max(now_ns).saturating_add(ns);
        let (set, seen) = (Ordering::SeqCst, Ordering::Acquire);
        while let Err(other) = (self.paid_ns).compare_exchange_weak(paid, charged(paid), set, seen)
        {
            paid = other;
        }
        // Charged at a rate that is no more. If this look does not see the change, the change
        // forgives what was charged.
        if recheck_u64(&self.changes) != changes {
            self.paid_ns.store(0, Ordering::Relaxed);
        }
    }

    /// All is paid for: the rate was changed just now.
    pub(super) fn forgive(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.paid_ns.swap(0, Ordering::SeqCst);
    }
}
