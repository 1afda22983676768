//! What is still to be accepted: [`Pending`].

use crate::addr::{FrameRange, Order};
use crate::layout::{Extent, ExtentKind, Layout};
use crate::node::{NodeId, ZoneKind};
use crate::store::Full;
use crate::sync::{AtomicU64, Ordering};

/// Frames of a chunk; chunks end on multiples of it.
const CHUNK_FRAMES: u64 = Order::HUGE.frames();

/// An extent of unaccepted memory, and how many chunks of it were taken.
#[derive(Debug)]
pub struct Pending {
    extent: Extent,
    /// Chunks taken; may exceed their number.
    taken: AtomicU64,
}

impl Default for Pending {
    fn default() -> Self {
        Self::new(Extent::EMPTY)
    }
}

impl Pending {
    pub(super) fn new(extent: Extent) -> Self {
        Self {
            extent,
            taken: AtomicU64::new(0),
        }
    }

    /// Lists the unaccepted memory of `layout` that is not reserved, ascending, in
    /// `slots`.
    ///
    /// # Errors
    /// [`Full`] with the number of slots needed.
    pub fn list<'s>(layout: &Layout<'_>, slots: &'s mut [Self]) -> Result<&'s [Self], Full> {
        let mut needed = 0;
        let extents = layout.extents();
        for extent in extents.filter(|extent| extent.kind == ExtentKind::Unaccepted) {
            if let Some(slot) = slots.get_mut(needed) {
                *slot = Self::new(extent);
            }
            needed += 1;
        }
        let capacity = slots.len();
        slots.get(..needed).ok_or(Full { capacity, needed })
    }

    /// The frames, accepted or not.
    pub const fn frames(&self) -> FrameRange {
        self.extent.frames
    }

    /// Their node.
    pub const fn node(&self) -> NodeId {
        self.extent.node
    }

    /// Their zone.
    pub const fn zone(&self) -> ZoneKind {
        self.extent.zone
    }

    /// How many chunks there are.
    fn chunks(&self) -> u64 {
        let frames = self.frames();
        if frames.is_empty() {
            return 0;
        }
        frames.end().get().div_ceil(CHUNK_FRAMES) - frames.start().get() / CHUNK_FRAMES
    }

    /// Whether every chunk is taken.
    pub(super) fn is_exhausted(&self) -> bool {
        // Acquire: pairs with the Release in `take`.
        self.taken.load(Ordering::Acquire) >= self.chunks()
    }

    /// The next chunk that was not taken.
    pub(super) fn take(&self) -> Option<FrameRange> {
        // Release: what was counted before is seen with the raised counter.
        let index = self.taken.fetch_add(1, Ordering::AcqRel);
        if index >= self.chunks() {
            return None;
        }
        let first = self.frames().start().get() / CHUNK_FRAMES;
        let start = (first + index) * CHUNK_FRAMES;
        let chunk = FrameRange::new(start, start + CHUNK_FRAMES)?;
        Some(chunk.intersect(self.frames()))
    }
}
