//! A request for early memory: [`EarlyRequest`].
#![deny(unsafe_code)]

use crate::addr::PhysAddr;
use crate::node::NodeId;

/// From which end of memory early allocations are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Highest fitting address first: low memory stays free for devices.
    #[default]
    TopDown,
    /// Lowest fitting address first: stays near the kernel until it is known
    /// which memory can be unplugged.
    BottomUp,
}

/// A request for early memory.
///
/// ```
/// use firstlight_memory::early::EarlyRequest;
/// use firstlight_memory::node::NodeId;
/// let request = EarlyRequest::new(0x4000, 64, "node data").on(NodeId(1));
/// assert_eq!(request.node, Some(NodeId(1)));
/// assert!(!request.exact_node);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlyRequest {
    /// How many bytes; not rounded.
    pub bytes: u64,
    /// Alignment of the first byte, in bytes, a power of two.
    pub align: u64,
    /// Lowest address allowed.
    pub min: PhysAddr,
    /// Address the allocation must end at or below; `None`: the current limit.
    pub max: Option<PhysAddr>,
    /// Preferred node; `None`: any.
    pub node: Option<NodeId>,
    /// Fail rather than take memory of another node.
    pub exact_node: bool,
    /// Take memory below `min` rather than fail.
    pub soft_min: bool,
    /// Only the address is needed, the memory is not touched yet: a given `max` may
    /// lie above the current limit.
    pub ignore_limit: bool,
    /// For boot only, see [`EarlyFlags::FREEABLE`](super::EarlyFlags::FREEABLE).
    pub freeable: bool,
    /// What the memory is for; kept in the owner log.
    pub owner: &'static str,
}

impl EarlyRequest {
    /// `bytes` bytes on any node, anywhere below the current limit.
    pub const fn new(bytes: u64, align: u64, owner: &'static str) -> Self {
        Self {
            bytes,
            align,
            min: PhysAddr::ZERO,
            max: None,
            node: None,
            exact_node: false,
            soft_min: false,
            ignore_limit: false,
            freeable: false,
            owner,
        }
    }

    /// Preferably on `node`.
    #[must_use]
    pub const fn on(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// On `node` or not at all.
    #[must_use]
    pub const fn only_on(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self.exact_node = true;
        self
    }

    /// For boot only: the frame allocator accepts it back later.
    #[must_use]
    pub const fn freeable(mut self) -> Self {
        self.freeable = true;
        self
    }

    /// Between `min` and `max` (exclusive).
    #[must_use]
    pub const fn within(mut self, min: PhysAddr, max: PhysAddr) -> Self {
        self.min = min;
        self.max = Some(max);
        self
    }
}
