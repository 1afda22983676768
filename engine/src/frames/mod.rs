//! The frame allocator: [`Frames`].
//!
//! Three levels, as in the page table: giant frames of 1 GiB, huge frames of
//! 2 MiB, pages of 4 KiB. One rule makes it start in microseconds: *a level is
//! written when its parent is first split*, and a segment's first level when
//! the segment is first asked. Below that:
//!
//! | file | what it is |
//! |---|---|
//! | `geometry` | sizes of the levels, blocks |
//! | `word` | the 64 bits of a giant and the 32 bits of a huge frame |
//! | `row` | the bitmap of a huge frame |
//! | `table` | tables in memory nobody has written (the unsafe part) |
//! | `segment` | one run of frames with its tables, and the lock-free protocol |
//! | `split`, `promise`, `bound` | opening a level; counts and who may rely on them; where it is no use to look |
//! | `allocate`, `claim`, `free`, `bulk` | what is done with a segment |
//! | `isolate` | a range of which nothing can be taken |
//! | `water_marks` | events when a zone's free memory crosses a mark |
//! | `cpu`, `stock`, `magazine`, `slot` | one CPU's own frames in front of all that |
//! | `start` | first writing of a segment's tables |
//! | `place` | a segment with its node and zone, started when first asked |
//! | `look`, `range`, `contiguous` | given ranges, and any number of frames in a row |
//! | `owned` | a block that gives itself back |
//! | `directory`, `fallback` | nodes, zones and the order they are asked in |
//! | `build` | metadata sizes, and from a [`Layout`] to [`Frames`] |
//!
//! All operations may be called from any CPU at any time. An operation may
//! wait for another CPU that is in the middle of splitting exactly the frame
//! it must look into, so an interrupt handler must not call in here while it
//! may have interrupted a call on its own CPU.

mod allocate;
mod bound;
mod build;
mod bulk;
mod claim;
mod contiguous;
mod cpu;
mod directory;
mod error;
mod fallback;
mod free;
mod geometry;
mod isolate;
mod look;
mod magazine;
mod owned;
mod place;
mod promise;
mod range;
mod range_error;
mod request;
mod row;
mod segment;
mod slot;
mod split;
mod start;
mod statistics;
mod stock;
pub(crate) mod table;
mod validate;
mod water_marks;
mod word;

#[cfg(test)]
#[cfg(not(loom))]
mod frame_set;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod model_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod promise_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod range_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod range_thread_tests;
#[cfg(test)]
mod testkit;

pub use build::Metadata;
pub use cpu::Cpu;
pub use error::{AllocError, BlockError, BuildError, CpuError};
pub use isolate::{IsolateError, Isolation};
pub use owned::{GiveBack, Owned};
pub use range_error::{ContiguousError, RangeError};
pub use request::{Mobility, Request};
use slot::Cpus;
pub use slot::{AskCpus, Asked, CpuSlot, NobodyAsked};
pub use statistics::Statistics;
pub use stock::Magazines;
pub use validate::Violation;
pub use water_marks::{Crossing, WatchMarks, WaterMark, WaterMarks, ZoneMarks};

use crate::addr::{Frame, Order};
use crate::layout::Layout;
use crate::node::{NodeId, ZoneKind};
use allocate::Want;
use directory::Directory;
use geometry::Block;
use place::Place;
use request::Zones;
use segment::Segment;
use water_marks::Marks;

