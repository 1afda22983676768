//! What the memory of a machine looks like to a kernel: nodes, zones, extents,
//! sections, holes, and what may wait until the other CPUs run.
//!
//! A [`Layout`] is built once from [`EarlyMemory`]
//! whose nodes a [`Topology`] has set, and is what
//! the frame allocator is built from. It costs time and storage by the number
//! of ranges, never by the addresses they span: 512 GB scattered over 32 TiB
//! are as cheap as 512 GB in a row.
//!
//! | file | what it decides |
//! |---|---|
//! | `policy` | the knobs, [`LayoutPolicy`] |
//! | `zones` | which zone a frame lies in |
//! | `movable` | where Movable zones start |
//! | `deferral` | what is described early, [`Deferral`] |
//! | `extents` | what each frame is: [`Extent`], [`ExtentKind`], [`ZoneSegment`] |
//! | `windows` | where memory may be plugged in later |
//! | `holes` | holes, and which of their frames have descriptors all the same |
//! | `sections` | runs of 128 MiB sections that hold memory |
//! | `room` | where tables go |
#![deny(unsafe_code)]

mod build;
mod deferral;
mod error;
mod extents;
mod holes;
mod movable;
mod policy;
mod room;
mod sections;
mod windows;
mod zones;

pub use deferral::Deferral;
pub use error::{LayoutError, LayoutPart};
pub use extents::{Extent, ExtentKind, Extents, Segments, ZoneSegment};
pub use holes::{Holes, Unavailable, UnavailableRanges};
pub use movable::MovableOutcome;
pub use policy::{CoreSize, LayoutPolicy, MOVABLE_ALIGN_FRAMES, SECTION_FRAMES, SECTION_SHIFT};
pub(crate) use room::NoRoom;
pub use sections::{SectionRun, SectionRuns};
pub use windows::Windows;

use crate::addr::{Frame, FrameRange, Order, PhysRange};
use crate::early::{EarlyError, EarlyMemory, EarlyRequest};
use crate::node::{NodeId, ZoneKind};
use crate::topology::Topology;
use zones::{Bounds, MovableRule};

/// A node, with or without memory, with or without CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number; also its position in [`Layout::nodes`].
    pub id: NodeId,
    /// Firmware's proximity domain; the node's own number where firmware named none.
    pub domain: u32,
    /// CPUs firmware puts there.
    pub cpus: u32,
    /// From its first frame to its last, holes and other nodes' frames included; empty without memory.
    pub span: FrameRange,
    /// Frames of memory.
    pub present_frames: u64,
    /// First frame of its Movable zone.
    pub movable_start: Option<Frame>,
    /// Present frames described before the deferred workers run.
    pub eager_frames: u64,
    /// First frame left to the deferred workers; `None` when nothing is.
    pub first_deferred: Option<Frame>,
    /// Head of the chain of this node's ranges; [`NO_RANGE`] without memory.
    first_range: u32,
}

/// End of the chain of a node's ranges.
const NO_RANGE: u32 = u32::MAX;

impl Node {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        id: NodeId(0),
        domain: 0,
        cpus: 0,
        span: FrameRange::EMPTY,
        present_frames: 0,
        movable_start: None,
        eager_frames: 0,
        first_deferred: None,
        first_range: NO_RANGE,
    };

    /// Frames of the span that are not this node's memory.
    pub const fn absent_frames(&self) -> u64 {
        self.span.count() - self.present_frames
    }

    /// Whether the node has memory.
    pub const fn has_memory(&self) -> bool {
        self.present_frames > 0
    }

    fn own_ranges<'a>(&self, ranges: &'a [NodeRange]) -> OwnRanges<'a> {
        OwnRanges {
            ranges,
            next: self.first_range,
        }
    }

    fn movable_rule(&self, policy: &LayoutPolicy) -> MovableRule {
        MovableRule {
            start: self.movable_start,
            spare_mirrored: policy.kernelcore_mirror && !policy.movable_node,
        }
    }
}

/// Memory of one node; ranges that touch stay apart where a flag differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRange {
    /// The node.
    pub node: NodeId,
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Kept twice by the hardware.
    pub mirror: bool,
    /// May be unplugged.
    pub hotplug: bool,
    /// What its frames are while they are not reserved.
    pub kind: ExtentKind,
    /// The node's next range.
    next: u32,
}

impl NodeRange {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        node: NodeId(0),
        frames: FrameRange::EMPTY,
        mirror: false,
        hotplug: false,
        kind: ExtentKind::Usable,
        next: NO_RANGE,
    };
}

/// The ranges of one node, ascending: follows their chain.
#[derive(Clone, Debug)]
struct OwnRanges<'a> {
    ranges: &'a [NodeRange],
    next: u32,
}

impl<'a> Iterator for OwnRanges<'a> {
    type Item = &'a NodeRange;

    fn next(&mut self) -> Option<&'a NodeRange> {
        let range = self.ranges.get(usize::try_from(self.next).ok()?)?;
        self.next = range.next;
        Some(range)
    }
}

