//! Which memory and how many CPUs belong to which node.
//!
//! ACPI speaks of *proximity domains*, in any order and with any gaps, and kernels number
//! *nodes* densely; a device tree gives nodes their numbers. A [`TopologyBuilder`] is fed the SRAT in
//! place (or rows of a device tree, of sysfs, of a log), numbers the nodes, and
//! becomes a [`Topology`]: sorted ranges, counts of CPUs, distances.
//! [`Topology::apply`] then sets the node of each range of
//! [`EarlyMemory`](crate::early::EarlyMemory); memory on no node is reported and
//! gets the node of a neighbour.
//!
//! Firmware's mistakes are reported as [`TopologyNotice`]s. Hot-pluggable ranges stay
//! in the topology whether there is memory in them or not.
#![deny(unsafe_code)]

mod apply;
mod builder;
mod distances;
mod domains;
mod notice;
mod rows;

pub use apply::Trust;
pub use builder::{TopologyBuilder, TopologyStorage};
pub use notice::{OneNodeReason, TopologyError, TopologyNotice, TopologyPart};
pub use rows::{NodeInfo, TopologyRange};

use crate::addr::PhysAddr;
use crate::node::NodeId;
use crate::store::Full;
use domains::Domains;

/// Distance of a node to itself, in SLIT units.
pub const LOCAL_DISTANCE: u8 = 10;
/// Distance to another node without a table.
pub const REMOTE_DISTANCE: u8 = 20;

/// Nodes, their ranges and their distances.
///
/// ```
/// use firstlight_memory::addr::{PhysAddr, PhysRange};
/// use firstlight_memory::node::NodeId;
/// use firstlight_memory::topology::*;
///
/// let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 4], [TopologyRange::EMPTY; 4]);
/// let storage = TopologyStorage { nodes: &mut nodes, ranges: &mut ranges };
/// let mut builder = TopologyBuilder::new(storage);
/// for domain in [1, 2] {
///     let node = builder.node_of(domain)?; // domains start at 1, nodes at 0
///     builder.add_cpus(node, 8);
///     let start = u64::from(domain) << 32;
///     builder.add_memory(node, PhysRange::new(start, start + (1 << 30)).unwrap(), false)?;
/// }
/// let topology = builder.finish(&mut |notice| panic!("{notice}"));
/// assert_eq!(topology.node_of(2), Some(NodeId(1)));
/// assert_eq!(topology.node_at(PhysAddr::new(2 << 32)), Some(NodeId(1)));
/// assert_eq!(topology.distance(NodeId(0), NodeId(1)), 20); // the default
/// # Ok::<(), TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Topology<'s> {
    nodes: &'s mut [NodeInfo],
    domains: Domains,
    ranges: &'s mut [TopologyRange],
    /// Row by row, a square of the number of nodes; empty without a table.
    distances: &'s mut [u8],
    /// Ranges of two nodes overlapped.
    contested: bool,
}

impl<'s> Topology<'s> {
    /// No node, no memory.
    pub fn none() -> Self {
        Self {
            nodes: &mut [],
            domains: Domains::default(),
            ranges: &mut [],
            distances: &mut [],
            contested: false,
        }
    }

    /// A machine of one node.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `nodes` is empty.
    pub fn single(nodes: &'s mut [NodeInfo], cpus: u32) -> Result<Self, TopologyError> {
        let Some(nodes) = nodes.get_mut(..1) else {
            let full = Full {
                capacity: 0,
                needed: 1,
            };
            return Err(TopologyError::Full {
                part: TopologyPart::Nodes,
                full,
            });
        };
        let node = NodeInfo {
            domain: Some(0),
            cpus,
            ..NodeInfo::EMPTY
        };
        nodes.fill(node);
        Ok(Self {
            nodes,
            domains: Domains::of_one(node),
            ranges: &mut [],
            distances: &mut [],
            contested: false,
        })
    }

    /// The nodes, by number.
    pub fn nodes(&self) -> &[NodeInfo] {
        self.nodes
    }

    /// Firmware's ranges, ascending and disjoint.
    pub fn ranges(&self) -> &[TopologyRange] {
        self.ranges
    }

    /// The node that is proximity domain `domain`.
    pub fn node_of(&self, domain: u32) -> Option<NodeId> {
        let at = self.domains.find(self.nodes, domain)?;
        u16::try_from(at).ok().map(NodeId)
    }

    /// The node whose range holds `addr`.
    pub fn node_at(&self, addr: PhysAddr) -> Option<NodeId> {
        let at = self
            .ranges
            .partition_point(|range| range.range.end() <= addr);
        self.ranges
            .get(at)
            .filter(|range| range.range.contains(addr))
            .map(|range| range.node)
    }

    /// Distance between two nodes: 10 is local, 20 the default for another node.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let count = self.nodes.len();
        let (row, column) = (usize::from(from.0), usize::from(to.0));
        let known = (row < count && column < count).then(|| row * count + column);
        let default = if from == to {
            LOCAL_DISTANCE
        } else {
            REMOTE_DISTANCE
        };
        known
            .and_then(|at| self.distances.get(at).copied())
            .unwrap_or(default)
    }

    /// Drops all ranges and all nodes but one, which gets all CPUs.
    fn become_single(&mut self) {
        let cpus = self
            .nodes
            .iter()
            .fold(0u32, |sum, node| sum.saturating_add(node.cpus));
        let nodes = core::mem::take(&mut self.nodes);
        let domain = nodes.first().and_then(|node| node.domain);
        self.nodes = nodes.get_mut(..1).unwrap_or_default();
        let node = NodeInfo {
            domain,
            cpus,
            ..NodeInfo::EMPTY
        };
        self.nodes.fill(node);
        self.domains = Domains::of_one(node);
        self.ranges = &mut [];
        self.distances = &mut [];
    }
}