/// All frames of a machine, to allocate and free from any CPU.
///
/// ```
/// use std::alloc::{alloc, Layout as Bytes};
/// use std::ptr::NonNull;
///
/// use firstlight::addr::{Order, PhysRange};
/// use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
/// use firstlight::frames::{Frames, Request};
/// use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
/// use firstlight::platform::Platform;
/// use firstlight::topology::{NodeInfo, Topology};
///
/// /// Tables go to the heap; a kernel would add the offset of its direct map.
/// struct Hosted;
/// // SAFETY: memory of its own for every range, never freed.
/// unsafe impl Platform for Hosted {
///     fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
///         let bytes = Bytes::from_size_align(range.bytes() as usize, 4096).ok()?;
///         NonNull::new(unsafe { alloc(bytes) }) // its content does not matter
///     }
/// }
///
/// // One node with 1 GiB of memory from 4 GiB on.
/// let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 8]);
/// let mut trail = [Allocation::EMPTY; 8];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut trail);
/// early.add(PhysRange::with_size(4 << 30, 1 << 30).unwrap(), EarlyFlags::NONE)?;
/// let (mut info, mut nodes) = ([NodeInfo::EMPTY; 1], [Node::EMPTY; 1]);
/// let (mut ranges, mut zones) = ([NodeRange::EMPTY; 4], [Zone::EMPTY; 4]);
/// let storage = LayoutStorage { nodes: &mut nodes, ranges: &mut ranges, zones: &mut zones };
/// let topology = Topology::single(&mut info, 1)?;
/// let layout = Layout::build(early, topology, &LayoutPolicy::DEFAULT, storage)?;
///
/// let frames = Frames::build(layout, &Hosted)?;
/// let huge = frames.allocate(Request::new(Order::HUGE))?;
/// frames.free(huge, Order::HUGE)?;
/// assert!(frames.free(huge, Order::HUGE).is_err()); // freed twice
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Frames<'m> {
    layout: Layout<'m>,
    directory: Directory<'m>,
    metadata: Metadata,
    cpus: Cpus<'m>,
    marks: Marks<'m>,
}

impl<'m> Frames<'m> {
    /// Lets as many CPUs as there are `slots` have magazines, see [`Frames::cpu`]. `asker`
    /// reaches them when memory runs out; [`NobodyAsked`] leaves it to them to notice.
    ///
    /// Metadata grows by a cache line a CPU, and by the [`Magazines`] each is lent.
    #[must_use]
    pub fn with_cpus(self, slots: &'m [CpuSlot], asker: &'m dyn AskCpus) -> Self {
        Self {
            cpus: Cpus { slots, asker },
            ..self
        }
    }

