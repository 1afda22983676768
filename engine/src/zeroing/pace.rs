//! The rate limit of all workers together: [`Pace`].
#![deny(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};

/// When all bytes zeroed so far are paid for.
///
/// *A batch begins when all before it are paid for*: so from any moment on no more is zeroed than
/// the rate allows, and one batch a worker.
#[derive(Debug)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Charges `bytes`, or says when they can be.
    pub(super) fn charge(&self, now_ns: u64, bytes: u64, bytes_per_second: u64) -> Result<(), u64> {
        if bytes_per_second == 0 {
            return Ok(());
        }
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        let mut paid = self.0.load(Ordering::Relaxed);
        loop {
            if paid > now_ns {
                // A rate that was changed meanwhile holds from the next batch on.
                return Err(paid);
            }
            let next = now_ns.saturating_add(ns);
            match self
                .0
                .compare_exchange_weak(paid, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => paid = now,
            }
        }
    }

    /// Takes a charge back: there was nothing to zero. Limits that were changed begin afresh.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
