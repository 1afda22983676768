//! Counts of free frames for the water marks of zones: calls report frames allocated and freed.

use super::Nodes;
use super::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, Order};
use crate::node::{NodeId, ZoneKind};

impl<'m> Nodes<'m> {
    /// Adds `more` frames to the free count of the segment's zone; negative if fewer are free.
    #[inline]
    pub(crate) fn count(&self, segment: &ZoneSegment<'m>, more: i64) {
        if self.segments.zones.has_marks() {
            self.count_of(segment, more);
        }
    }

    // A call: inlined, it would take registers of those that count nothing.
    #[cold]
    #[inline(never)]
    fn count_of(&self, segment: &ZoneSegment<'m>, more: i64) {
        self.count_zone(segment.node(), segment.zone(), more);
    }

    /// A block was taken.
    #[inline]
    pub(crate) fn count_taken(&self, start: Frame, order: Order) {
        if self.segments.zones.has_marks()
            && let Some(segment) = self.segments.at(start)
        {
            self.count(segment, -order.frames().cast_signed());
        }
    }

    /// All of `range` became free (1), or is no longer (-1).
    pub(crate) fn count_range(&self, range: FrameRange, sign: i64) {
        if !self.segments.zones.has_marks() {
            return;
        }
        for (segment, part) in self.segments.parts(range) {
            if segment.is_present() {
                self.count(segment, sign * part.count().cast_signed());
            }
        }
    }

    /// Adds `more` frames to the free count of a zone; negative if fewer are free.
    pub(crate) fn count_zone(&self, node: NodeId, zone: ZoneKind, more: i64) {
        if let Some(marks) = self.segments.zones.marks_of(node, zone) {
            marks.change(more, self.hooks);
        }
    }
}
