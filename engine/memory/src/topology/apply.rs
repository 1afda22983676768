//! From a [`Topology`] to nodes on early memory.

use crate::addr::PhysRange;
use crate::early::{EarlyFlags, EarlyMemory, EarlyRegion};
use crate::node::NodeId;

use super::{OneNodeReason, Topology, TopologyError, TopologyNotice};

/// How a topology with faults is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// What is wrong is repaired and reported; the rest is used.
    #[default]
    Repair,
    /// As Linux does it: overlapping nodes, or this many bytes of memory or more
    /// on no node, and the machine is taken as one node.
    AllOrNothing {
        /// Linux: 1 MiB.
        unclaimed_bytes: u64,
    },
}

impl Topology<'_> {
    /// Sets the node of all memory, and marks what may be unplugged.
    ///
    /// Memory between two ranges of one node is that node's: tables often leave out
    /// the hole below 4 GiB and its edges. Other memory outside all ranges gets the
    /// node of the memory below it, or else above it, and is reported. A node with
    /// reserved memory is the kernel's and cannot be unplugged.
    ///
    /// # Errors
    /// [`TopologyError::Early`] when early memory has no slot for another boundary.
    pub fn apply(
        &mut self,
        early: &mut EarlyMemory<'_>,
        trust: Trust,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        if self.contested && matches!(trust, Trust::AllOrNothing { .. }) {
            report(TopologyNotice::OneNode {
                reason: OneNodeReason::Overlap,
            });
            return self.apply_single(early);
        }
        if self.ranges.is_empty() && self.nodes.len() <= 1 {
            return self.apply_single(early);
        }
        for row in self.ranges.iter() {
            early.set_node(row.range, row.node)?;
            if row.hotplug {
                early.set_flags(row.range, EarlyFlags::HOTPLUG)?;
            }
        }
        if let Trust::AllOrNothing { unclaimed_bytes } = trust {
            let bytes = unclaimed(early.memory());
            if bytes >= unclaimed_bytes {
                let reason = OneNodeReason::Unclaimed { bytes };
                report(TopologyNotice::OneNode { reason });
                return self.apply_single(early);
            }
        }
        adopt(early, report)?;
        self.pin_kernel_nodes(early, report)
    }

    fn apply_single(&mut self, early: &mut EarlyMemory<'_>) -> Result<(), TopologyError> {
        self.become_single();
        let all = PhysRange::new(0, u64::MAX).unwrap_or_default();
        early.set_node(all, NodeId(0))?;
        early.clear_flags(all, EarlyFlags::HOTPLUG)?;
        Ok(())
    }

    /// Clears the hot-plug flag of nodes that hold reserved memory.
    fn pin_kernel_nodes(
        &mut self,
        early: &mut EarlyMemory<'_>,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        let memory = early.memory();
        for reserved in early.reserved() {
            let from =
                memory.partition_point(|region| region.range.end() <= reserved.range.start());
            for region in memory.iter().skip(from) {
                if !region.range.overlaps(reserved.range) {
                    break;
                }
                let node = region.node.map_or(usize::MAX, |node| usize::from(node.0));
                if let Some(info) = self.nodes.get_mut(node) {
                    info.holds_reserved = true;
                }
            }
        }
        for row in self.ranges.iter().filter(|row| row.hotplug) {
            let info = self.nodes.get(usize::from(row.node.0));
            let memory = early.memory();
            let at = memory.partition_point(|region| region.range.end() <= row.range.start());
            let holds_memory = memory
                .get(at)
                .is_some_and(|region| region.range.overlaps(row.range));
            if holds_memory && info.is_some_and(|info| info.holds_reserved) {
                early.clear_flags(row.range, EarlyFlags::HOTPLUG)?;
                report(TopologyNotice::NotRemovable {
                    range: row.range,
                    node: row.node,
                });
            }
        }
        Ok(())
    }
}

/// Bytes of memory that are on no node and not between two ranges of one.
fn unclaimed(memory: &[EarlyRegion]) -> u64 {
    let mut bytes = 0;
    // Of the run of regions without a node that is being read, and the node before it.
    let mut run_bytes = 0;
    let mut below = None;
    for region in memory {
        let Some(node) = region.node else {
            run_bytes += region.range.bytes();
            continue;
        };
        if below != Some(node) {
            bytes += run_bytes;
        }
        run_bytes = 0;
        below = Some(node);
    }
    bytes + run_bytes
}

/// Sets memory without a node to that of a neighbour, run by run, lowest first.
fn adopt(
    early: &mut EarlyMemory<'_>,
    report: &mut dyn FnMut(TopologyNotice),
) -> Result<(), TopologyError> {
    let mut from = 0;
    loop {
        let memory = early.memory();
        let without_node = |region: &EarlyRegion| region.node.is_none();
        let left = memory.get(from..).unwrap_or_default();
        let Some(at) = left.iter().position(without_node).map(|at| from + at) else {
            return Ok(());
        };
        // All below has a node, and the run may merge with the region before it.
        from = at.saturating_sub(1);
        let (before, rest) = memory.split_at_checked(at).unwrap_or_default();
        let len = rest
            .iter()
            .position(|region| !without_node(region))
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at_checked(len).unwrap_or_default();
        let below = before.last().and_then(|region| region.node);
        let above = after.first().and_then(|region| region.node);
        let given = below.or(above).unwrap_or(NodeId(0));
        if below.is_none() || below != above {
            for region in run {
                report(TopologyNotice::Unclaimed {
                    range: region.range,
                    given,
                });
            }
        }
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(());
        };
        let (start, end) = (first.range.start().get(), last.range.end().get());
        early.set_node(PhysRange::new(start, end).unwrap_or_default(), given)?;
    }
}
