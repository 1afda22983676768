//! Where each node's Movable zone starts.
//!
//! Three ways lead to movable memory, tried in this order, as in Linux:
//! `movable_node` (hot-pluggable memory is movable), `kernelcore=mirror`
//! (unmirrored memory from 4 GiB up is movable), and `kernelcore=` or
//! `movablecore=` (an amount, spread evenly over the nodes that have memory).
//! The result is [`super::Node::movable_start`] and a [`MovableOutcome`] that
//! reports the outcome.

use core::fmt;

use crate::addr::{Frame, FrameRange};

use super::zones::Bounds;
use super::{LayoutPolicy, Node, NodeRange};

/// The outcome of the request for movable memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MovableOutcome {
    /// None was requested.
    #[default]
    NotRequested,
    /// `movable_node`: every hot-pluggable range from its node's first on.
    Hotplug,
    /// `kernelcore=mirror`: every unmirrored range from 4 GiB up.
    Mirror {
        /// Memory below 4 GiB is not mirrored and stays the kernel's all the same.
        unmirrored_low: bool,
    },
    /// `kernelcore=mirror` on a machine without mirrored memory: ignored.
    MirrorMissing,
    /// An amount was spread over the nodes.
    Spread {
        /// Frames the kernel keeps, before rounding.
        kernel_frames: u64,
    },
    /// The kernel's part is nothing or everything: no memory became movable.
    NothingToSplit {
        /// Frames requested for the kernel.
        kernel_frames: u64,
        /// Frames there are.
        total_frames: u64,
    },
}

impl fmt::Display for MovableOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRequested => f.write_str("no movable memory was requested"),
            Self::Hotplug => f.write_str("hot-pluggable memory is movable"),
            Self::Mirror { unmirrored_low: false } => f.write_str("unmirrored memory is movable"),
            Self::Mirror { unmirrored_low: true } => f.write_str(
                "unmirrored memory is movable, except below 4 GiB, where the kernel gets it unmirrored",
            ),
            Self::MirrorMissing => {
                f.write_str("kernelcore=mirror is ignored: no memory here is mirrored")
            }
            Self::Spread { kernel_frames } => {
                write!(f, "{kernel_frames} frames are spread over the nodes for the kernel")
            }
            Self::NothingToSplit { kernel_frames, total_frames } => write!(
                f,
                "nothing is movable: {kernel_frames} of {total_frames} frames were requested for the kernel"
            ),
        }
    }
}

/// Sets `movable_start` of every node that gets a Movable zone.
///
/// Costs one pass over the ranges, or one per round of spreading; every round
/// but the last leaves at least one node fuller, so rounds are at most nodes.
pub(super) fn place(
    nodes: &mut [Node],
    ranges: &[NodeRange],
    bounds: &Bounds,
    policy: &LayoutPolicy,
) -> MovableOutcome {
    let outcome = if policy.movable_node {
        for range in ranges.iter().filter(|range| range.hotplug) {
            lower_start(nodes, range, range.frames.start());
        }
        MovableOutcome::Hotplug
    } else if policy.kernelcore_mirror {
        mirror(nodes, ranges, policy)
    } else if policy.kernelcore.is_some() || policy.movablecore.is_some() {
        spread_request(nodes, ranges, bounds, policy)
    } else {
        MovableOutcome::NotRequested
    };
    for node in nodes.iter_mut() {
        node.movable_start = node.movable_start.and_then(|start| {
            let start = start
                .get()
                .checked_next_multiple_of(policy.movable_align_frames)?;
            (start < node.span.end().get()).then_some(Frame::new(start))
        });
    }
    outcome
}

fn lower_start(nodes: &mut [Node], range: &NodeRange, start: Frame) {
    if let Some(node) = nodes.get_mut(usize::from(range.node.0)) {
        node.movable_start = Some(node.movable_start.map_or(start, |old| old.min(start)));
    }
}

