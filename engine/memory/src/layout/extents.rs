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
    #[inline]
    pub fn extents(&self) -> Extents<'_> {
        Extents {
            pieces: Pieces::new(self),
            reserved: Covered {
                regions: self.early.reserved(),
            },
            left: Extent::EMPTY,
            front: (ExtentKind::Usable, Frame::new(0)),
        }
    }

    /// No fewer than the runs of frames in a row that are not [usable](ExtentKind::Usable):
    /// a run begins where a reservation or a range of memory does.
    #[inline]
    pub fn most_reserved_runs(&self) -> usize {
        self.early.reserved().len() + self.ranges.len()
    }

    /// All memory, ascending: frames in a row of one node and zone.
    #[inline]
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
    pieces: Pieces<'a>,
    reserved: Covered<'a>,
    /// What is left of the piece at hand; empty if none. Its kind is that of its
    /// frames while not reserved.
    left: Extent,
    /// The kind of the first frame left, and the frame up to which it holds.
    front: (ExtentKind, Frame),
}

impl Extents<'_> {
    /// Goes on with `left`, whose first frame the regions before do not reach.
    #[inline]
    fn cut(&mut self, left: Extent) {
        self.left = left;
        let Extent { frames, kind, .. } = left;
        self.front = (kind, frames.end());
        if kind.may_become_free() {
            let (cover, until) = self.reserved.at(frames.start());
            let kind = match (cover, kind) {
                (Cover::None, kind) => kind,
                (Cover::Freeable, ExtentKind::Usable) => ExtentKind::Freeable,
                // Freed as it is, unaccepted memory would be touched before it is accepted.
                _ => ExtentKind::Reserved,
            };
            self.front = (kind, until.min(frames.end()));
        }
    }
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        if self.left.frames.is_empty() {
            let piece = self.pieces.next()?;
            self.cut(piece);
        }
        let mut extent = self.left;
        let (kind, mut end) = self.front;
        loop {
            let last = self.left.frames.end();
            if end < last {
                let frames = span(end, last);
                self.cut(Extent {
                    frames,
                    ..self.left
                });
            } else if let Some(piece) = self.pieces.next() {
                self.cut(piece);
                let joins = piece.frames.start() == end
                    && (piece.node, piece.zone) == (extent.node, extent.zone);
                if !joins {
                    break;
                }
            } else {
                self.left.frames = FrameRange::EMPTY;
                break;
            }
            if self.front.0 != kind {
                break;
            }
            end = self.front.1;
        }
        extent.kind = kind;
        extent.frames = span(extent.frames.start(), end);
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

/// How a frame is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cover {
    /// Not at all.
    None,
    /// For boot only.
    Freeable,
    /// For ever.
    ForEver,
}

/// Reserved regions by frame, looked up in ascending order.
#[derive(Clone, Debug)]
struct Covered<'a> {
    /// Those that end after the last frame looked up; ascending and disjoint in bytes,
    /// so several may share a frame.
    regions: &'a [EarlyRegion],
}

impl Covered<'_> {
    /// How `frame` is reserved, and up to which frame nothing changes.
    fn at(&mut self, frame: Frame) -> (Cover, Frame) {
        loop {
            let Some((region, rest)) = self.regions.split_first() else {
                return (Cover::None, Frame::new(u64::MAX));
            };
            let frames = region.range.outer_frames();
            if frames.end() <= frame {
                self.regions = rest;
            } else if frame < frames.start() {
                return (Cover::None, frames.start());
            } else if !region.flags.contains(EarlyFlags::FREEABLE) {
                return (Cover::ForEver, frames.end());
            } else {
                return freeable(frame, frames, rest);
            }
        }
    }
}

/// How `frame`, one of a freeable region's, is reserved: regions after it may have
/// bytes in its last frame.
fn freeable(frame: Frame, frames: FrameRange, after: &[EarlyRegion]) -> (Cover, Frame) {
    let sharing = after
        .iter()
        .map(|region| (region, region.range.outer_frames()));
    for (region, other) in sharing.take_while(|other| other.1.start() < frames.end()) {
        if !region.flags.contains(EarlyFlags::FREEABLE) {
            return if other.start() <= frame {
                (Cover::ForEver, other.end())
            } else {
                (Cover::Freeable, other.start())
            };
        }
    }
    (Cover::Freeable, frames.end())
}
