//! Frames that are not memory: [`Holes`], and the part of them that gets
//! descriptors all the same, [`Unavailable`].
//!
//! Kernels write descriptors by the section, so a hole that shares a section with
//! memory has descriptors too. They set those up as reserved and print how many
//! there are; a layout counts them for comparison.

use crate::addr::{Frame, FrameRange};
use crate::node::{NodeId, ZoneKind};

use super::{Layout, NodeRange};

/// Holes between ranges of memory, ascending; made by [`Layout::holes`].
#[derive(Clone, Debug)]
pub struct Holes<'a> {
    ranges: &'a [NodeRange],
    end: Frame,
}

impl Layout<'_> {
    /// Frames between the ranges of memory, and below the first.
    pub fn holes(&self) -> Holes<'_> {
        Holes {
            ranges: self.ranges,
            end: Frame::new(0),
        }
    }

    /// Frames without memory that share a section with memory, hole by hole, as
    /// kernels print them: `On node 0, zone DMA: 97 pages in unavailable ranges`.
    pub fn unavailable(&self) -> UnavailableRanges<'_> {
        UnavailableRanges {
            layout: self,
            holes: Some(self.holes()),
        }
    }
}

impl<'a> Holes<'a> {
    /// The next hole and the range after it.
    fn next_before(&mut self) -> Option<(FrameRange, &'a NodeRange)> {
        while let Some((range, rest)) = self.ranges.split_first() {
            self.ranges = rest;
            let hole = FrameRange::new(self.end.get(), range.frames.start().get());
            self.end = range.frames.end();
            match hole {
                Some(hole) if !hole.is_empty() => return Some((hole, range)),
                _ => {}
            }
        }
        None
    }
}

impl Iterator for Holes<'_> {
    type Item = FrameRange;

    fn next(&mut self) -> Option<FrameRange> {
        self.next_before().map(|(hole, _)| hole)
    }
}

/// Frames of a hole that lie in a section with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unavailable {
    /// Node of the range after the hole; of the last range for the hole at the end.
    pub node: NodeId,
    /// Zone of that range's start; the node's highest zone for the hole at the end.
    pub zone: ZoneKind,
    /// How many.
    pub frames: u64,
}

/// The unavailable frames of a layout, hole by hole; made by [`Layout::unavailable`].
#[derive(Clone, Debug)]
pub struct UnavailableRanges<'a> {
    layout: &'a Layout<'a>,
    holes: Option<Holes<'a>>,
}

impl UnavailableRanges<'_> {
    fn section_frames(&self) -> u64 {
        self.layout.policy.section.frames()
    }

    /// The rest of the last section, counted in the highest zone of the node that ends there.
    fn tail(&self) -> Option<Unavailable> {
        let last = self.layout.ranges.last()?;
        let zone = self.layout.zones_of(last.node).last()?;
        let end = last.frames.end().get();
        let frames = end.checked_next_multiple_of(self.section_frames())? - end;
        (frames > 0).then_some(Unavailable {
            node: last.node,
            zone: zone.kind,
            frames,
        })
    }

    /// The lowest zone of the range's node that spans its start.
    fn zone_of(&self, range: &NodeRange) -> ZoneKind {
        let zones = self.layout.zones_of(range.node);
        let zone = zones
            .iter()
            .find(|zone| zone.span.contains(range.frames.start()));
        zone.map_or(ZoneKind::Normal, |zone| zone.kind)
    }
}

impl Iterator for UnavailableRanges<'_> {
    type Item = Unavailable;

    fn next(&mut self) -> Option<Unavailable> {
        let section_frames = self.section_frames();
        while let Some(holes) = &mut self.holes {
            let Some((hole, range)) = holes.next_before() else {
                self.holes = None;
                return self.tail();
            };
            let frames = described(hole, section_frames);
            if frames > 0 {
                let zone = self.zone_of(range);
                return Some(Unavailable {
                    node: range.node,
                    zone,
                    frames,
                });
            }
        }
        None
    }
}

/// Frames of `hole` in a section that also holds the memory before or after it.
/// Before frame 0 there is none.
fn described(hole: FrameRange, section_frames: u64) -> u64 {
    let (start, end) = (hole.start().get(), hole.end().get());
    let head_start = end - end % section_frames;
    if head_start <= start {
        return end - start;
    }
    let tail = start.next_multiple_of(section_frames) - start;
    tail + (end - head_start)
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use crate::layout::SECTION_FRAMES;

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn only_sections_with_memory_count() {
        for (start, end, want) in [
            (0, 1, 1),
            (159, 256, 97),
            (786_400, 1 << 20, 32),
            (786_399, 1 << 20, 33),
            (1_310_720, 1_327_104, 16_384),
            (3_145_728, 4_194_304, 0),
            (0, 40_000, 40_000 - 32_768),
            (40_000, 70_000, 65_536 - 40_000 + 70_000 - 65_536),
        ] {
            assert_eq!(
                described(FrameRange::new(start, end).unwrap(), SECTION_FRAMES),
                want,
                "{start}..{end}"
            );
        }
        // 32 MiB before and 16 MiB after the border of a section, of two here and of one there.
        let hole = FrameRange::new((1 << 16) - 8192, (1 << 16) + 4096).unwrap();
        assert_eq!(described(hole, 1 << 15), 8192 + 4096);
        assert_eq!(described(hole, 1 << 17), 8192 + 4096);
        let hole = FrameRange::new(8192, (1 << 17) + 4096).unwrap();
        assert_eq!(described(hole, 1 << 15), (1 << 15) - 8192 + 4096);
        assert_eq!(described(hole, 1 << 17), (1 << 17) - 8192 + 4096);
    }
}
