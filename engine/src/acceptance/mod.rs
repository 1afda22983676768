//! Unaccepted memory: [`Acceptance`].
//!
//! A confidential guest must accept memory before it touches it, which is slow
//! enough to keep large guests from starting for minutes. The frame allocator
//! withholds such memory; here it comes online 2 MiB at a time, in one pass:
//! accepted (and so zero), described, handed to the allocator. Either when an
//! allocation finds nothing else ([`Acceptance::allocate`]), or by workers
//! behind the boot ([`Acceptance::accept_all`], from as many CPUs as like).
//!
//! A chunk is taken by raising its range's counter, so it is accepted once. One
//! the platform refuses stays withheld and is counted.
#![deny(unsafe_code)]

mod pending;

#[cfg(all(test, loom))]
mod loom_tests;

pub use pending::Pending;

use core::fmt;

use crate::addr::{Frame, FrameRange, Order};
use crate::frames::{AllocError, Frames, Request};
use crate::node::NodeId;
use crate::platform::{NotAccepted, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// What is done for a chunk between its acceptance and its first allocation.
pub type Describe<'a> = dyn Fn(FrameRange) + Sync + 'a;

/// The unaccepted memory of a machine.
///
/// Made between layout and frames:
///
/// ```text
/// Layout -> Pending::list(&layout, ..) -> Frames::build(layout, ..) -> Acceptance::new(..)
/// ```
pub struct Acceptance<'a, P> {
    platform: &'a P,
    pending: &'a [Pending],
    describe: &'a Describe<'a>,
    /// Chunks that are being accepted just now.
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
    /// Refused by the platform; withheld for good.
    pub refused_frames: u64,
}

/// What became of a wish for another chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum More {
    /// One came online, or was refused: worth another look.
    Tried,
    /// All are taken, but some are not online yet.
    UnderWay,
    /// There are none.
    Nothing,
}

/// Counts a chunk as in flight until it is dropped, also by a platform that dies.
struct Flight<'a>(&'a AtomicU32);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of who reads 0, so it sees what came online.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<'a, P: Platform + Sync> Acceptance<'a, P> {
    /// Acceptance of `pending`, as [`Pending::list`] left it; for each chunk
    /// `describe` runs before it can be allocated, for example
    /// [`Memmap::make_range_ready`](crate::memmap::Memmap::make_range_ready).
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

    /// Takes a block from `frames`; where there is none, accepts memory the
    /// request may have, a chunk at a time, until there is one.
    ///
    /// Waits for chunks other calls have in hand, so neither `describe`, nor the
    /// platform's `accept`, nor an interrupt handler that may have interrupted
    /// a call on its own CPU may call it.
    ///
    /// # Errors
    /// [`AllocError`], once nothing is left to accept.
    pub fn allocate(&self, frames: &Frames<'_>, request: Request) -> Result<Frame, AllocError> {
        loop {
            let error = match frames.allocate(request) {
                Ok(frame) => return Ok(frame),
                Err(error @ AllocError::NoSuchNode { .. }) => return Err(error),
                Err(error @ AllocError::OutOfMemory { .. }) => error,
            };
            match self.more_for(frames, request) {
                More::Tried => {}
                More::UnderWay => pause(),
                // What came online between the two looks is there now.
                More::Nothing => return frames.allocate(request).map_err(|_| error),
            }
        }
    }

    /// Accepts all that is left, `node`'s first; to be run by as many CPUs as
    /// like. When it returns, other CPUs may still be at their last chunk.
    pub fn accept_all(&self, frames: &Frames<'_>, node: NodeId) {
        let own = |pending: &Pending| pending.node() == node;
        while self.next(frames, own) || self.next(frames, |_| true) {}
    }

    /// How far it is.
    pub fn accepted(&self) -> Accepted {
        Accepted {
            total_frames: self.pending.iter().map(|own| own.frames().count()).sum(),
            online_frames: self.online_frames.load(Ordering::Relaxed),
            refused_frames: self.refused_frames.load(Ordering::Relaxed),
        }
    }

    /// Another chunk that `request` may have memory of.
    fn more_for(&self, frames: &Frames<'_>, request: Request) -> More {
        let node = request.node().unwrap_or_default();
        let fits = |pending: &Pending| request.zones().contain(pending.zone());
        let own = |pending: &Pending| pending.node() == node && fits(pending);
        if self.next(frames, own) {
            return More::Tried;
        }
        if !request.is_exact() {
            for other in frames.fallback(node) {
                if self.next(frames, |own| own.node() == other && fits(own)) {
                    return More::Tried;
                }
            }
        }
        if self.is_under_way() {
            More::UnderWay
        } else {
            More::Nothing
        }
    }

    /// Brings the next chunk of what is `wanted` online; whether there was one.
    fn next(&self, frames: &Frames<'_>, wanted: impl Fn(&Pending) -> bool) -> bool {
        let Some((chunk, _flight)) = self.take(wanted) else {
            return false;
        };
        self.bring_online(frames, chunk);
        true
    }

    /// Whether a chunk is not through yet; only asked by who found none to take.
    fn is_under_way(&self) -> bool {
        // Acquire: pairs with the end of a flight.
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Takes the next chunk of what is `wanted`, in flight until the other is dropped.
    fn take(&self, wanted: impl Fn(&Pending) -> bool) -> Option<(FrameRange, Flight<'_>)> {
        for pending in self.pending.iter().filter(|own| wanted(own)) {
            if pending.is_through() {
                continue;
            }
            // Counted before it is taken: who finds nothing to take sees it in flight.
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let flight = Flight(&self.in_flight);
            // Acquire and Release there: who finds it taken finds it counted.
            if let Some(chunk) = pending.take() {
                return Some((chunk, flight));
            }
        }
        None
    }

    /// One pass over a chunk.
    fn bring_online(&self, frames: &Frames<'_>, chunk: FrameRange) {
        match self.platform.accept(chunk.bytes()) {
            Ok(()) => {
                (self.describe)(chunk);
                let freed = give(frames, chunk);
                self.online_frames.fetch_add(freed, Ordering::Relaxed);
                let kept = chunk.count() - freed;
                self.refused_frames.fetch_add(kept, Ordering::Relaxed);
            }
            Err(NotAccepted { .. }) => {
                let count = chunk.count();
                self.refused_frames.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// Gives a chunk to the allocator in blocks as large as can be; returns how
/// many frames it took.
fn give(frames: &Frames<'_>, chunk: FrameRange) -> u64 {
    let (mut at, end) = (chunk.start(), chunk.end());
    let mut given = 0;
    while at < end {
        let left = end.get() - at.get();
        let fits = |order: &Order| at.is_aligned(*order) && order.frames() <= left;
        let orders = (0..=Order::HUGE.get()).rev().filter_map(Order::new);
        let order = orders.clone().find(fits).unwrap_or_default();
        if frames.free(at, order).is_ok() {
            given += order.frames();
        }
        at = Frame::new(at.get() + order.frames());
    }
    given
}
