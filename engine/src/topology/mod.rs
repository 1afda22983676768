//! Which memory and how many CPUs belong to which node.
//!
//! Firmware speaks of *proximity domains*, in any order and with any gaps;
//! kernels number *nodes* densely. A [`TopologyBuilder`] is fed the SRAT in
//! place (or rows of a device tree, of sysfs, of a log), numbers the nodes, and
//! becomes a [`Topology`]: sorted ranges, CPUs as counts, distances. Nothing is
//! kept of a CPU but that it was counted. [`Topology::apply`] then says to
//! [`EarlyMemory`](crate::early::EarlyMemory) which node each range lies on;
//! what no node claims is reported and given to a neighbour.
//!
//! What firmware got wrong is reported as a [`TopologyNotice`].
#![deny(unsafe_code)]

mod apply;
mod builder;
mod notice;

pub use apply::Trust;
pub use builder::{TopologyBuilder, TopologyStorage};
pub use notice::{OneNodeReason, TopologyError, TopologyNotice, TopologyPart};

use crate::addr::{PhysAddr, PhysRange};
use crate::firmware::acpi::{Slit, SlitFault};
use crate::node::NodeId;
use crate::store::Full;

/// Distance of a node to itself, in SLIT units.
pub const LOCAL_DISTANCE: u8 = 10;
/// Distance to another node when firmware says nothing.
pub const REMOTE_DISTANCE: u8 = 20;

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    /// Firmware's proximity domain; `None` for a number that firmware skipped.
    pub domain: Option<u32>,
    /// CPUs firmware puts there.
    pub cpus: u32,
    /// Holds memory that was reserved when the topology was applied.
    holds_reserved: bool,
}

impl NodeInfo {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        domain: None,
        cpus: 0,
        holds_reserved: false,
    };
}

/// A range that firmware puts on a node, whether there is memory in it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopologyRange {
    /// The bytes.
    pub range: PhysRange,
    /// The node.
    pub node: NodeId,
    /// Memory may come and go here.
    pub hotplug: bool,
}

impl TopologyRange {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        node: NodeId(0),
        hotplug: false,
    };
}

/// Nodes, their ranges and their distances.
///
/// ```
/// use firstlight::addr::{PhysAddr, PhysRange};
/// use firstlight::node::NodeId;
/// use firstlight::topology::*;
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
/// assert_eq!(topology.distance(NodeId(0), NodeId(1)), 20); // nobody said
/// # Ok::<(), TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Topology<'s> {
    nodes: &'s mut [NodeInfo],
    ranges: &'s mut [TopologyRange],
    /// Row by row, a square of the number of nodes; empty when nobody said.
    distances: &'s [u8],
    /// Ranges of two nodes overlapped.
    contested: bool,
}

impl<'s> Topology<'s> {
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
        nodes.fill(NodeInfo {
            domain: Some(0),
            cpus,
            ..NodeInfo::EMPTY
        });
        Ok(Self {
            nodes,
            ranges: &mut [],
            distances: &[],
            contested: false,
        })
    }

    /// The nodes, by number.
    pub fn nodes(&self) -> &[NodeInfo] {
        self.nodes
    }

    /// What firmware puts where, ascending and disjoint.
    pub fn ranges(&self) -> &[TopologyRange] {
        self.ranges
    }

    /// The node that is proximity domain `domain`.
    pub fn node_of(&self, domain: u32) -> Option<NodeId> {
        let at = self
            .nodes
            .iter()
            .position(|node| node.domain == Some(domain))?;
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

    /// Distance between two nodes: 10 is local, 20 what is assumed of another node.
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

    /// Takes the distances from a SLIT, unless one of them is impossible: then all
    /// are distrusted, and the defaults stay. Domains past its last locality get the defaults.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_slit(
        &mut self,
        slit: &Slit<'_>,
        storage: &'s mut [u8],
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        let mut usable = true;
        let worst = slit.faults().inspect(|fault| {
            usable &= matches!(fault, SlitFault::Asymmetric { .. });
        });
        if let Some(fault) =
            worst.max_by_key(|fault| !matches!(fault, SlitFault::Asymmetric { .. }))
        {
            report(TopologyNotice::Slit {
                fault,
                used: usable,
            });
        }
        if !usable {
            return Ok(());
        }
        let domains = self.nodes.len();
        let domain = |node: usize| self.nodes.get(node).and_then(|info| info.domain);
        let known = |row: usize, column: usize| {
            let from = usize::try_from(domain(row)?).ok()?;
            slit.distance(from, usize::try_from(domain(column)?).ok()?)
        };
        let matrix = square(domains, storage, known)?;
        for at in 0..matrix.len() {
            let (row, column) = (at / domains, at % domains);
            let here = matrix.get(at).copied().unwrap_or(REMOTE_DISTANCE);
            // The specification reserves 0..=9, and 10 for the node itself.
            if row != column && here <= LOCAL_DISTANCE {
                let fault = SlitFault::BelowLocal {
                    from: row,
                    to: column,
                    seen: here,
                };
                report(TopologyNotice::Slit { fault, used: false });
                return Ok(());
            }
        }
        self.distances = matrix;
        Ok(())
    }

    /// Takes the distances from a function of two node numbers; `None` keeps the default.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_distances(
        &mut self,
        storage: &'s mut [u8],
        distance: impl Fn(usize, usize) -> Option<u8>,
    ) -> Result<(), TopologyError> {
        self.distances = square(self.nodes.len(), storage, distance)?;
        Ok(())
    }

    /// Forgets every range and node but one, which gets all CPUs.
    fn become_single(&mut self) {
        let cpus = self
            .nodes
            .iter()
            .fold(0u32, |sum, node| sum.saturating_add(node.cpus));
        let nodes = core::mem::take(&mut self.nodes);
        let domain = nodes.first().and_then(|node| node.domain);
        self.nodes = nodes.get_mut(..1).unwrap_or_default();
        self.nodes.fill(NodeInfo {
            domain,
            cpus,
            holds_reserved: false,
        });
        self.ranges = &mut [];
        self.distances = &[];
    }
}

/// Fills a square of `side` nodes, row by row.
fn square(
    side: usize,
    storage: &mut [u8],
    distance: impl Fn(usize, usize) -> Option<u8>,
) -> Result<&mut [u8], TopologyError> {
    let capacity = storage.len();
    let needed = side.saturating_mul(side);
    let Some(matrix) = storage.get_mut(..needed) else {
        let full = Full { capacity, needed };
        return Err(TopologyError::Full {
            part: TopologyPart::Distances,
            full,
        });
    };
    for (at, slot) in matrix.iter_mut().enumerate() {
        let (row, column) = (at / side, at % side);
        let default = if row == column {
            LOCAL_DISTANCE
        } else {
            REMOTE_DISTANCE
        };
        *slot = distance(row, column).unwrap_or(default);
    }
    Ok(matrix)
}