fn mirror(nodes: &mut [Node], ranges: &[NodeRange], policy: &LayoutPolicy) -> MovableOutcome {
    if policy.mirror_must_exist && !ranges.iter().any(|range| range.mirror) {
        return MovableOutcome::MirrorMissing;
    }
    let mut unmirrored_low = false;
    for range in ranges.iter().filter(|range| !range.mirror) {
        // A range across the limit counts as two, however firmware cut it.
        unmirrored_low |= range.frames.start() < policy.dma32_end;
        if range.frames.end() > policy.dma32_end {
            lower_start(nodes, range, range.frames.start().max(policy.dma32_end));
        }
    }
    MovableOutcome::Mirror { unmirrored_low }
}

fn spread_request(
    nodes: &mut [Node],
    ranges: &[NodeRange],
    bounds: &Bounds,
    policy: &LayoutPolicy,
) -> MovableOutcome {
    let total_frames: u64 = nodes.iter().map(|node| node.present_frames).sum();
    let mut kernel_frames = policy
        .kernelcore
        .map_or(0, |size| size.frames(total_frames));
    let movable = policy
        .movablecore
        .map_or(0, |size| size.frames(total_frames));
    if movable > 0 {
        let movable = movable
            .checked_next_multiple_of(policy.movable_align_frames)
            .unwrap_or(u64::MAX)
            .min(total_frames);
        // With both parameters the larger kernel part wins.
        kernel_frames = kernel_frames.max(total_frames - movable);
    }
    if kernel_frames == 0 || kernel_frames >= total_frames {
        return MovableOutcome::NothingToSplit {
            kernel_frames,
            total_frames,
        };
    }
    spread(nodes, ranges, bounds.highest_start(), kernel_frames);
    MovableOutcome::Spread { kernel_frames }
}

/// Spreads `wanted` frames over the nodes with memory, lowest addresses of each
/// first, and starts every node's movable memory after its quota.
///
/// Memory below `usable_start` cannot be movable and counts as dealt; a node
/// too small for its quota leaves the rest to the others in another round.
fn spread(nodes: &mut [Node], ranges: &[NodeRange], usable_start: Frame, mut wanted: u64) {
    let populated = nodes.iter().filter(|node| node.present_frames > 0).count();
    let mut sharers = u64::try_from(populated).unwrap_or(u64::MAX);
    while sharers > 0 {
        let before = wanted;
        let mut quota = wanted / sharers;
        for node in nodes.iter_mut().filter(|node| node.present_frames > 0) {
            if wanted < quota {
                quota = wanted / sharers;
            }
            deal(node, ranges, usable_start, quota, &mut wanted);
        }
        sharers -= 1;
        // A round that dealt nothing found every node full: so would the next.
        if wanted <= sharers || wanted == before {
            break;
        }
    }
}

/// One node's part of a round: takes up to `quota` frames from where the last round ended.
fn deal(node: &mut Node, ranges: &[NodeRange], usable_start: Frame, quota: u64, wanted: &mut u64) {
    let mut left = quota;
    let mut start = node.movable_start;
    for range in node.own_ranges(ranges) {
        let from = start.map_or(range.frames.start(), |at| at.max(range.frames.start()));
        let Some(frames) = FrameRange::new(from.get(), range.frames.end().get()) else {
            continue;
        };
        if frames.is_empty() {
            continue;
        }
        let low_end = frames.end().min(usable_start).max(frames.start());
        let low = low_end.get() - frames.start().get();
        left -= low.min(left);
        *wanted -= low.min(*wanted);
        if low == frames.count() {
            start = Some(frames.end());
            continue;
        }
        let taken = left.min(frames.count() - low);
        start = Some(Frame::new(low_end.get() + taken));
        *wanted -= taken.min(*wanted);
        left -= taken;
        if left == 0 {
            break;
        }
    }
    node.movable_start = start;
}
