//! What a caller asks the allocator for: [`Request`].

use core::fmt;

use crate::addr::Order;
use crate::node::{NodeId, ZoneKind};

/// Whether the content of a block can be moved elsewhere.
///
/// One unmovable page keeps its huge frame from ever being whole again. So the
/// allocator keeps the two apart: they share a huge frame only when there is no
/// other choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mobility {
    /// It stays where it is until it is freed: what a kernel points at.
    #[default]
    Unmovable = 0,
    /// It can be copied to another place: what only page tables point at.
    Movable = 1,
}

impl Mobility {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Unmovable, Self::Movable];

    /// The other one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Unmovable => Self::Movable,
            Self::Movable => Self::Unmovable,
        }
    }
}

/// Zones that will do: `highest`, then those below it, unless it is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    highest: ZoneKind,
    only: bool,
}

impl Zones {
    /// `highest` and those below it.
    pub(crate) const fn up_to(highest: ZoneKind) -> Self {
        let only = false;
        Self { highest, only }
    }

    /// Whether `zone` is one of them.
    pub(crate) fn contain(self, zone: ZoneKind) -> bool {
        zone == self.highest || zone < self.highest && !self.only
    }
}

impl fmt::Display for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = if self.only { "itself" } else { "or below" };
        write!(f, "zone {} {others}", self.highest)
    }
}

/// Where a request looks, in words: "on node 1 itself in zone Normal or below".
pub(super) struct Where<'a>(&'a Request);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(request) = self;
        match request.node() {
            Some(node) if request.is_exact() => write!(f, "on {node} itself")?,
            Some(node) => write!(f, "on {node} or any other")?,
            None => write!(f, "on any node")?,
        }
        write!(f, " in {}", request.zones())
    }
}

/// A request for one block.
///
/// ```
/// use firstlight::addr::Order;
/// use firstlight::frames::Request;
/// use firstlight::node::{NodeId, ZoneKind};
///
/// let request = Request::new(Order::HUGE).on(NodeId(1)).exactly().zone(ZoneKind::Dma32);
/// assert_eq!(request.node(), Some(NodeId(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    order: Order,
    node: Option<NodeId>,
    zones: Zones,
    exact: bool,
    mobility: Mobility,
    keeps_magazines: bool,
}

impl Request {
    /// A block of `order` from any node, nearest to node 0 first, in zone Normal or below.
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            node: None,
            zones: Zones::up_to(ZoneKind::Normal),
            exact: false,
            mobility: Mobility::Unmovable,
            keeps_magazines: false,
        }
    }

    /// Prefer `node`, then the others by their distance from it.
    pub const fn on(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only the preferred node will do. Without one [`Frames`](super::Frames) takes any node,
    /// a [`Cpu`](super::Cpu) only the one its magazines of this mobility are filled from.
    pub const fn exactly(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Highest zone that will do; those below it are the fallback.
    pub const fn zone(mut self, zone: ZoneKind) -> Self {
        self.zones = Zones::up_to(zone);
        self
    }

    /// The only zone that will do.
    ///
    /// ```
    /// use firstlight::addr::Order;
    /// use firstlight::frames::Request;
    /// use firstlight::node::{NodeId, ZoneKind};
    ///
    /// // For a device that reaches 4 GiB, without a page of those that reach 16 MiB only.
    /// let request = Request::new(Order::PAGE).only_zone(ZoneKind::Dma32);
    /// assert!(request.is_exact_zone());
    /// ```
    pub const fn only_zone(mut self, zone: ZoneKind) -> Self {
        self.zones = Zones {
            highest: zone,
            only: true,
        };
        self
    }

    /// What is kept there can be moved; any zone will do, Movable first.
    /// [`Request::zone`] or [`Request::only_zone`] may follow, to allow fewer zones.
    pub const fn movable(mut self) -> Self {
        self.mobility = Mobility::Movable;
        self.zones = Zones::up_to(ZoneKind::Movable);
        self
    }

    /// Rather fail than have CPUs give back what their magazines hold: for a large block
    /// that would be nice to have, and that smaller ones can stand in for.
    pub const fn without_draining(mut self) -> Self {
        self.keeps_magazines = true;
        self
    }

    /// Whether magazines may be drained for it.
    pub const fn may_drain(&self) -> bool {
        !self.keeps_magazines
    }

    /// Whether what is kept there can be moved.
    pub const fn mobility(&self) -> Mobility {
        self.mobility
    }

    /// Size of the block.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The preferred node.
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Whether only the preferred node will do.
    pub const fn is_exact(&self) -> bool {
        self.exact && self.node.is_some()
    }

    /// Highest zone that will do.
    pub const fn highest_zone(&self) -> ZoneKind {
        self.zones.highest
    }

    /// Whether only that zone will do.
    pub const fn is_exact_zone(&self) -> bool {
        self.zones.only
    }

    /// The zones that will do.
    pub(crate) const fn zones(&self) -> Zones {
        self.zones
    }

    /// The nodes and zones that will do, in words.
    pub(super) const fn place(&self) -> Where<'_> {
        Where(self)
    }
}