    /// A way in for CPU number `cpu`, which is on `node`, through magazines of its own in
    /// the memory it is lent. These are emptied first, whatever was in them.
    ///
    /// # Errors
    /// [`CpuError`]: no such slot or node, or the slot is taken.
    pub fn cpu<'f>(
        &'f self,
        cpu: usize,
        node: NodeId,
        magazines: &'f mut Magazines,
    ) -> Result<Cpu<'f, 'm>, CpuError> {
        let cpus = self.cpus.slots.len();
        let slot = self.cpus.slots.get(cpu);
        let slot = slot.ok_or(CpuError::NoSuchCpu { cpu, cpus })?;
        let nodes = self.directory.heads.len();
        if usize::from(node.0) >= nodes {
            return Err(CpuError::NoSuchNode { node, nodes });
        }
        Cpu::new(self, slot, node, cpus, magazines)
    }

    /// Takes a block as near to the preferred node as there is one.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when no allowed node and zone has a block of
    /// this order; [`AllocError::NoSuchNode`].
    pub fn allocate(&self, request: Request) -> Result<Frame, AllocError> {
        self.allocate_near(NodeId::default(), request, 0, || false)
    }

    /// As [`Frames::allocate`], but nearest to `near` where the request prefers no node. When
    /// there is nothing, `give_back` comes first, which says whether it freed something, then
    /// all CPUs that hold something are asked. `own` of the slots are the caller's, which
    /// `give_back` emptied.
    fn allocate_near(
        &self,
        near: NodeId,
        request: Request,
        own: usize,
        give_back: impl FnOnce() -> bool,
    ) -> Result<Frame, AllocError> {
        let nodes = self.directory.heads.len();
        let first = request.node().unwrap_or(near);
        if usize::from(first.0) >= nodes {
            return Err(AllocError::NoSuchNode { node: first, nodes });
        }
        let search = || {
            let want = Want {
                order: request.order().get(),
                mobility: request.mobility(),
            };
            let zones = request.zones();
            if request.is_exact() {
                let only = core::iter::once(first);
                self.directory.allocate(only, zones, want)
            } else {
                (self.directory).allocate(self.fallback(first), zones, want)
            }
        };
        let found = || {
            let frame = search()?;
            if !self.marks.is_empty()
                && let Some(place) = self.directory.place_at(frame)
            {
                self.count(place, -request.order().frames().cast_signed());
            }
            Some(frame)
        };
        if let Some(frame) = found() {
            return Ok(frame);
        }
        if request.may_drain()
            && give_back()
            && let Some(frame) = found()
        {
            return Ok(frame);
        }
        let mut held_by_cpus = 0;
        if request.may_drain() && self.cpus.slots.len() > own {
            held_by_cpus = self.cpus.ask();
            // Also if nobody holds anything: it may have come back since the last look.
            if let Some(frame) = found() {
                return Ok(frame);
            }
        }
        Err(AllocError::OutOfMemory {
            request,
            held_by_cpus,
        })
    }

    /// Of the node nearest to `node` that has any, memory of the highest zone up to `highest`.
    fn nearest(&self, node: NodeId, highest: ZoneKind) -> Option<&Place<'m>> {
        let place = |node| (self.directory.places_on(node, Zones::up_to(highest))).next();
        self.fallback(node).find_map(place)
    }

    /// Gives back a block. It may be any aligned part of a block that was
    /// allocated, or several smaller ones that make up an aligned whole.
    /// Reserved frames can be given back in the same way, once what they were
    /// reserved for is over; never those of the allocator's own tables.
    ///
    /// # Errors
    /// [`BlockError::Misaligned`], [`BlockError::OutsideMemory`],
    /// [`BlockError::NotAllocated`]; nothing is changed then.
    pub fn free(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        let (place, block) = self.find(frame, order)?;
        (place.segment().free(block)).map_err(|_| BlockError::NotAllocated { frame, order })?;
        self.count(place, order.frames().cast_signed());
        Ok(())
    }

    /// Takes exactly the block that starts at `frame`.
    ///
    /// # Errors
    /// [`BlockError::Misaligned`], [`BlockError::OutsideMemory`],
    /// [`BlockError::InUse`] when some of it is allocated, reserved or isolated; nothing is
    /// changed then.
    pub fn claim(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        let (place, block) = self.find(frame, order)?;
        (place.segment().claim(block)).map_err(|_| BlockError::InUse { frame, order })?;
        self.count(place, -order.frames().cast_signed());
        Ok(())
    }

    /// Whether `frame` is allocated or reserved; `None` if it is not memory.
    pub fn is_allocated(&self, frame: Frame) -> Option<bool> {
        self.directory
            .segment_at(frame)
            .map(|segment| segment.is_allocated(frame))
    }

    /// What is free on the whole machine. Starts every segment that nobody has asked yet.
    pub fn statistics(&self) -> Statistics {
        sum(self.directory.places.iter().map(Place::segment))
    }

    /// What is free in one zone of one node; all zero where there is none.
    pub fn zone_statistics(&self, node: NodeId, zone: ZoneKind) -> Statistics {
        sum(self.directory.chain(node, zone).map(Place::segment))
    }

    /// Recounts everything that is kept at two levels. Meant for tests and
    /// diagnosis: only while no other call is in flight.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn validate(&self) -> Result<(), Violation> {
        self.directory
            .places
            .iter()
            .try_for_each(|place| place.segment().validate())
    }

    /// Nodes in the order in which they are asked for memory `from` wants.
    pub fn fallback(&self, from: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let nodes = u32::try_from(self.directory.heads.len()).unwrap_or(u32::MAX);
        fallback::by_distance(from, nodes, |a, b| self.layout.distance(a, b))
    }

    /// What the allocator's own tables cost up to now.
    pub fn metadata(&self) -> Metadata {
        let started = self.directory.places.iter().map(Place::written_bytes);
        let written_bytes = self.metadata.written_bytes + started.sum::<u64>();
        Metadata {
            written_bytes,
            ..self.metadata
        }
    }

    /// The layout the allocator was built from.
    pub fn layout(&self) -> &Layout<'m> {
        &self.layout
    }

    fn find(&self, frame: Frame, order: Order) -> Result<(&Place<'m>, Block), BlockError> {
        if !frame.is_aligned(order) {
            return Err(BlockError::Misaligned { frame, order });
        }
        let block = Block {
            start: frame,
            order: order.get(),
        };
        let place = self.directory.place_of(block);
        place
            .map(|place| (place, block))
            .ok_or(BlockError::OutsideMemory { frame, order })
    }
}

fn sum<'a, 'm: 'a>(segments: impl Iterator<Item = &'a Segment<'m>>) -> Statistics {
    let mut sum = Statistics::default();
    for segment in segments {
        sum += segment.statistics();
    }
    sum
}
