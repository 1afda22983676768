//! What each frame of a layout is: [`Extents`], cut wherever node, zone or kind
//! change, and [`Segments`], cut by node and zone alone.
//!
//! Both are computed from the ranges of the layout and from what is reserved at
//! that moment; nothing is stored. The extents of a segment cover it exactly.

use core::iter::Peekable;

use crate::addr::{Frame, FrameRange};
use crate::early::{EarlyFlags, EarlyRegion};

use super::{Extent, ExtentKind, Layout, ZoneSegment, zones};

impl Layout<'_> {
    /// What all memory is, ascending: frames in a row of one node, zone and kind.
    pub fn extents(&self) -> Extents<'_> {
        let reserved = self.early.reserved();
        let pieces = KindPieces {
            pieces: Pieces::new(self),
            left: None,
            reserved: Covered::new(reserved, false),
            freeable: Covered::new(reserved, true),
        };
        Extents {
            pieces: pieces.peekable(),
        }
    }

    /// All memory, ascending: frames in a row of one node and zone.
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            pieces: Pieces::new(self).peekable(),
        }
    }
}

/// `start..end`, where the ends are known to be in order.
fn span(start: Frame, end: Frame) -> FrameRange {
    FrameRange::new(start.get(), end.get()).unwrap_or_default()
}

/// Ascending segments of a layout, as long as can be; made by [`Layout::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    pieces: Peekable<Pieces<'a>>,
}

impl Iterator for Segments<'_> {
    type Item = ZoneSegment;

    fn next(&mut self) -> Option<ZoneSegment> {
        let Extent {
            mut frames,
            node,
            zone,
            ..
        } = self.pieces.next()?;
        while let Some(next) = self.pieces.next_if(|next| {
            next.node == node && next.zone == zone && next.frames.start() == frames.end()
        }) {
            frames = span(frames.start(), next.frames.end());
        }
        Some(ZoneSegment { frames, node, zone })
    }
}

/// Ascending extents of a layout, as long as can be; made by [`Layout::extents`].
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    pieces: Peekable<KindPieces<'a>>,
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut extent = self.pieces.next()?;
        while let Some(next) = self.pieces.next_if(|next| {
            let same = (next.node, next.zone, next.kind);
            same == (extent.node, extent.zone, extent.kind)
                && next.frames.start() == extent.frames.end()
        }) {
            extent.frames = span(extent.frames.start(), next.frames.end());
        }
        Some(extent)
    }
}

/// Ranges cut at zone limits, with the kind of their memory.
#[derive(Clone, Debug)]
struct Pieces<'a> {
    layout: &'a Layout<'a>,
    index: usize,
    left: FrameRange,
}

impl<'a> Pieces<'a> {
    fn new(layout: &'a Layout<'a>) -> Self {
        Self {
            layout,
            index: 0,
            left: FrameRange::EMPTY,
        }
    }
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
        self.left = span(frames.end(), self.left.end());
        if self.left.is_empty() {
            self.index += 1;
        }
        Some(Extent {
            frames,
            node: range.node,
            zone,
            kind: range.kind,
        })
    }
}

/// Pieces cut where a reservation begins or ends.
#[derive(Clone, Debug)]
struct KindPieces<'a> {
    pieces: Pieces<'a>,
    left: Option<Extent>,
    reserved: Covered<'a>,
    freeable: Covered<'a>,
}

impl Iterator for KindPieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut piece = self.left.take().or_else(|| self.pieces.next())?;
        if !piece.kind.may_become_free() {
            return Some(piece);
        }
        let (start, end) = (piece.frames.start(), piece.frames.end());
        let (is_reserved, until) = self.reserved.at(start);
        let mut cut = until.min(end);
        let mut kind = piece.kind;
        if is_reserved {
            kind = ExtentKind::Reserved;
        } else {
            let (is_freeable, until) = self.freeable.at(start);
            cut = cut.min(until);
            if is_freeable {
                kind = match kind {
                    // Freed as it is it would be touched before it is accepted.
                    ExtentKind::Unaccepted => ExtentKind::Reserved,
                    _ => ExtentKind::Freeable,
                };
            }
        }
        if cut < end {
            self.left = Some(Extent {
                frames: span(cut, end),
                ..piece
            });
            piece.frames = span(start, cut);
        }
        piece.kind = kind;
        Some(piece)
    }
}

/// Frames with a byte in a reserved region, looked up in ascending order.
#[derive(Clone, Debug)]
struct Covered<'a> {
    regions: core::slice::Iter<'a, EarlyRegion>,
    /// Regions of this kind only.
    freeable: bool,
    /// The first region that ends after the frame looked up last.
    next: FrameRange,
}

impl<'a> Covered<'a> {
    fn new(regions: &'a [EarlyRegion], freeable: bool) -> Self {
        Self {
            regions: regions.iter(),
            freeable,
            next: FrameRange::EMPTY,
        }
    }

    /// Whether `frame` is covered, and up to which frame that stays so.
    fn at(&mut self, frame: Frame) -> (bool, Frame) {
        let freeable = self.freeable;
        while self.next.end() <= frame {
            let of_kind = |region: &&EarlyRegion| {
                region.flags.contains(EarlyFlags::FREEABLE) == freeable && !region.range.is_empty()
            };
            match self.regions.find(of_kind) {
                Some(region) => self.next = region.range.outer_frames(),
                None => return (false, Frame::new(u64::MAX)),
            }
        }
        if self.next.start() <= frame {
            (true, self.next.end())
        } else {
            (false, self.next.start())
        }
    }
}
