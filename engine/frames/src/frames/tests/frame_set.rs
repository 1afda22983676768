//! What the allocator is compared with, [`Owners`], where memory is, and the machines of that.

extern crate std;

use super::kit::frames;
use super::owners::{NO_ONE, Owners};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::Block;
use crate::node::ZoneKind;
use std::vec::Vec;

pub(super) type Extent = (FrameRange, u16, ZoneKind);

pub(super) use crate::frames::word::geometry::GIANT_FRAMES as GIANT;

/// Under Miri everything is slow, so the machine is a sliver of one giant frame.
pub(super) fn sliver() -> (Vec<Extent>, Vec<FrameRange>) {
    let extents = [
        (frames(1, 159), 0, ZoneKind::Dma),
        (frames(256, 700), 0, ZoneKind::Dma),
        (frames(700, 2600), 1, ZoneKind::Normal),
    ];
    (
        extents.to_vec(),
        [frames(0, 16), frames(600, 601), frames(1500, 1537)].to_vec(),
    )
}

/// Two nodes, unaligned ends, a hole, zone borders, a sliver of another node in
/// one giant frame, reserved ranges of every alignment.
pub(super) fn machine() -> (Vec<Extent>, Vec<FrameRange>) {
    let extents = [
        (frames(1, 159), 0, ZoneKind::Dma),
        (frames(256, 4096), 0, ZoneKind::Dma),
        (frames(4096, GIANT - 100), 0, ZoneKind::Dma32),
        (frames(GIANT, 3 * GIANT), 0, ZoneKind::Normal),
        (frames(3 * GIANT, 3 * GIANT + 700), 1, ZoneKind::Normal),
        (
            frames(3 * GIANT + 700, 4 * GIANT + 512),
            1,
            ZoneKind::Movable,
        ),
        // More than a giant frame, but only one that is all inside.
        (
            frames(4 * GIANT + 512 + 7, 6 * GIANT + 3),
            1,
            ZoneKind::Normal,
        ),
    ];
    let reserved = [
        frames(0, 16),
        frames(600, 601),
        frames(1024, 2048),
        frames(GIANT - 1000, GIANT + 5),
        frames(2 * GIANT + 511, 2 * GIANT + 513),
        frames(3 * GIANT + 1024, 3 * GIANT + 1024 + 512 * 100),
    ];
    (extents.to_vec(), reserved.to_vec())
}

/// The owner of what is reserved from the start, or no memory. Calls follow.
pub(super) const BOOT: u32 = 1;

/// Where memory is, and who has it.
pub(super) struct Model {
    extents: Vec<Extent>,
    owners: Owners,
    pub(super) free: u64,
}

/// The first frame of a range, and the one after the last.
fn ends(range: FrameRange) -> (usize, usize) {
    let at = |frame: Frame| usize::try_from(frame.get()).unwrap();
    (at(range.start()), at(range.end()))
}

impl Model {
    pub(super) fn new(extents: &[Extent], reserved: &[FrameRange]) -> Self {
        let ends_at = extents.iter().map(|extent| ends(extent.0).1);
        let end = ends_at.max().unwrap();
        let mut owners = Owners::new(end, BOOT);
        for extent in extents {
            let (from, to) = ends(extent.0);
            assert!(owners.free(from, to), "two extents overlap");
        }
        for &range in reserved {
            let (from, to) = ends(range);
            // What is no memory of it has that owner already.
            for frame in from..to.min(end) {
                owners.allocate(frame, frame + 1, BOOT);
            }
        }
        let free = (0..end).filter(|&frame| owners.are(frame, frame + 1, NO_ONE));
        Self {
            extents: extents.to_vec(),
            free: free.count() as u64,
            owners,
        }
    }

    pub(super) fn extent_of(&self, block: Block) -> Option<Extent> {
        self.extents
            .iter()
            .copied()
            .find(|extent| extent.0.covers(block.range()))
    }

    /// Whether all of `block` is memory of one zone and has this owner, or is free.
    pub(super) fn is(&self, block: Block, owner: u32) -> bool {
        let (from, to) = ends(block.range());
        self.extent_of(block).is_some() && self.owners.are(from, to, owner)
    }

    /// Gives `block` to an owner; `false` if it is not all free memory of one zone.
    pub(super) fn allocate(&mut self, block: Block, owner: u32) -> bool {
        let (from, to) = ends(block.range());
        let done = self.extent_of(block).is_some() && self.owners.allocate(from, to, owner);
        if done {
            self.free -= block.frames();
        }
        done
    }

    /// Makes `block` free; `false` if it is not all allocated memory of one zone.
    pub(super) fn free(&mut self, block: Block) -> bool {
        let (from, to) = ends(block.range());
        let done = self.extent_of(block).is_some() && self.owners.free(from, to);
        if done {
            self.free += block.frames();
        }
        done
    }

    pub(super) fn has_free(&self, node: u16, highest: ZoneKind, order: u8) -> bool {
        self.extents
            .iter()
            .filter(|extent| extent.1 == node && extent.2 <= highest)
            .any(|extent| {
                let first = extent.0.start().get().next_multiple_of(1 << order);
                (first..extent.0.end().get())
                    .step_by(1 << order)
                    .any(|start| {
                        self.is(
                            Block {
                                start: Frame::new(start),
                                order,
                            },
                            NO_ONE,
                        )
                    })
            })
    }
}
