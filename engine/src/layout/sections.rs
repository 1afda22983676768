//! Sections of 128 MiB: the unit of descriptors and of hotplug.

use super::{Layout, NodeRange, SECTION_FRAMES};
use crate::addr::FrameRange;

/// Sections in a row that hold memory, of any node and however little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionRun {
    /// Number of the first section: its first frame over [`SECTION_FRAMES`].
    pub first: u64,
    /// How many sections.
    pub count: u64,
}

impl SectionRun {
    /// The frames of the run, holes included.
    pub fn frames(self) -> FrameRange {
        let start = self.first.saturating_mul(SECTION_FRAMES);
        let frames = self.count.saturating_mul(SECTION_FRAMES);
        FrameRange::new(start, start.saturating_add(frames)).unwrap_or_default()
    }
}

/// Runs of sections with memory, ascending and apart; made by [`Layout::sections`].
#[derive(Clone, Debug)]
pub struct SectionRuns<'a> {
    ranges: &'a [NodeRange],
}

impl Layout<'_> {
    /// Runs of sections that hold memory, ascending.
    pub fn sections(&self) -> SectionRuns<'_> {
        SectionRuns {
            ranges: self.ranges,
        }
    }
}

impl SectionRuns<'_> {
    /// The sections of the next range: first, and the one after the last.
    fn peek(&self) -> Option<(u64, u64)> {
        let frames = self.ranges.first()?.frames;
        Some((
            frames.start().get() / SECTION_FRAMES,
            frames.end().get().div_ceil(SECTION_FRAMES),
        ))
    }
}

impl Iterator for SectionRuns<'_> {
    type Item = SectionRun;

    fn next(&mut self) -> Option<SectionRun> {
        let (first, mut end) = self.peek()?;
        while let Some((next_first, next_end)) = self.peek().filter(|next| next.0 <= end) {
            debug_assert!(next_first >= first);
            end = end.max(next_end);
            self.ranges = self.ranges.split_first()?.1;
        }
        Some(SectionRun {
            first,
            count: end - first,
        })
    }
}
