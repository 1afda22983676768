//! The plainest model of an allocator there is, and the machines it is compared on: one
//! `bool` a frame.

extern crate std;

use super::kit::frames;
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::Block;
use crate::node::ZoneKind;
use std::vec::Vec;

pub(super) type Extent = (FrameRange, u16, ZoneKind);

pub(super) const GIB: u64 = 1 << 18;

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
        (frames(4096, GIB - 100), 0, ZoneKind::Dma32),
        (frames(GIB, 3 * GIB), 0, ZoneKind::Normal),
        (frames(3 * GIB, 3 * GIB + 700), 1, ZoneKind::Normal),
        (frames(3 * GIB + 700, 4 * GIB + 512), 1, ZoneKind::Movable),
        // More than a giant frame, but only one that is all inside.
        (frames(4 * GIB + 512 + 7, 6 * GIB + 3), 1, ZoneKind::Normal),
    ];
    let reserved = [
        frames(0, 16),
        frames(600, 601),
        frames(1024, 2048),
        frames(GIB - 1000, GIB + 5),
        frames(2 * GIB + 511, 2 * GIB + 513),
        frames(3 * GIB + 1024, 3 * GIB + 1024 + 512 * 100),
    ];
    (extents.to_vec(), reserved.to_vec())
}

/// One `bool` a frame.
pub(super) struct Model {
    extents: Vec<Extent>,
    allocated: Vec<bool>,
    pub(super) free: u64,
}

impl Model {
    pub(super) fn new(extents: &[Extent], reserved: &[FrameRange]) -> Self {
        let end = extents
            .iter()
            .map(|extent| extent.0.end().get())
            .max()
            .unwrap();
        let mut allocated = std::vec![true; usize::try_from(end).unwrap()];
        let mut set = |range: FrameRange, to| {
            for frame in range.start().get()..range.end().get().min(end) {
                allocated[usize::try_from(frame).unwrap()] = to;
            }
        };
        extents.iter().for_each(|extent| set(extent.0, false));
        reserved.iter().for_each(|&range| set(range, true));
        let free = allocated.iter().filter(|&&taken| !taken).count() as u64;
        Self {
            extents: extents.to_vec(),
            allocated,
            free,
        }
    }

    /// The frames of `block`, which must end inside the model.
    fn slice(&mut self, block: Block) -> &mut [bool] {
        let range = block.range();
        let (from, to) = (range.start().get(), range.end().get());
        &mut self.allocated[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()]
    }

    pub(super) fn extent_of(&self, block: Block) -> Option<Extent> {
        self.extents
            .iter()
            .copied()
            .find(|extent| extent.0.covers(block.range()))
    }

    /// Whether all of `block` is memory of one zone and in state `allocated`.
    pub(super) fn is_all(&mut self, block: Block, allocated: bool) -> bool {
        self.extent_of(block).is_some() && self.slice(block).iter().all(|&is| is == allocated)
    }

    pub(super) fn set(&mut self, block: Block, allocated: bool) {
        self.slice(block).fill(allocated);
        if allocated {
            self.free -= block.frames();
        } else {
            self.free += block.frames();
        }
    }

    pub(super) fn has_free(&mut self, node: u16, highest: ZoneKind, order: u8) -> bool {
        let extents = self.extents.clone();
        extents
            .into_iter()
            .filter(|extent| extent.1 == node && extent.2 <= highest)
            .any(|extent| {
                let first = extent.0.start().get().next_multiple_of(1 << order);
                (first..extent.0.end().get())
                    .step_by(1 << order)
                    .any(|start| {
                        self.is_all(
                            Block {
                                start: Frame::new(start),
                                order,
                            },
                            false,
                        )
                    })
            })
    }
}
