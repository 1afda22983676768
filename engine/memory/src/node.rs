//! Names of the places memory lies in: [`NodeId`] and [`NodeMask`], [`ZoneKind`], and
//! [`NodeZone`].

use core::fmt;
use core::num::NonZeroU64;

/// A NUMA node, numbered densely from 0 in the order firmware names them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Some of the first 64 nodes, one at least.
///
/// ```
/// use firstlight_memory::node::{NodeId, NodeMask};
///
/// let near_the_device = NodeMask::of_bits(0b101).unwrap();
/// assert!(near_the_device.contains(NodeId(2)));
/// assert!(!near_the_device.contains(NodeId(1)));
/// assert_eq!(near_the_device.to_string(), "nodes 0, 2");
/// assert_eq!(NodeMask::of_bits(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeMask(NonZeroU64);

impl NodeMask {
    /// Bit `n` is node `n`; `None` if there is none.
    pub const fn of_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Bit `n` is node `n`.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// Whether `node` is one of them.
    pub const fn contains(self, node: NodeId) -> bool {
        node.0 < 64 && self.bits() >> node.0 & 1 != 0
    }

    /// The one with the lowest number.
    #[expect(clippy::cast_possible_truncation, reason = "below 64")]
    pub const fn first(self) -> NodeId {
        NodeId(self.0.trailing_zeros() as u16)
    }
}

impl fmt::Display for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nodes {}", self.first().0)?;
        let mut others = (self.first().0 + 1..64).filter(|node| self.contains(NodeId(*node)));
        others.try_for_each(|node| write!(f, ", {node}"))
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
