//! A made-up machine to describe: [`Machine`].

use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
use firstlight::node::NodeId;
use firstlight::topology::{
    NodeInfo, Topology, TopologyBuilder, TopologyRange, TopologyStorage, Trust,
};
use std::error::Error;

/// Memory by node.
#[derive(Clone, Debug)]
pub struct Machine {
    rows: Vec<(NodeId, PhysRange)>,
}

/// What laying a machine out needs.
pub(super) struct Storage {
    memory: Vec<EarlyRegion>,
    reserved: Vec<EarlyRegion>,
    trail: Vec<Allocation>,
    infos: Vec<NodeInfo>,
    rows: Vec<TopologyRange>,
    nodes: Vec<Node>,
    ranges: Vec<NodeRange>,
    zones: Vec<Zone>,
}

impl Machine {
    /// A machine of these pieces of memory: node, first byte, bytes. The first
    /// page is left out, as kernels do.
    #[must_use]
    pub fn new(rows: &[(u16, u64, u64)]) -> Self {
        let range = |&(node, start, bytes): &(u16, u64, u64)| {
            let end = start.saturating_add(bytes);
            let range = PhysRange::new(start.max(PAGE_BYTES), end)?;
            (!range.inner_frames().is_empty()).then_some((NodeId(node), range))
        };
        Self {
            rows: rows.iter().filter_map(range).collect(),
        }
    }

    /// Frames of memory.
    pub(super) fn frames(&self) -> u64 {
        let frames = self.rows.iter().map(|row| row.1.inner_frames().count());
        frames.sum()
    }

    /// Nodes with memory, ascending.
    pub(super) fn nodes(&self) -> Vec<u16> {
        let mut nodes: Vec<_> = self.rows.iter().map(|row| row.0.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Enough for descriptors of `bytes` bytes and what keeps them in step.
    pub(super) fn room_bytes(&self, bytes: u64) -> u64 {
        // Zones cut a piece three times at most.
        let pieces = (4 * self.rows.len() + 2) as u64;
        let own = self.frames().saturating_mul(bytes);
        own.saturating_add(pieces.saturating_mul(4 << 20))
    }

    pub(super) fn storage(&self) -> Storage {
        let (rows, nodes) = (self.rows.len(), usize::from(self.most_node()) + 1);
        let claims = 2 * nodes + 8 * rows + 16;
        Storage {
            memory: vec![EarlyRegion::EMPTY; rows + 1],
            reserved: vec![EarlyRegion::EMPTY; claims],
            trail: vec![Allocation::EMPTY; claims],
            infos: vec![NodeInfo::EMPTY; nodes],
            rows: vec![TopologyRange::EMPTY; rows],
            nodes: vec![Node::EMPTY; nodes],
            ranges: vec![NodeRange::EMPTY; rows + 1],
            zones: vec![Zone::EMPTY; 4 * nodes],
        }
    }

    fn most_node(&self) -> u16 {
        self.nodes().last().copied().unwrap_or_default()
    }

    /// The machine's layout; no memory is an error.
    pub(super) fn layout<'s>(
        &self,
        storage: &'s mut Storage,
    ) -> Result<Layout<'s>, Box<dyn Error>> {
        let mut early = EarlyMemory::new(
            &mut storage.memory,
            &mut storage.reserved,
            &mut storage.trail,
        );
        let mut builder = TopologyBuilder::new(TopologyStorage {
            nodes: &mut storage.infos,
            ranges: &mut storage.rows,
        });
        for node in 0..=self.most_node() {
            builder.pin(NodeId(node), u32::from(node))?;
            builder.add_cpus(NodeId(node), 1);
        }
        for &(node, range) in &self.rows {
            early.add(range, EarlyFlags::NONE)?;
            builder.add_memory(node, range, false)?;
        }
        let mut topology: Topology<'s> = builder.finish(&mut |_| {});
        topology.apply(&mut early, Trust::Repair, &mut |_| {})?;
        let lent = LayoutStorage {
            nodes: &mut storage.nodes,
            ranges: &mut storage.ranges,
            zones: &mut storage.zones,
        };
        Ok(Layout::build(
            early,
            topology,
            &LayoutPolicy::DEFAULT,
            lent,
        )?)
    }
}
