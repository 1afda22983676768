//! A machine's memory as a kernel sees it: nodes, zones, extents,
//! sections, holes, and what is described after the other CPUs run.
//!
//! A [`Layout`] is built once from [`EarlyMemory`] whose nodes a [`Topology`] has
//! set; the frame allocator is built from it. It costs time and storage by the number
//! of ranges, never by the addresses they span: 512 GB scattered over 32 TiB
//! are as cheap as 512 GB in a row.
//!
//! | file | what it decides |
//! |---|---|
//! | `policy` | the knobs, [`LayoutPolicy`] |
//! | `node` | [`Node`], [`NodeRange`], [`Zone`] |
//! | `kind` | [`Extent`], [`ExtentKind`], [`ZoneSegment`] |
//! | `zones` | which zone a frame lies in |
//! | `movable` | where Movable zones start |
//! | `deferral` | what is described early, [`Deferral`] |
//! | `extents` | what each frame is |
//! | `windows` | where memory may be plugged in later |
//! | `holes` | holes, and which of their frames have descriptors all the same |
//! | `section` | how large a section is |
//! | `sections` | runs of sections that hold memory |
//! | `tables` | early memory for tables |
//! | `build` | all of it, in order |
#![deny(unsafe_code)]

mod build;
mod deferral;
mod error;
mod extents;
mod holes;
mod kind;
mod movable;
mod node;
mod policy;
mod section;
mod sections;
mod tables;
mod windows;
mod zones;

pub use deferral::Deferral;
pub use error::{LayoutError, LayoutPart};
pub use extents::{Extents, Segments};
pub use holes::{Holes, Unavailable, UnavailableRanges};
pub use kind::{Extent, ExtentKind, ZoneSegment};
pub use movable::MovableOutcome;
pub use node::{Node, NodeRange, Zone};
pub use policy::{CoreSize, LayoutPolicy, MOVABLE_ALIGN_FRAMES};
pub use section::{SECTION_FRAMES, SECTION_SHIFT, SectionSize};
pub use sections::{SectionRun, SectionRuns};
pub use tables::NoSpace;
pub use windows::Windows;

use crate::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use crate::early::{EarlyError, EarlyMemory, EarlyRequest};
use crate::node::NodeId;
use crate::topology::Topology;
use node::{NO_RANGE, OwnRanges};
use zones::{Bounds, MovableRule};

/// The storage of [`Layout::build`].
///
/// Enough is: `nodes`, one per node of the topology; `ranges`, one per region of
/// early memory; `zones`, four per node with memory.
#[derive(Debug)]
pub struct LayoutStorage<'s> {
    /// One per node.
    pub nodes: &'s mut [Node],
    /// One per range of memory.
    pub ranges: &'s mut [NodeRange],
    /// One per zone with memory.
    pub zones: &'s mut [Zone],
}

/// The layout of a machine's memory.
///
/// ```
/// use firstlight_memory::addr::PhysRange;
/// use firstlight_memory::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
/// use firstlight_memory::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
/// use firstlight_memory::node::ZoneKind;
/// use firstlight_memory::topology::{NodeInfo, Topology};
///
/// let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 4]);
/// let mut owners = [Allocation::EMPTY; 4];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
/// early.add(PhysRange::new(0x1000, 0x9_f000).unwrap(), EarlyFlags::NONE).unwrap();
/// early.add(PhysRange::new(0x10_0000, 0x4000_0000).unwrap(), EarlyFlags::NONE).unwrap();
///
/// let mut info = [NodeInfo::EMPTY; 1];
/// let topology = Topology::single(&mut info, 1).unwrap();
/// let (mut nodes, mut ranges) = ([Node::EMPTY; 1], [NodeRange::EMPTY; 4]);
/// let mut zones = [Zone::EMPTY; 4];
/// let storage = LayoutStorage { nodes: &mut nodes, ranges: &mut ranges, zones: &mut zones };
/// let layout = Layout::build(early, topology, &LayoutPolicy::DEFAULT, storage)?;
///
/// let dma = layout.zones()[0];
/// assert_eq!((dma.kind, dma.span.start().get(), dma.span.count()), (ZoneKind::Dma, 1, 4095));
/// assert_eq!(dma.present_frames, 4095 - 97); // the hole below 1 MiB
/// assert_eq!(layout.segments().count(), 3); // two of DMA, one of DMA32
/// # Ok::<(), firstlight_memory::layout::LayoutError>(())
/// ```
#[derive(Debug)]
pub struct Layout<'s> {
    early: EarlyMemory<'s>,
    topology: Topology<'s>,
    nodes: &'s [Node],
    ranges: &'s [NodeRange],
    zones: &'s [Zone],
    bounds: Bounds,
    policy: LayoutPolicy,
    movable: MovableOutcome,
    zero: &'s [FrameRange],
    #[cfg(feature = "hotplug")]
    window_share: u64,
}

