//! Where memory may be plugged in later: [`Windows`].

use crate::addr::FrameRange;
use crate::node::ZoneKind;

use super::zones::{self, Bounds, MovableRule};
use super::{Extent, ExtentKind, Layout, NodeRange};
use crate::topology::TopologyRange;

/// Absent extents of a layout, ascending: what firmware announces as
/// hot-pluggable and is no memory yet. Made by [`Layout::windows`].
#[derive(Clone, Debug)]
pub struct Windows<'a> {
    layout: &'a Layout<'a>,
    /// Limits of zones for any address, not only those of the memory there is.
    bounds: Bounds,
    rows: core::slice::Iter<'a, TopologyRange>,
    present: &'a [NodeRange],
    /// What is left of the window at hand, and its row.
    left: FrameRange,
    row: TopologyRange,
}

impl Layout<'_> {
    /// Hot-pluggable ranges firmware announces, without the memory already there:
    /// ascending extents of kind [`ExtentKind::Absent`].
    pub fn windows(&self) -> Windows<'_> {
        Windows {
            layout: self,
            bounds: Bounds::new(&self.policy, FrameRange::ALL),
            rows: self.topology.ranges().iter(),
            present: self.ranges,
            left: FrameRange::EMPTY,
            row: TopologyRange::EMPTY,
        }
    }

    /// The zone of `frames`, not empty, by their addresses, if it is one for all of them.
    pub fn kernel_zone(&self, frames: FrameRange) -> Option<ZoneKind> {
        let bounds = Bounds::new(&self.policy, FrameRange::ALL);
        let (zone, front) = zones::front(&bounds, MovableRule::default(), false, frames);
        (front == frames).then_some(zone)
    }
}

impl Windows<'_> {
    /// The next frames in a row of one window that are no memory.
    fn next_gap(&mut self) -> Option<FrameRange> {
        loop {
            if self.left.is_empty() {
                self.row = *self.rows.find(|row| row.hotplug)?;
                self.left = self.row.range.inner_frames();
                continue;
            }
            let (start, end) = (self.left.start(), self.left.end());
            let below = self
                .present
                .partition_point(|range| range.frames.end() <= start);
            let present = self.present.get(below).map(|range| range.frames);
            let present = present.map_or(FrameRange::EMPTY, |frames| frames.intersect(self.left));
            if present.is_empty() {
                return Some(core::mem::take(&mut self.left));
            }
            self.left = FrameRange::new(present.end().get(), end.get()).unwrap_or_default();
            let gap = FrameRange::new(start.get(), present.start().get()).unwrap_or_default();
            if !gap.is_empty() {
                return Some(gap);
            }
        }
    }
}

impl Iterator for Windows<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let gap = self.next_gap()?;
        let node = self.row.node;
        let (zone, frames) = if self.layout.policy.movable_node {
            (ZoneKind::Movable, gap)
        } else {
            zones::front(&self.bounds, self.layout.rule_of(node), false, gap)
        };
        if frames.end() < gap.end() {
            // Cut at a zone limit: the rest comes next, with what follows the gap.
            let end = self.left.end().max(gap.end());
            self.left = FrameRange::new(frames.end().get(), end.get()).unwrap_or_default();
        }
        Some(Extent {
            frames,
            node,
            zone,
            kind: ExtentKind::Absent,
        })
    }
}
