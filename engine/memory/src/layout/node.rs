//! The parts of a layout: [`Node`], [`NodeRange`], [`Zone`].

use super::zones::MovableRule;
use super::{ExtentKind, LayoutPolicy};
use crate::addr::{Frame, FrameRange};
use crate::node::{NodeId, ZoneKind};

/// A node, with or without memory, with or without CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number; also its position in [`Layout::nodes`](super::Layout::nodes).
    pub id: NodeId,
    /// Firmware's proximity domain; the node's own number where firmware named none.
    pub domain: u32,
    /// CPUs firmware puts there.
    pub cpus: u32,
    /// From its first frame to its last, holes and other nodes' frames included; empty without memory.
    pub span: FrameRange,
    /// Frames of memory.
    pub present_frames: u64,
    /// First frame of its Movable zone.
    pub movable_start: Option<Frame>,
    /// Present frames described before the deferred workers run.
    pub eager_frames: u64,
    /// First frame left to the deferred workers; `None` when nothing is.
    pub first_deferred: Option<Frame>,
    /// Head of the chain of this node's ranges; [`NO_RANGE`] without memory.
    pub(super) first_range: u32,
}

/// End of the chain of a node's ranges.
pub(super) const NO_RANGE: u32 = u32::MAX;

impl Node {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        id: NodeId(0),
        domain: 0,
        cpus: 0,
        span: FrameRange::EMPTY,
        present_frames: 0,
        movable_start: None,
        eager_frames: 0,
        first_deferred: None,
        first_range: 0, // written with the node: unused storage is zero
    };

    /// Frames of the span that are not this node's memory.
    pub const fn absent_frames(&self) -> u64 {
        self.span.count() - self.present_frames
    }

    /// Whether the node has memory.
    pub const fn has_memory(&self) -> bool {
        self.present_frames > 0
    }

    pub(super) fn own_ranges<'a>(&self, ranges: &'a [NodeRange]) -> OwnRanges<'a> {
        OwnRanges {
            ranges,
            next: self.first_range,
        }
    }

    pub(super) fn movable_rule(&self, policy: &LayoutPolicy) -> MovableRule {
        MovableRule {
            start: self.movable_start,
            spare_mirrored: policy.kernelcore_mirror && !policy.movable_node,
        }
    }
}

/// Memory of one node; ranges that touch stay apart where a flag differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRange {
    /// The node.
    pub node: NodeId,
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Kept twice by the hardware.
    pub mirror: bool,
    /// May be unplugged.
    pub hotplug: bool,
    /// What its frames are while they are not reserved.
    pub kind: ExtentKind,
    /// The node's next range.
    pub(super) next: u32,
}

impl NodeRange {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        node: NodeId(0),
        frames: FrameRange::EMPTY,
        mirror: false,
        hotplug: false,
        kind: ExtentKind::Usable,
        next: 0, // as above
    };
}

/// The ranges of one node, ascending: follows their chain.
#[derive(Clone, Debug)]
pub(super) struct OwnRanges<'a> {
    pub(super) ranges: &'a [NodeRange],
    pub(super) next: u32,
}

impl<'a> Iterator for OwnRanges<'a> {
    type Item = &'a NodeRange;

    fn next(&mut self) -> Option<&'a NodeRange> {
        let range = self.ranges.get(usize::try_from(self.next).ok()?)?;
        self.next = range.next;
        Some(range)
    }
}

/// A zone of a node that holds memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// The node.
    pub node: NodeId,
    /// Which zone.
    pub kind: ZoneKind,
    /// What it spans, holes included: between two address limits, cut by the node's ends.
    pub span: FrameRange,
    /// Frames of memory; never 0.
    pub present_frames: u64,
}

impl Zone {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        node: NodeId(0),
        kind: ZoneKind::Dma, // zero
        span: FrameRange::EMPTY,
        present_frames: 0,
    };

    /// Frames of the span that are not this zone's memory.
    pub const fn absent_frames(&self) -> u64 {
        self.span.count() - self.present_frames
    }
}
