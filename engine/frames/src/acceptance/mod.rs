//! Unaccepted memory: [`Acceptance`].
//!
//! A confidential guest must accept memory before it touches it, which is slow
//! enough to keep large guests from starting for minutes. The frame allocator
//! starts with such memory allocated; here it comes online 2 MiB at a time, in one
//! pass: accepted (and so zero), described, freed. Either when an allocation finds
//! no free memory on its node ([`Acceptance::accept_for`], from
//! [`Hooks::exhausted`](crate::frames::Hooks::exhausted)), or by workers behind the
//! boot ([`Acceptance::accept_all`], from any number of CPUs).
//!
//! Unaccepted is not a [`Content`] of free memory: acceptance may fail, and takes 2 MiB whole, so
//! every way to take a page would have to wait for it and to undo. What is allocated until it is
//! accepted costs them nothing. It comes online known to be zero, as far as it is
//! whole huge frames.
//!
//! A chunk is taken by raising its range's counter, so it is accepted once. One
//! the platform refuses stays unavailable and is counted.
#![deny(unsafe_code)]

mod pending;

#[cfg(all(test, firstlight_loom))]
mod loom_tests;

pub use pending::Pending;

use core::fmt;

use crate::addr::FrameRange;
use crate::frames::{Content, Exhausted, Frames, Request};
use crate::node::NodeId;
use crate::platform::{NotAccepted, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// What is done for a chunk between its acceptance and its first allocation.
pub type Describe<'a> = dyn Fn(FrameRange) + Sync + 'a;

/// The unaccepted memory of a machine.
///
/// ```text
/// Layout -> Pending::list(&layout, ..) -> Frames::build(layout, ..) -> Acceptance::new(..)
/// ```
pub struct Acceptance<'a, P> {
    platform: &'a P,
    pending: &'a [Pending],
    describe: &'a Describe<'a>,
    /// Chunks being accepted now.
    in_flight: AtomicU32,
    online_frames: AtomicU64,
    refused_frames: AtomicU64,
}

impl<P> fmt::Debug for Acceptance<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptance")
            .field("pending", &self.pending)
            .field("online_frames", &self.online_frames)
            .field("refused_frames", &self.refused_frames)
            .finish_non_exhaustive()
    }
}

/// How far acceptance is, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// All that was unaccepted at first and is not reserved.
    pub total_frames: u64,
    /// Accepted, and given to the allocator.
    pub online_frames: u64,
    /// Refused by the platform; unavailable for good.
    pub refused_frames: u64,
}

/// Counts a chunk as in flight until dropped, also when the platform panics.
struct Flight<'a>(&'a AtomicU32);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Release: pairs with `is_in_flight`; a reader of 0 sees what came online.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<'a, P: Platform + Sync> Acceptance<'a, P> {
    /// Acceptance of `pending`, as [`Pending::list`] left it; for each chunk
    /// `describe` runs before it can be allocated, for example
    /// `Memmap::make_range_ready`.
    pub fn new(platform: &'a P, pending: &'a [Pending], describe: &'a Describe<'a>) -> Self {
        Self {
            platform,
            pending,
            describe,
            in_flight: AtomicU32::new(0),
            online_frames: AtomicU64::new(0),
            refused_frames: AtomicU64::new(0),
        }
    }

    /// Accepts a chunk that `request` may have, on the node that is exhausted or, where all are, on the
    /// nearest that has such a chunk, and frees it into `frames`. Whether the search is to be repeated.
    ///
    /// A kernel's [`Hooks::exhausted`](crate::frames::Hooks::exhausted) calls it. So an
    /// allocation takes, in this order, free memory of its node, unaccepted memory there, free
    /// memory of other nodes, what CPUs cache, unaccepted memory of other nodes.
    ///
    /// Where all nodes are exhausted and no chunk is left but some are in flight, it returns `true`
    /// too, and the search is repeated until they are online.
    ///
    /// So it waits for chunks other calls have in flight: neither `describe`, nor the
    /// platform's `accept`, nor an interrupt handler that may have interrupted
    /// a call on its own CPU may allocate.
    pub fn accept_for(&self, frames: &Frames<'_>, request: &Request, what: Exhausted) -> bool {
        let accept_on = |node| {
            self.accept_next(frames, |pending| {
                pending.node() == node && request.zones().contains(pending.zone())
            })
        };
        let first = match what {
            Exhausted::Node(node) => return accept_on(node),
            Exhausted::All(first) => first,
        };
        let mut nearest = (frames.fallback(first)).filter(|node| request.allows(*node));
        if nearest.any(accept_on) {
            return true;
        }
        let wait = self.is_in_flight();
        if wait {
            pause();
        }
        wait
    }

    /// Accepts all that is left, `node`'s first; to be run by any number of CPUs.
    /// When it returns, other CPUs may still have their last chunk in flight.
    pub fn accept_all(&self, frames: &Frames<'_>, node: NodeId) {
        let own = |pending: &Pending| pending.node() == node;
        while self.accept_next(frames, own) || self.accept_next(frames, |_| true) {}
    }

    /// How far it is.
    pub fn accepted(&self) -> Accepted {
        Accepted {
            total_frames: self.pending.iter().map(|own| own.frames().count()).sum(),
            online_frames: self.online_frames.load(Ordering::Relaxed),
            refused_frames: self.refused_frames.load(Ordering::Relaxed),
        }
    }

    /// Takes the next chunk of what is `wanted` through acceptance; whether there was one.
    #[expect(unsafe_code, reason = "what is accepted is zero afterwards")]
    fn accept_next(&self, frames: &Frames<'_>, wanted: impl Fn(&Pending) -> bool) -> bool {
        let Some((chunk, _flight)) = self.take(wanted) else {
            return false;
        };
        // SAFETY: the chunk was just taken off what is pending, which happens once; it was allocated from the
        // start, and no code but this call frees it (the contract of `Platform`).
        let count = match unsafe { self.platform.accept(chunk.addrs()) } {
            Ok(()) => {
                (self.describe)(chunk);
                // Allocated from the start: it can be freed. Accepted, so zero, and described
                // elsewhere.
                match frames.free_frames_with(chunk, Content::Zero) {
                    Ok(()) => &self.online_frames,
                    Err(_) => &self.refused_frames,
                }
            }
            Err(NotAccepted { .. }) => &self.refused_frames,
        };
        count.fetch_add(chunk.count(), Ordering::Relaxed);
        true
    }

    /// Whether a chunk is in flight; of use once there is none to take.
    fn is_in_flight(&self) -> bool {
        // Acquire: pairs with the end of a flight.
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Takes the next chunk of what is `wanted`, in flight until the guard is dropped.
    fn take(&self, wanted: impl Fn(&Pending) -> bool) -> Option<(FrameRange, Flight<'_>)> {
        for pending in self.pending.iter().filter(|own| wanted(own)) {
            if pending.is_exhausted() {
                continue;
            }
            // Counted before it is taken: a CPU that finds none left sees it in flight.
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let flight = Flight(&self.in_flight);
            // Release and Acquire there: a chunk seen as taken is seen as counted.
            if let Some(chunk) = pending.take() {
                return Some((chunk, flight));
            }
        }
        None
    }
}
