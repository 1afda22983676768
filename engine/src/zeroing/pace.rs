//! The rate limit of all workers together: [`Pace`].
#![deny(unsafe_code)]

use crate::sync::{AtomicU64, Ordering, update_u64};

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

    /// Whether a batch may begin; else when.
    pub(super) fn may_begin(&self, now_ns: u64) -> Result<(), u64> {
        match self.0.load(Ordering::Relaxed) {
            paid if paid > now_ns => Err(paid),
            _ => Ok(()),
        }
    }

    /// Charges a batch that has begun.
    pub(super) fn charge(&self, now_ns: u64, bytes: u64, bytes_per_second: u64) {
        if bytes_per_second == 0 {
            return;
        }
        // Rounded up, so that small batches are not free.
        let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_second));
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        let _ = update_u64(&self.0, |paid| Some(paid.max(now_ns).saturating_add(ns)));
    }

    /// All is paid for: the rate was changed.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
