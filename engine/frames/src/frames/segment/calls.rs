//! Calls in flight that may give back what they take: [`Calls`].
//!
//! A call that takes several things one after the other may have to undo. For that moment it
//! hides what it holds. So it is counted before it takes the first, and what it undid is
//! counted before it leaves; a search that found nothing compares what it read before and
//! after.

use crate::sync::{AtomicU64, Ordering, fence};

/// How many calls may give something back now (low half), and how often one did (high half).
///
/// On a cache line of their own: what lies beside it is read by every call.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Calls {
    calls: AtomicU64,
    /// Frames that workers have, each by a call in flight.
    #[cfg(feature = "content")]
    in_work: AtomicU64,
}

/// One call in flight.
const CALL: u64 = 1;
/// One call that gave something back.
const UNDONE: u64 = 1 << 32;

/// What [`Calls`] said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    /// Whether no call was in flight.
    pub(crate) const fn is_quiet(self) -> bool {
        self.0.is_multiple_of(UNDONE)
    }

    /// The number itself: equal and quiet before and after a search means that nothing was
    /// hidden from it.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// A call that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    undone: bool,
}

impl Call<'_> {
    /// What it took, or some of it, it gave back.
    pub(crate) fn undo(&mut self) {
        self.undone = true;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Wraps after 2^32 calls that were undone during one search.
        let undone = if self.undone { UNDONE } else { 0 };
        let change = undone.wrapping_sub(CALL);
        self.calls.calls.fetch_add(change, Ordering::Release);
    }
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            #[cfg(feature = "content")]
            in_work: AtomicU64::new(0),
        }
    }

    /// Counts a call.
    pub(crate) fn begin(&self) -> Call<'_> {
        self.calls.fetch_add(CALL, Ordering::Relaxed);
        // Pairs with the fence in `snapshot`: a search that sees a frame taken from here on
        // sees this call too.
        fence(Ordering::Release);
        Call {
            calls: self,
            undone: false,
        }
    }

    /// A worker has so many frames more, or has given them back.
    #[cfg(feature = "content")]
    pub(crate) fn count_work(&self, more: i64) {
        self.in_work
            .fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }

    /// Frames that workers have.
    pub(crate) fn in_work(&self) -> u64 {
        #[cfg(feature = "content")]
        return self.in_work.load(Ordering::Relaxed);
        #[cfg(not(feature = "content"))]
        0
    }

    /// What is in flight now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        fence(Ordering::Acquire);
        Snapshot(self.calls.load(Ordering::Acquire))
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_undone_call_is_seen_afterwards() {
        let calls = Calls::new();
        let before = calls.snapshot();
        assert!(before.is_quiet());
        let call = calls.begin();
        assert!(!calls.snapshot().is_quiet());
        drop(call);
        assert_eq!(calls.snapshot(), before);
        let mut call = calls.begin();
        call.undo();
        drop(call);
        assert!(calls.snapshot().is_quiet());
        assert_ne!(calls.snapshot(), before);
    }
}
