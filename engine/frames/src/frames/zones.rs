//! What each zone of each node has: [`ZoneView`], from [`Frames::zone`] and [`Frames::zones`].
//!
//! *Counted when it is asked for*: from segments, words and the lists of what is not there.

use core::fmt;

use super::find::Frames;
use super::segment::statistics::{FreeBlocks, Statistics};
use super::zone::Nodes;
use super::zone::segment::ZoneSegment;
use super::zone::span::ZoneSpan;
#[cfg(feature = "content")]
use super::zone::zeroed::ZeroedFrames;
use crate::node::{NodeId, ZoneKind};

/// A zone of a node. Printed, it is a row of Linux's `/proc/buddyinfo`: its free blocks in 19
/// columns, for orders 0 to 18, so that programs that read Linux's rows read these.
///
/// ```
/// # use firstlight_frames::frames::Frames;
/// /// As kernels print it at boot, and when memory was added or removed.
/// fn print_zones(frames: &Frames<'_>) {
///     for zone in frames.zones() {
///         let span = zone.span();
///         println!(
///             "{} {}: spanned {} present {} managed {} contiguous {}",
///             zone.node(),
///             zone.kind(),
///             span.spanned.count(),
///             span.present_frames,
///             span.managed_frames,
///             span.is_contiguous(),
///         );
///         println!("{zone}"); // Node 0, zone   Normal      2      0      1 ...
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ZoneView<'f, 'm> {
    frames: &'f Frames<'m>,
    node: NodeId,
    kind: ZoneKind,
}

impl<'m> Frames<'m> {
    /// A zone of a node; all it counts is zero where there is none.
    pub fn zone(&self, node: NodeId, kind: ZoneKind) -> ZoneView<'_, 'm> {
        ZoneView {
            frames: self,
            node,
            kind,
        }
    }

    /// The zones that have memory, by node and in the order of [`ZoneKind::ALL`].
    pub fn zones(&self) -> impl Iterator<Item = ZoneView<'_, 'm>> {
        // Nodes are numbered by 16 bits.
        let nodes = (0..=u16::MAX).take(self.nodes.segments.nodes());
        let all = nodes.flat_map(|node| ZoneKind::ALL.map(|kind| self.zone(NodeId(node), kind)));
        all.filter(|zone| zone.segments().next().is_some())
    }
}

impl<'f, 'm> ZoneView<'f, 'm> {
    /// Its node.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Which of the node's zones it is.
    pub const fn kind(&self) -> ZoneKind {
        self.kind
    }

    fn segments(&self) -> impl Iterator<Item = &'f ZoneSegment<'m>> + use<'f, 'm> {
        self.frames.nodes.segments.of_zone(self.node, self.kind)
    }

    /// Its memory. To which zone the frames belong that CPUs cache is not known: they count as
    /// allocated.
    pub fn statistics(&self) -> Statistics {
        Nodes::sum(self.segments())
    }

    /// What it spans, and how much of it there is. Costs the ranges of the zone, whatever their
    /// size, and a step for each huge frame that is offline at an end of the memory it had from the
    /// start; exact while no call adds, removes, or takes memory offline.
    pub fn span(&self) -> ZoneSpan {
        ZoneSpan::of(self.segments())
    }

    /// Its free blocks by order; blocks that CPUs cache are none. Exact whenever no call is in
    /// flight. For diagnosis: it reads every word of the zone, and starts its segments.
    ///
    /// ```
    /// # use firstlight_frames::addr::Order;
    /// # use firstlight_frames::frames::ZoneView;
    /// /// How many huge frames could be allocated, larger blocks broken up.
    /// fn huge_frames(zone: &ZoneView<'_, '_>) -> u64 {
    ///     let blocks = zone.free_blocks();
    ///     let large = blocks.iter().enumerate().skip(Order::HUGE.get().into());
    ///     large.map(|(order, count)| count << (order - 9)).sum()
    /// }
    /// ```
    pub fn free_blocks(&self) -> FreeBlocks {
        let mut counts = FreeBlocks::default();
        for online in self.segments().filter_map(ZoneSegment::online) {
            online.count_blocks(&mut counts);
        }
        counts
    }

    /// What requests for zeros got from it, and what was made zero there.
    #[cfg(feature = "content")]
    pub fn zeroed_frames(&self) -> ZeroedFrames {
        Nodes::zeroed(self.segments())
    }
}

impl fmt::Display for ZoneView<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, kind) = (self.node.0, self.kind);
        write!(f, "Node {node}, zone {kind:>8} ")?;
        let mut all = self.free_blocks().into_iter();
        all.try_for_each(|count| write!(f, "{count:>6} "))
    }
}
