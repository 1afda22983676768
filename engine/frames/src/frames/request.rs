//! A request for memory: [`Request`].

use core::fmt;

use super::word::{IS_KEPT, Mobility};
use crate::addr::Order;
use crate::node::{NodeId, ZoneKind};

/// Zones that will do: `highest`, then those below it, unless it is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneChoice {
    highest: ZoneKind,
    only: bool,
}

impl ZoneChoice {
    /// `highest` and those below it.
    pub(crate) const fn up_to(highest: ZoneKind) -> Self {
        let only = false;
        Self { highest, only }
    }

    /// No other.
    pub(crate) const fn only(highest: ZoneKind) -> Self {
        let only = true;
        Self { highest, only }
    }

    /// Their indices in [`ZoneKind::ALL`], the highest first.
    #[inline]
    pub(crate) fn downwards(self) -> impl Iterator<Item = usize> {
        let highest = self.highest as usize;
        let lowest = if self.only { highest } else { 0 };
        (lowest..highest + 1).rev()
    }

    /// Each by itself, the highest first.
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        self.downwards().map(|zone| Self::only(ZoneKind::ALL[zone]))
    }

    /// Whether `zone` is one of them.
    pub(crate) fn contains(self, zone: ZoneKind) -> bool {
        zone == self.highest || zone < self.highest && !self.only
    }
}

impl fmt::Display for ZoneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = if self.only { "itself" } else { "or below" };
        write!(f, "zone {} {others}", self.highest)
    }
}

/// The nodes and zones of a request, as text: "on node 1 itself in zone Normal or below".
pub(super) struct Where<'a>(&'a Request);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(request) = self;
        match request.node() {
            Some(node) if request.is_this_node_only() => write!(f, "on {node} itself")?,
            Some(node) => write!(f, "on {node} or any other")?,
            None => write!(f, "on any node")?,
        }
        write!(f, " in {}", request.zones())
    }
}

/// A request for one block.
///
/// ```
/// use firstlight_frames::addr::Order;
/// use firstlight_frames::frames::Request;
/// use firstlight_frames::node::{NodeId, ZoneKind};
///
/// let request = Request::new(Order::HUGE).on(NodeId(1)).this_node_only().zone(ZoneKind::Dma32);
/// assert_eq!(request.node(), Some(NodeId(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    order: Order,
    node: Option<NodeId>,
    zones: ZoneChoice,
    this_node_only: bool,
    mobility: Mobility,
    keeps_caches: bool,
    from_reserve: bool,
    is_attempt: bool,
    zeroed: bool,
}

impl Request {
    /// A block of `order` from any node, nearest to the CPU that calls first, in zone Normal or
    /// below. Past a [`Cpu`](super::Cpu) it is node 0, if no [`Hooks`](super::Hooks) say otherwise.
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            node: None,
            zones: ZoneChoice::up_to(ZoneKind::Normal),
            this_node_only: false,
            mobility: Mobility::Unmovable,
            keeps_caches: false,
            from_reserve: false,
            is_attempt: false,
            zeroed: false,
        }
    }

    /// Prefer `node`, then the others by their distance from it.
    pub const fn on(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only the preferred node will do. Without one [`Frames`](super::Frames) takes any node,
    /// a [`Cpu`](super::Cpu) only the one its lists of this mobility are filled from.
    pub const fn this_node_only(mut self) -> Self {
        self.this_node_only = true;
        self
    }

    /// Highest zone that will do; those below it are the fallback.
    pub const fn zone(mut self, zone: ZoneKind) -> Self {
        self.zones = ZoneChoice::up_to(zone);
        self
    }

    /// The only zone that will do.
    ///
    /// ```
    /// use firstlight_frames::addr::Order;
    /// use firstlight_frames::frames::Request;
    /// use firstlight_frames::node::{NodeId, ZoneKind};
    ///
    /// // For a device that reaches 4 GiB, without a page of those that reach 16 MiB only.
    /// let request = Request::new(Order::PAGE).only_zone(ZoneKind::Dma32);
    /// assert!(request.is_only_zone());
    /// ```
    pub const fn only_zone(mut self, zone: ZoneKind) -> Self {
        self.zones = ZoneChoice::only(zone);
        self
    }

    /// The content can be moved; any zone will do, Movable first.
    /// [`Request::zone`] or [`Request::only_zone`] may follow, to allow fewer zones.
    pub const fn movable(mut self) -> Self {
        self.mobility = Mobility::of_content(true);
        self.zones = ZoneChoice::up_to(ZoneKind::Movable);
        self
    }

    /// Fail rather than drain CPUs' caches: for a large block that smaller ones can replace.
    pub const fn no_drain(mut self) -> Self {
        self.keeps_caches = true;
        self
    }

    /// It cannot wait, or frees memory soon: it may take what the water marks keep for such.
    pub const fn from_reserve(mut self) -> Self {
        self.from_reserve = true;
        self
    }

    /// The content is to be zeros: huge frames that are known to hold them come first; what does not is
    /// zeroed by [`Hooks::zero`](super::Hooks::zero). Other requests leave such memory alone as long as
    /// there is other memory near them.
    ///
    /// ```
    /// use firstlight_frames::addr::Order;
    /// use firstlight_frames::frames::{AllocError, Frames, Request};
    ///
    /// fn for_a_guest(frames: &Frames<'_>) -> Result<firstlight_frames::addr::Frame, AllocError> {
    ///     frames.allocate(Request::new(Order::GIANT).zeroed())
    /// }
    /// ```
    #[cfg(feature = "content")]
    pub const fn zeroed(mut self) -> Self {
        self.zeroed = true;
        self
    }

    /// This request, for any content.
    pub(crate) const fn of_any_content(mut self) -> Self {
        self.zeroed = false;
        self
    }

    /// Whether the content is to be zeros.
    pub const fn is_zeroed(&self) -> bool {
        IS_KEPT && self.zeroed
    }

    /// This request, which may not.
    pub(crate) const fn without_reserve(mut self) -> Self {
        self.from_reserve = false;
        self
    }

    /// This request, one of the engine's that another one follows: it drains nobody, and no
    /// hook learns that it found nothing.
    pub(crate) const fn attempt(mut self) -> Self {
        self.is_attempt = true;
        self.no_drain()
    }

    /// Whether another request follows.
    pub(crate) const fn is_attempt(&self) -> bool {
        self.is_attempt
    }

    /// Whether it may take what the water marks keep.
    pub const fn is_from_reserve(&self) -> bool {
        self.from_reserve
    }

    /// Whether caches may be drained for it.
    pub const fn may_drain(&self) -> bool {
        !self.keeps_caches
    }

    /// Whether the content can be moved.
    pub const fn mobility(&self) -> Mobility {
        self.mobility
    }

    /// This request, for a block of another size.
    pub(crate) const fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
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
    pub const fn is_this_node_only(&self) -> bool {
        self.this_node_only && self.node.is_some()
    }

    /// Highest zone that will do.
    pub const fn highest_zone(&self) -> ZoneKind {
        self.zones.highest
    }

    /// Whether only that zone will do.
    pub const fn is_only_zone(&self) -> bool {
        self.zones.only
    }

    /// The zones that will do.
    pub(crate) const fn zones(&self) -> ZoneChoice {
        self.zones
    }

    /// The nodes and zones that will do, as text.
    pub(super) const fn place(&self) -> Where<'_> {
        Where(self)
    }
}
