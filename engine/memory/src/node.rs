//! Names of the places memory lies in: [`NodeId`], [`ZoneKind`] and both, [`NodeZone`].

use core::fmt;

/// A NUMA node, numbered densely from 0 in the order firmware names them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A zone: which frames of a node a request may get.
///
/// Ordered from the most restricted reach to the least: a request for a zone
/// may fall back to those before it, never to those after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma,
    /// From 16 MiB to 4 GiB.
    Dma32,
    /// From 4 GiB up.
    #[default]
    Normal,
    /// Holds only what can be moved away, so that it can be unplugged or made contiguous.
    Movable,
}

impl ZoneKind {
    /// All zones, lowest first.
    pub const ALL: [Self; 4] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];

    /// The name kernels print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A zone of a node.
///
/// ```
/// use firstlight_memory::node::{NodeId, NodeZone, ZoneKind};
/// let of = NodeZone { node: NodeId(1), zone: ZoneKind::Movable };
/// assert_eq!(of.to_string(), "node 1, zone Movable");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeZone {
    /// The node.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneKind,
}

impl fmt::Display for NodeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, zone {}", self.node, self.zone)
    }
}