impl<'s> Layout<'s> {
    /// Tables of windows cost at most one in so many bytes of the memory present, unless
    /// `with_window_share` sets another share.
    const WINDOW_SHARE: u64 = 128;

    /// No memory and no nodes.
    pub fn none() -> Self {
        let policy = LayoutPolicy::DEFAULT;
        Self {
            early: EarlyMemory::new(&mut [], &mut [], &mut []),
            topology: Topology::none(),
            nodes: &[],
            ranges: &[],
            zones: &[],
            bounds: Bounds::new(&policy, FrameRange::EMPTY),
            policy,
            movable: MovableOutcome::NotRequested,
            zero: &[],
            #[cfg(feature = "hotplug")]
            window_share: Self::WINDOW_SHARE,
        }
    }

    /// With frames that hold zeros, ascending and disjoint: those of a virtual machine that neither
    /// firmware nor boot loader nor kernel ever wrote to. What of them is free when
    /// `Frames::build` makes it so is known to be zero, and is never
    /// zeroed. Early memory that was allocated and freed again must not be among them.
    ///
    /// ```
    /// use firstlight_memory::addr::FrameRange;
    /// use firstlight_memory::layout::Layout;
    ///
    /// /// Firmware keeps below 4 GiB.
    /// static UNTOUCHED: [FrameRange; 1] = [FrameRange::new(4 << 18, 1 << 40).unwrap()];
    ///
    /// fn of_a_virtual_machine<'s>(layout: Layout<'s>) -> Layout<'s> {
    ///     layout.with_zero_memory(&UNTOUCHED)
    /// }
    /// ```
    #[must_use]
    pub fn with_zero_memory(self, zero: &'s [FrameRange]) -> Self {
        Self { zero, ..self }
    }

