//! Memory that is zero from the start: [`InitialZeros`].

use crate::addr::FrameRange;
use crate::frames::word::IS_KEPT;

/// Frames that hold zeros until they are handed out, as far as they are free at start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InitialZeros<'m> {
    /// Ascending and disjoint.
    pub(crate) ranges: &'m [FrameRange],
    /// And this one.
    pub(crate) one: FrameRange,
}

impl InitialZeros<'_> {
    /// Those of `frames`, ascending.
    pub(crate) fn inside(&self, frames: FrameRange) -> impl Iterator<Item = FrameRange> {
        let first = (self.ranges).partition_point(|range| range.end() <= frames.start());
        let listed = self.ranges.get(first..).unwrap_or_default().iter().copied();
        let parts = listed.chain([self.one]);
        parts
            .take_while(move |range| range.start() < frames.end())
            .map(move |range| range.intersect(frames))
            .filter(|part| !part.is_empty())
    }

    /// Whether one of the ranges has all of `frames`.
    pub(crate) fn covers(&self, frames: FrameRange) -> bool {
        IS_KEPT && self.inside(frames).any(|part| part == frames)
    }

    /// Whether there are some in `frames`.
    pub(crate) fn is_in(&self, frames: FrameRange) -> bool {
        let is_any = !self.ranges.is_empty() || !self.one.is_empty();
        IS_KEPT && is_any && self.inside(frames).next().is_some()
    }
}
