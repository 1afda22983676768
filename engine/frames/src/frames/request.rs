//! A request for memory: [`Request`].

use core::fmt;

use super::word::{IS_KEPT, Mobility};
use crate::addr::Order;
use crate::node::{NodeId, NodeMask, ZoneKind};

/// What a request says by yes or no.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags(u8);

impl Flags {
    /// It names a node.
    const ON: Self = Self(1);
    /// That is the only one that will do.
    const ONLY_ON: Self = Self(1 << 1);
    const KEEPS_CACHES: Self = Self(1 << 2);
    const FROM_RESERVE: Self = Self(1 << 3);
    const ATTEMPT: Self = Self(1 << 4);
    const ZEROED: Self = Self(1 << 5);
    /// There is a mask.
    const AMONG: Self = Self(1 << 6);
    /// It names nodes in some way.
    const NAMES_NODES: Self = Self(Self::ON.0 | Self::AMONG.0);

    const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }

    const fn with(self, one: Self) -> Self {
        Self(self.0 | one.0)
    }

    const fn without(self, one: Self) -> Self {
        Self(self.0 & !one.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (Self::ON, "on"),
            (Self::ONLY_ON, "only on"),
            (Self::KEEPS_CACHES, "keeps caches"),
            (Self::FROM_RESERVE, "from reserve"),
            (Self::ATTEMPT, "attempt"),
            (Self::ZEROED, "zeroed"),
            (Self::AMONG, "among"),
        ];
        let set = all.iter().filter(|(one, _)| self.has(*one));
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

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
        match (request.node(), request.nodes) {
            (Some(node), Some(nodes)) => write!(f, "on any of {nodes}, nearest to {node}")?,
            (None, Some(nodes)) => write!(f, "on any of {nodes}")?,
            (Some(node), None) if request.is_only_node() => write!(f, "on {node} itself")?,
            (Some(node), None) => write!(f, "on {node} or any other")?,
            (None, None) => write!(f, "on any node")?,
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
/// let request = Request::new(Order::HUGE).only_on(NodeId(1)).zone(ZoneKind::Dma32);
/// assert_eq!(request.node(), Some(NodeId(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    nodes: Option<NodeMask>,
    /// 0 if it names none.
    node: NodeId,
    order: Order,
    zones: ZoneChoice,
    mobility: Mobility,
    flags: Flags,
}

// Copied by each call that it goes through.
const _: () = assert!(size_of::<Request>() <= 16);

impl Request {
    /// A block of `order` from any node, nearest to the CPU that calls first, in zone Normal or
    /// below. Past a [`Cpu`](super::Cpu) it is node 0, if no [`Hooks`](super::Hooks) say otherwise.
    pub const fn new(order: Order) -> Self {
        Self {
            nodes: None,
            node: NodeId(0),
            order,
            zones: ZoneChoice::up_to(ZoneKind::Normal),
            mobility: Mobility::Unmovable,
            flags: Flags(0),
        }
    }

    /// Prefer `node`, then the others by their distance from it. Takes [`only_on`](Request::only_on) back.
    pub const fn on(mut self, node: NodeId) -> Self {
        self.node = node;
        self.flags = self.flags.with(Flags::ON).without(Flags::ONLY_ON);
        self
    }

    /// Only `node` will do. Takes [`on`](Request::on) and [`among`](Request::among) back.
    pub const fn only_on(mut self, node: NodeId) -> Self {
        self.node = node;
        self.nodes = None;
        self.flags = self
            .flags
            .with(Flags::ON)
            .with(Flags::ONLY_ON)
            .without(Flags::AMONG);
        self
    }

    /// Only these nodes will do, by their distance from the preferred one, else from the CPU that calls. Takes another
    /// mask back; a node that was the only one is preferred.
    ///
    /// ```
    /// use firstlight_frames::addr::{Frame, Order};
    /// use firstlight_frames::frames::{AllocError, Frames, Request};
    /// use firstlight_frames::node::NodeMask;
    ///
    /// /// For a group of tasks that has some nodes.
    /// fn for_a_group(frames: &Frames<'_>, group: NodeMask) -> Result<Frame, AllocError> {
    ///     frames.allocate(Request::new(Order::PAGE).among(group))
    /// }
    /// ```
    pub const fn among(mut self, nodes: NodeMask) -> Self {
        self.nodes = Some(nodes);
        self.flags = self.flags.with(Flags::AMONG).without(Flags::ONLY_ON);
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
        self.flags = self.flags.with(Flags::KEEPS_CACHES);
        self
    }

    /// It cannot wait, or frees memory soon: it may take what the water marks keep for such.
    pub const fn from_reserve(mut self) -> Self {
        self.flags = self.flags.with(Flags::FROM_RESERVE);
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
        self.flags = self.flags.with(Flags::ZEROED);
        self
    }

    /// This request, for any content.
    pub(crate) const fn of_any_content(mut self) -> Self {
        self.flags = self.flags.without(Flags::ZEROED);
        self
    }

    /// Whether the content is to be zeros.
    pub const fn is_zeroed(&self) -> bool {
        IS_KEPT && self.flags.has(Flags::ZEROED)
    }

    /// This request, which may not.
    pub(crate) const fn without_reserve(mut self) -> Self {
        self.flags = self.flags.without(Flags::FROM_RESERVE);
        self
    }

    /// This request, one of the engine's that another one follows: it drains nobody, and no
    /// hook learns that it found nothing.
    pub(crate) const fn attempt(mut self) -> Self {
        self.flags = self.flags.with(Flags::ATTEMPT);
        self.no_drain()
    }

    /// Whether another request follows.
    pub(crate) const fn is_attempt(&self) -> bool {
        self.flags.has(Flags::ATTEMPT)
    }

    /// Whether it may take what the water marks keep.
    pub const fn is_from_reserve(&self) -> bool {
        self.flags.has(Flags::FROM_RESERVE)
    }

    /// Whether caches may be drained for it.
    pub const fn may_drain(&self) -> bool {
        !self.flags.has(Flags::KEEPS_CACHES)
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
        if self.flags.has(Flags::ON) {
            Some(self.node)
        } else {
            None
        }
    }

    /// Whether only the preferred node will do.
    pub const fn is_only_node(&self) -> bool {
        self.flags.has(Flags::ONLY_ON)
    }

    /// Whether it has a mask.
    #[inline]
    pub(crate) const fn is_among_some(&self) -> bool {
        self.flags.has(Flags::AMONG)
    }

    /// Whether it says anything of nodes.
    #[inline]
    pub(crate) const fn names_nodes(&self) -> bool {
        self.flags.has(Flags::NAMES_NODES)
    }

    /// The nodes that it is among.
    pub const fn nodes(&self) -> Option<NodeMask> {
        self.nodes
    }

    /// Whether `node` will do.
    #[inline]
    pub fn allows(&self, node: NodeId) -> bool {
        match self.nodes {
            Some(nodes) => nodes.contains(node),
            None => !self.is_only_node() || self.node == node,
        }
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
