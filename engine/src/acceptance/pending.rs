//! What is still to be accepted: [`Pending`].

use crate::addr::{FrameRange, Order};
use crate::early::EarlyFlags;
use crate::layout::{Extent, Layout};
use crate::node::{NodeId, ZoneKind};
use crate::store::Full;
use crate::sync::{AtomicU64, Ordering};

/// Frames of a chunk; chunks end on multiples of it.
const CHUNK_FRAMES: u64 = Order::HUGE.frames();

/// What makes memory nobody may be given, accepted or not.
const UNTOUCHABLE: EarlyFlags = EarlyFlags::NOMAP
    .with(EarlyFlags::DRIVER_MANAGED)
    .with(EarlyFlags::PRESERVED);

/// Unaccepted frames in a row, of one node and zone, and how many chunks of
/// them were taken.
#[derive(Debug)]
pub struct Pending {
    extent: Extent,
    /// Chunks taken; may run past their number.
    taken: AtomicU64,
}

impl Default for Pending {
    fn default() -> Self {
        Self::new(Extent {
            frames: FrameRange::EMPTY,
            node: NodeId(0),
            zone: ZoneKind::Normal,
        })
    }
}

impl Pending {
    pub(super) fn new(extent: Extent) -> Self {
        Self {
            extent,
            taken: AtomicU64::new(0),
        }
    }

    /// Lists the unaccepted memory of `layout` that is not reserved, ascending,
    /// in the slots lent.
    ///
    /// # Errors
    /// [`Full`] with the number of slots that are needed.
    pub fn list<'s>(layout: &Layout<'_>, slots: &'s mut [Self]) -> Result<&'s [Self], Full> {
        let mut needed = 0;
        each(layout, &mut |extent| {
            if let Some(slot) = slots.get_mut(needed) {
                *slot = Self::new(extent);
            }
            needed += 1;
        });
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
        let (start, end) = (self.frames().start().get(), self.frames().end().get());
        if self.frames().is_empty() {
            0
        } else {
            end.div_ceil(CHUNK_FRAMES) - start / CHUNK_FRAMES
        }
    }

    /// Whether every chunk is taken.
    pub(super) fn is_through(&self) -> bool {
        // Acquire: pairs with the Release in `take`.
        self.taken.load(Ordering::Acquire) >= self.chunks()
    }

    /// The next chunk that nobody has.
    pub(super) fn take(&self) -> Option<FrameRange> {
        // Release: what was counted before is seen by who finds this taken.
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

/// Calls `found` for each run of unaccepted frames of one node and zone that are not reserved.
fn each(layout: &Layout<'_>, found: &mut dyn FnMut(Extent)) {
    let memory = layout.early().memory();
    for extent in layout.extents() {
        let start = extent.frames.start().addr();
        let from = memory.partition_point(|region| region.range.end() <= start);
        let regions = memory.iter().skip(from);
        let regions =
            regions.take_while(|region| region.range.start() < extent.frames.bytes().end());
        for region in regions {
            let flags = region.flags;
            if flags.contains(EarlyFlags::UNACCEPTED) && !flags.intersects(UNTOUCHABLE) {
                let frames = region.range.inner_frames().intersect(extent.frames);
                without_reserved(layout, Extent { frames, ..extent }, found);
            }
        }
    }
}

/// Calls `found` for what of `extent` is not reserved.
fn without_reserved(layout: &Layout<'_>, extent: Extent, found: &mut dyn FnMut(Extent)) {
    let mut left = extent.frames;
    let reserved = layout.reserved_frames();
    for reserved in reserved.skip_while(|frames| frames.end() <= extent.frames.start()) {
        let overlap = reserved.intersect(left);
        if overlap.is_empty() {
            if reserved.start() >= left.end() {
                break;
            }
            continue;
        }
        let before = FrameRange::new(left.start().get(), overlap.start().get());
        if let Some(frames) = before.filter(|frames| !frames.is_empty()) {
            found(Extent { frames, ..extent });
        }
        left = FrameRange::new(overlap.end().get(), left.end().get()).unwrap_or_default();
    }
    if !left.is_empty() {
        found(Extent {
            frames: left,
            ..extent
        });
    }
}
