//! Building a [`Layout`]: ranges, then nodes, then what depends on both.

use crate::addr::FrameRange;
use crate::early::{EarlyFlags, EarlyMemory, EarlyRegion};
use crate::node::{NodeId, ZoneKind};
use crate::store::{Full, Store};
use crate::topology::Topology;

use super::node::NO_RANGE;
use super::zones::{self, Bounds};
use super::{
    ExtentKind, Layout, LayoutError, LayoutPart, LayoutPolicy, LayoutStorage, Node, NodeRange,
    Zone, deferral, movable,
};

impl<'s> Layout<'s> {
    /// Lays out `early` memory, whose nodes `topology` has set.
    ///
    /// On a machine of one node, memory without a node is that node's.
    ///
    /// # Errors
    /// [`LayoutError`]: storage that is too small, with the number needed;
    /// memory of no node or of a node the topology does not have; no memory at all.
    pub fn build(
        early: EarlyMemory<'s>,
        topology: Topology<'s>,
        policy: &LayoutPolicy,
        storage: LayoutStorage<'s>,
    ) -> Result<Self, LayoutError> {
        let nodes = fill_nodes(&topology, storage.nodes)?;
        let ranges = fill_ranges(&early, nodes.len(), storage.ranges)?;
        chain(nodes, ranges);
        let memory = match (ranges.first(), ranges.last()) {
            (Some(first), Some(last)) => hull(first.frames, last.frames),
            _ => {
                return Err(LayoutError::NoMemory {
                    regions: early.memory().len(),
                });
            }
        };
        let bounds = Bounds::new(policy, memory);
        let movable = movable::place(nodes, ranges, &bounds, policy);
        deferral::plan(nodes, ranges, &bounds, policy);
        let zones = fill_zones(nodes, ranges, &bounds, policy, storage.zones)?;
        Ok(Self {
            early,
            topology,
            nodes,
            ranges,
            zones,
            bounds,
            policy: *policy,
            movable,
            zero: &[],
            #[cfg(feature = "hotplug")]
            window_share: Layout::WINDOW_SHARE,
        })
    }
}

/// From the start of `low` to the end of `high`, which starts no lower.
fn hull(low: FrameRange, high: FrameRange) -> FrameRange {
    FrameRange::new(low.start().get(), low.end().max(high.end()).get()).unwrap_or(low)
}

fn full(part: LayoutPart, capacity: usize, needed: usize) -> LayoutError {
    LayoutError::Full {
        part,
        full: Full { capacity, needed },
    }
}

fn fill_nodes<'s>(
    topology: &Topology<'_>,
    storage: &'s mut [Node],
) -> Result<&'s mut [Node], LayoutError> {
    let infos = topology.nodes();
    let capacity = storage.len();
    let nodes =
        storage
            .get_mut(..infos.len())
            .ok_or(full(LayoutPart::Nodes, capacity, infos.len()))?;
    for ((number, node), info) in (0..=u16::MAX).zip(nodes.iter_mut()).zip(infos) {
        *node = Node {
            id: NodeId(number),
            domain: info.domain.unwrap_or(u32::from(number)),
            cpus: info.cpus,
            first_range: NO_RANGE,
            ..Node::EMPTY
        };
    }
    Ok(nodes)
}

fn fill_ranges<'s>(
    early: &EarlyMemory<'_>,
    nodes: usize,
    storage: &'s mut [NodeRange],
) -> Result<&'s mut [NodeRange], LayoutError> {
    let memory = early.memory();
    let whole = |region: &EarlyRegion| !region.range.inner_frames().is_empty();
    let mut ranges = Store::new(storage);
    for region in memory.iter() {
        let frames = region.range.inner_frames();
        if frames.is_empty() {
            continue;
        }
        let node = match region.node {
            Some(node) => node,
            None if nodes == 1 => NodeId(0),
            None => {
                return Err(LayoutError::NoNode {
                    range: region.range,
                });
            }
        };
        if usize::from(node.0) >= nodes {
            return Err(LayoutError::UnknownNode {
                range: region.range,
                node,
                nodes,
            });
        }
        let range = NodeRange {
            node,
            frames,
            mirror: region.flags.contains(EarlyFlags::MIRROR),
            hotplug: region.flags.contains(EarlyFlags::HOTPLUG),
            kind: ExtentKind::of_memory(region.flags),
            next: NO_RANGE,
        };
        ranges.push(range).map_err(|Full { capacity, .. }| {
            let needed = memory.iter().filter(|region| whole(region)).count();
            full(LayoutPart::Ranges, capacity, needed)
        })?;
    }
    Ok(ranges.into_slice())
}

/// Links each node's ranges into a chain, last range first so that chains
/// ascend, and sums them up.
fn chain(nodes: &mut [Node], ranges: &mut [NodeRange]) {
    for (index, range) in ranges.iter_mut().enumerate().rev() {
        let Some(node) = nodes.get_mut(usize::from(range.node.0)) else {
            continue;
        };
        range.next = node.first_range;
        // Storage of 2^32 ranges would take 128 GiB: the index always fits.
        node.first_range = u32::try_from(index).unwrap_or(NO_RANGE);
        node.present_frames += range.frames.count();
        node.span = if node.span.is_empty() {
            range.frames
        } else {
            hull(range.frames, node.span)
        };
    }
}

/// Sums up each node's zones, lowest first; only those with memory are kept.
fn fill_zones<'s>(
    nodes: &[Node],
    ranges: &[NodeRange],
    bounds: &Bounds,
    policy: &LayoutPolicy,
    storage: &'s mut [Zone],
) -> Result<&'s mut [Zone], LayoutError> {
    let mut zones = Store::new(storage);
    let mut needed = 0;
    for node in nodes {
        let rule = node.movable_rule(policy);
        let mut present = [0; ZoneKind::ALL.len()];
        for range in node.own_ranges(ranges) {
            let mut left = range.frames;
            while !left.is_empty() {
                let (kind, piece) = zones::front(bounds, rule, range.mirror, left);
                present[kind as usize] += piece.count();
                left = FrameRange::new(piece.end().get(), left.end().get()).unwrap_or_default();
            }
        }
        for (kind, present_frames) in ZoneKind::ALL.into_iter().zip(present) {
            if present_frames == 0 {
                continue;
            }
            needed += 1;
            let span = zones::span(bounds, rule, node.span, kind);
            // A store that is full stays full; what is missing is counted on.
            let _ = zones.push(Zone {
                node: node.id,
                kind,
                span,
                present_frames,
            });
        }
    }
    if needed > zones.capacity() {
        return Err(full(LayoutPart::Zones, zones.capacity(), needed));
    }
    Ok(zones.into_slice())
}