    /// Frames that hold zeros, as far as they are free.
    #[inline]
    pub fn zero_memory(&self) -> &'s [FrameRange] {
        self.zero
    }

    /// With tables for memory that comes later of at most one in `share` bytes of the memory present
    /// now; 128 unless this is called, and no bound but the memory there is with 0.
    ///
    /// `Frames::build` reserves them for the windows that firmware
    /// announces, from the first one's beginning on, because firmware may announce petabytes: 34
    /// bytes a MiB for each zone of each node that may come to a window.
    ///
    /// ```
    /// use firstlight_memory::layout::Layout;
    ///
    /// /// A small machine that grows to many times its size.
    /// fn of_a_growing_machine<'s>(layout: Layout<'s>) -> Layout<'s> {
    ///     layout.with_window_share(16)
    /// }
    /// ```
    #[cfg(feature = "hotplug")]
    #[must_use]
    pub fn with_window_share(self, share: u64) -> Self {
        Self {
            window_share: share,
            ..self
        }
    }

    /// Bytes that the tables of windows may take.
    pub fn window_table_bytes(&self) -> u64 {
        #[cfg(feature = "hotplug")]
        let share = self.window_share;
        #[cfg(not(feature = "hotplug"))]
        let share = Self::WINDOW_SHARE;
        let present_bytes = self.present_frames() * PAGE_BYTES;
        present_bytes.checked_div(share).unwrap_or(u64::MAX)
    }

    /// All nodes, by number.
    #[inline]
    pub fn nodes(&self) -> &[Node] {
        self.nodes
    }

    /// Node `id`.
    #[inline]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(id.0))
    }

    /// All memory, ascending, each range with its node.
    #[inline]
    pub fn ranges(&self) -> &[NodeRange] {
        self.ranges
    }

    /// The memory of one node, ascending.
    #[inline]
    pub fn ranges_of(&self, node: NodeId) -> impl Iterator<Item = &NodeRange> + Clone + '_ {
        let first = self.node(node).map_or(NO_RANGE, |node| node.first_range);
        OwnRanges {
            ranges: self.ranges,
            next: first,
        }
    }

    /// Zones that hold memory: by node, then lowest zone first.
    #[inline]
    pub fn zones(&self) -> &[Zone] {
        self.zones
    }

    /// The zones of one node that hold memory, lowest first.
    #[inline]
    pub fn zones_of(&self, node: NodeId) -> &[Zone] {
        let from = self.zones.partition_point(|zone| zone.node < node);
        let to = self.zones.partition_point(|zone| zone.node <= node);
        self.zones.get(from..to).unwrap_or_default()
    }

    /// What the oldest reservation with a byte in `frame` is for, if the owner log has it.
    pub fn owner_of(&self, frame: Frame) -> Option<&'static str> {
        let bytes = FrameRange::block(frame, Order::PAGE)?.checked_addrs()?;
        self.early.owner_of(bytes)
    }

    /// Distance between two nodes in SLIT units: 10 is local, 20 the default for another node.
    #[inline]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.topology.distance(from, to)
    }

    /// The outcome of the request for movable memory.
    pub fn movable(&self) -> MovableOutcome {
        self.movable
    }

    /// Frames of memory on all nodes.
    pub fn present_frames(&self) -> u64 {
        self.nodes.iter().map(|node| node.present_frames).sum()
    }

    /// First frame past all memory.
    pub fn end(&self) -> Frame {
        self.ranges
            .last()
            .map_or(Frame::new(0), |range| range.frames.end())
    }

    /// What is reserved, and what is still free before the frame allocator exists.
    #[inline]
    pub fn early(&self) -> &EarlyMemory<'s> {
        &self.early
    }

    /// Takes early memory, as [`EarlyMemory::allocate`].
    ///
    /// From the layout on early memory is only taken, never given back: tables and
    /// descriptors are typed views of it, and a range freed below them would be
    /// viewed as two types. What a kernel no longer needs is reserved as
    /// [freeable](EarlyRequest::freeable), and freed through the frame allocator.
    ///
    /// ```compile_fail,E0596
    /// # use firstlight_memory::addr::PhysRange;
    /// # use firstlight_memory::layout::Layout;
    /// fn give_back(layout: &mut Layout<'_>, range: PhysRange) {
    ///     let _ = layout.early().free(range);
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`EarlyMemory::allocate`].
    pub fn allocate(&mut self, request: &EarlyRequest) -> Result<PhysRange, EarlyError> {
        self.early.allocate(request)
    }

    /// Reserves a range for ever, as [`EarlyMemory::reserve`].
    ///
    /// # Errors
    /// As [`EarlyMemory::reserve`].
    pub fn reserve(&mut self, range: PhysRange, owner: &'static str) -> Result<(), EarlyError> {
        self.early.reserve(range, owner)
    }

    /// Reserves a range for boot only, as [`EarlyMemory::reserve_freeable`].
    ///
    /// # Errors
    /// As [`EarlyMemory::reserve_freeable`].
    pub fn reserve_freeable(
        &mut self,
        range: PhysRange,
        owner: &'static str,
    ) -> Result<(), EarlyError> {
        self.early.reserve_freeable(range, owner)
    }

    /// Which proximity domain each node is.
    pub fn topology(&self) -> &Topology<'s> {
        &self.topology
    }

    fn rule_of(&self, node: NodeId) -> MovableRule {
        self.node(node).map_or(MovableRule::default(), |node| {
            node.movable_rule(&self.policy)
        })
    }
}
