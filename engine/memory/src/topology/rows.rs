//! What firmware says of one node and of one range: [`NodeInfo`], [`TopologyRange`].

use crate::addr::PhysRange;
use crate::node::NodeId;

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    /// Firmware's proximity domain; `None` for a number firmware skipped.
    pub domain: Option<u32>,
    /// CPUs firmware puts there.
    pub cpus: u32,
    /// Holds memory reserved when the topology was applied.
    pub(super) holds_reserved: bool,
    /// This slot's entry in the index of [`domains`](super::domains).
    pub(super) ranked: u16,
}

impl NodeInfo {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        domain: None,
        cpus: 0,
        holds_reserved: false,
        ranked: 0,
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
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        node: NodeId(0),
        hotplug: false,
    };
}
