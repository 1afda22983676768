//! Runs of sections that hold memory: [`SectionRuns`].

use super::{Layout, NodeRange, SectionSize};
use crate::addr::FrameRange;

/// Sections in a row that hold memory, of any node and however little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionRun {
    /// Number of the first section: its first frame over the frames of a section.
    pub first: u64,
    /// How many sections.
    pub count: u64,
    /// How large they are.
    pub size: SectionSize,
}

impl SectionRun {
    /// The frames of the run, holes included.
    pub fn frames(self) -> FrameRange {
        let start = self.first.saturating_mul(self.size.frames());
        let frames = self.count.saturating_mul(self.size.frames());
        FrameRange::new(start, start.saturating_add(frames)).unwrap_or_default()
    }
}

/// Runs of sections with memory, ascending and apart; made by [`Layout::sections`].
#[derive(Clone, Debug)]
pub struct SectionRuns<'a> {
    ranges: &'a [NodeRange],
    size: SectionSize,
}

impl Layout<'_> {
    /// Runs of sections that hold memory, ascending.
    pub fn sections(&self) -> SectionRuns<'_> {
        SectionRuns {
            ranges: self.ranges,
            size: self.policy.section,
        }
    }
}

impl SectionRuns<'_> {
    /// The sections of the next range: first, and the one after the last.
    fn peek(&self) -> Option<(u64, u64)> {
        let frames = self.ranges.first()?.frames;
        Some((
            frames.start().get() / self.size.frames(),
            frames.end().get().div_ceil(self.size.frames()),
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
            size: self.size,
        })
    }
}