/// A zone of a node that holds memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// The node.
    pub node: NodeId,
    /// Which zone.
    pub kind: ZoneKind,
    /// What it spans, holes included: between two address limits, cut by the node's ends.
    pub span: FrameRange,
    /// Frames of memory; never 0.
    pub present_frames: u64,
}

impl Zone {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        node: NodeId(0),
        kind: ZoneKind::Normal,
        span: FrameRange::EMPTY,
        present_frames: 0,
    };

    /// Frames of the span that are not this zone's memory.
    pub const fn absent_frames(&self) -> u64 {
        self.span.count() - self.present_frames
    }
}

/// What a caller lends to [`Layout::build`].
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
/// use firstlight::addr::PhysRange;
/// use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
/// use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
/// use firstlight::node::ZoneKind;
/// use firstlight::topology::{NodeInfo, Topology};
///
/// let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 4]);
/// let mut trail = [Allocation::EMPTY; 4];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut trail);
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
/// # Ok::<(), firstlight::layout::LayoutError>(())
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
}

impl<'s> Layout<'s> {
    /// Lays out `early` memory, whose nodes `topology` has set.
    ///
    /// On a machine of one node, memory without a node is that node's.
    ///
    /// # Errors
    /// [`LayoutError`]: storage that is too small, with the number needed;
    /// memory of no node or of a node the topology does not have; no memory at all.
    pub fn build(
        early: EarlyMemory<'s>,
        topology: Topology<'s>,
        policy: &LayoutPolicy,
        storage: LayoutStorage<'s>,
    ) -> Result<Self, LayoutError> {
        build::build(early, topology, policy, storage)
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        self.nodes
    }

    /// Node `id`.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(id.0))
    }

    /// All memory, ascending, each range with its node.
    pub fn ranges(&self) -> &[NodeRange] {
        self.ranges
    }

    /// The memory of one node, ascending.
    pub fn ranges_of(&self, node: NodeId) -> impl Iterator<Item = &NodeRange> + Clone + '_ {
        let first = self.node(node).map_or(NO_RANGE, |node| node.first_range);
        OwnRanges {
            ranges: self.ranges,
            next: first,
        }
    }

    /// Zones that hold memory: by node, then lowest zone first.
    pub fn zones(&self) -> &[Zone] {
        self.zones
    }

    /// The zones of one node that hold memory, lowest first.
    pub fn zones_of(&self, node: NodeId) -> &[Zone] {
        let from = self.zones.partition_point(|zone| zone.node < node);
        let to = self.zones.partition_point(|zone| zone.node <= node);
        self.zones.get(from..to).unwrap_or_default()
    }

    /// What all memory is, ascending: frames in a row of one node, zone and kind.
    pub fn extents(&self) -> Extents<'_> {
        Extents::new(self)
    }

    /// All memory, ascending: frames in a row of one node and zone.
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(self)
    }

    /// Hot-pluggable ranges firmware announces, without the memory already there:
    /// ascending extents of kind [`ExtentKind::Absent`].
    pub fn windows(&self) -> Windows<'_> {
        Windows::new(self)
    }

    /// What the oldest reservation with a byte in `frame` is for, if the owner log knows it.
    pub fn owner_of(&self, frame: Frame) -> Option<&'static str> {
        let bytes = FrameRange::block(frame, Order::PAGE)?.checked_bytes()?;
        self.early.owner_of(bytes)
    }

    /// Distance between two nodes in SLIT units: 10 is local, 20 what is assumed of another node.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.topology.distance(from, to)
    }

    /// Frames between the ranges of memory, and below the first.
    pub fn holes(&self) -> Holes<'_> {
        Holes::new(self)
    }

    /// Frames without memory that share a section with memory, hole by hole, as
    /// kernels print them: `On node 0, zone DMA: 97 pages in unavailable ranges`.
    pub fn unavailable(&self) -> UnavailableRanges<'_> {
        UnavailableRanges::new(self)
    }

    /// Runs of sections that hold memory, ascending.
    pub fn sections(&self) -> SectionRuns<'_> {
        SectionRuns::new(self)
    }

    /// What each node with memory describes early and what it defers, by node.
    pub fn deferrals(&self) -> impl Iterator<Item = Deferral> + Clone + '_ {
        self.nodes
            .iter()
            .filter(|node| node.has_memory())
            .map(|node| Deferral {
                node: node.id,
                eager_frames: node.eager_frames,
                first_deferred: node.first_deferred,
                deferred_frames: node.present_frames - node.eager_frames,
                cpus: node.cpus,
            })
    }

    /// What became of the wish for movable memory.
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
    /// # use firstlight::addr::PhysRange;
    /// # use firstlight::layout::Layout;
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

    /// Which node firmware calls what.
    pub fn topology(&self) -> &Topology<'s> {
        &self.topology
    }

    fn rule_of(&self, node: NodeId) -> MovableRule {
        self.node(node).map_or(MovableRule::default(), |node| {
            node.movable_rule(&self.policy)
        })
    }
}
