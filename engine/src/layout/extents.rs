//! Contiguous memory of one node and one zone: [`Extent`], what the frame
//! allocator is filled from.

use core::iter::Peekable;

use crate::addr::FrameRange;
use crate::early::EarlyRegion;
use crate::node::{NodeId, ZoneKind};

use super::{Layout, zones};

/// Contiguous frames of memory, all of one node and one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Their zone.
    pub zone: ZoneKind,
}

/// Ascending extents of a layout; made by [`Layout::extents`].
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    pieces: Peekable<Pieces<'a>>,
}

impl<'a> Extents<'a> {
    pub(super) fn new(layout: &'a Layout<'a>) -> Self {
        Self {
            pieces: Pieces {
                layout,
                index: 0,
                left: FrameRange::EMPTY,
            }
            .peekable(),
        }
    }
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut extent = self.pieces.next()?;
        while let Some(next) = self.pieces.next_if(|next| {
            next.node == extent.node
                && next.zone == extent.zone
                && next.frames.start() == extent.frames.end()
        }) {
            let (start, end) = (extent.frames.start(), next.frames.end());
            extent.frames = FrameRange::new(start.get(), end.get())?;
        }
        Some(extent)
    }
}

/// Ranges cut at zone limits, not yet joined where only a flag differs.
#[derive(Clone, Debug)]
struct Pieces<'a> {
    layout: &'a Layout<'a>,
    index: usize,
    left: FrameRange,
}

impl Iterator for Pieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let range = self.layout.ranges.get(self.index)?;
        if self.left.is_empty() {
            self.left = range.frames;
        }
        let rule = self.layout.rule_of(range.node);
        let (zone, frames) = zones::front(&self.layout.bounds, rule, range.mirror, self.left);
        self.left = FrameRange::new(frames.end().get(), self.left.end().get())?;
        if self.left.is_empty() {
            self.index += 1;
        }
        Some(Extent {
            frames,
            node: range.node,
            zone,
        })
    }
}

/// Frames with a byte in `reserved`, joined where they share a frame or touch.
pub(super) fn reserved_frames(
    reserved: &[EarlyRegion],
) -> impl Iterator<Item = FrameRange> + Clone + '_ {
    let mut frames = reserved
        .iter()
        .map(|region| region.range.outer_frames())
        .filter(|frames| !frames.is_empty())
        .peekable();
    core::iter::from_fn(move || {
        let mut joined = frames.next()?;
        while let Some(next) = frames.next_if(|next| next.start() <= joined.end()) {
            let end = next.end().max(joined.end());
            joined = FrameRange::new(joined.start().get(), end.get())?;
        }
        Some(joined)
    })
}
