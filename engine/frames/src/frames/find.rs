//! All frames of a machine: [`Frames`], and what a request does until it finds memory or gives
//! up.
//!
//! *First the node it begins on, then the others; then what CPUs cache; then what the kernel can
//! do.* A kernel's [`Hooks`](super::Hooks) are called when the node is exhausted, and at the end.

use super::cpu::cpus::Cpus;
use super::cpu::drain::DrainRequest;
use super::cpu::slot::CpuSlot;
use super::error::{AllocError, RangeError};
use super::hooks::{Exhausted, Hooks};
use super::metadata::Metadata;
use super::range;
use super::range::contiguous::NotZeroed;
use super::request::Request;
use super::search::BlockRequest;
use super::zone::segment::ZoneSegment;
use super::zone::{Nodes, Reach};
use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;

/// All frames of a machine, to allocate and free from any CPU.
///
/// ```
/// use std::alloc::{alloc, Layout as Bytes};
/// use std::ptr::NonNull;
///
/// use firstlight_frames::addr::{Order, PhysRange};
/// use firstlight_frames::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
/// use firstlight_frames::frames::{Frames, Request};
/// use firstlight_frames::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
/// use firstlight_frames::platform::Platform;
/// use firstlight_frames::topology::{NodeInfo, Topology};
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
/// let mut owners = [Allocation::EMPTY; 8];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
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
    pub(super) nodes: Nodes<'m>,
    /// The caches of all CPUs.
    pub(super) cpus: Cpus<'m>,
    pub(super) metadata: Metadata,
}

/// The CPU that allocates.
pub(crate) trait Own {
    /// How many of the caches are its own.
    const CACHES: usize;

    /// Drains its own cache; whether there was anything.
    fn drain(&mut self) -> bool;
}

/// A call that goes past all caches.
pub(crate) struct NoCache;

impl Own for NoCache {
    const CACHES: usize = 0;

    fn drain(&mut self) -> bool {
        false
    }
}

impl Frames<'_> {
    /// The node a request begins on; `near` is that of the CPU, if known.
    #[inline]
    fn first_node(&self, near: Option<NodeId>, request: &Request) -> Result<NodeId, AllocError> {
        if near.is_none() && !request.names_nodes() {
            return Ok(self.current_node());
        }
        self.first_of(near, request)
    }

    #[inline(never)]
    fn first_of(&self, near: Option<NodeId>, request: &Request) -> Result<NodeId, AllocError> {
        let nodes = self.nodes.segments.nodes();
        let mut node = (request.node().or(near)).unwrap_or_else(|| self.current_node());
        if let Some(among) = request.nodes()
            && usize::from(node.0) < nodes
        {
            let mut nearest = self.nodes.fallback(node);
            let nearest = nearest.find(|node| among.contains(*node));
            node = nearest.unwrap_or(among.first());
        }
        if usize::from(node.0) < nodes {
            Ok(node)
        } else {
            Err(AllocError::NoSuchNode { node, nodes })
        }
    }

    /// The node of the CPU that calls, as far as the kernel says; 0 if that has no memory.
    fn current_node(&self) -> NodeId {
        let node = self.nodes.hooks.map(|hooks| hooks.node());
        let known = node.filter(|node| usize::from(node.0) < self.nodes.segments.nodes());
        known.unwrap_or_default()
    }

    /// Takes a block, past all caches: next to the last one if that is free.
    #[inline]
    pub(super) fn allocate_uncached(&self, request: Request) -> Result<Frame, AllocError> {
        let first = self.first_node(None, &request)?;
        if !request.is_zeroed()
            && let Some(found) =
                self.nodes
                    .allocate_at_hint(first, &request, BlockRequest::of(&request, None))
        {
            self.nodes.prepare(&[found], request.order());
            return Ok(found);
        }
        self.allocate_from(first, request, &mut NoCache)
    }

    /// Takes frames in a row, likewise: next to the last ones if these are free.
    #[inline]
    pub(super) fn allocate_frames_uncached(
        &self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        range::contiguous::check(frames, align_frames)?;
        let first = self.first_node(None, &request)?;
        if let Some(want) = range::cut::of(frames, align_frames, &request)
            && let Some(start) = self.nodes.allocate_at_hint(first, &request, want)
        {
            let row = FrameRange::of(start, frames);
            self.nodes.prepare_range(row);
            return Ok(row);
        }
        self.allocate_frames_from(first, frames, align_frames, request, &mut NoCache)
    }

    /// Takes a block, nearest to `near` where the request prefers no node.
    pub(crate) fn allocate_near(
        &self,
        near: Option<NodeId>,
        request: Request,
        own: &mut impl Own,
    ) -> Result<Frame, AllocError> {
        let first = self.first_node(near, &request)?;
        self.allocate_from(first, request, own)
    }

    /// Takes a block, nearest to `first`.
    #[inline(never)]
    fn allocate_from(
        &self,
        first: NodeId,
        request: Request,
        own: &mut impl Own,
    ) -> Result<Frame, AllocError> {
        if request.is_zeroed() {
            return self.allocate_zeroed_near(first, request, own);
        }
        let find = |reach| self.nodes.allocate(first, &request, reach);
        let prepare = |found: &Frame| self.nodes.prepare(&[*found], request.order());
        let found = self.find(first, &request, own, find, prepare);
        found.map_err(|held_by_cpus| self.no_block(request, held_by_cpus))
    }

    /// Takes the block of a request for zeros, likewise.
    #[cold]
    #[inline(never)]
    fn allocate_zeroed_near(
        &self,
        first: NodeId,
        request: Request,
        own: &mut impl Own,
    ) -> Result<Frame, AllocError> {
        let known = &self.nodes.known();
        let find = |reach| self.nodes.allocate_zeroed(first, &request, reach, known);
        let prepare = |found: &Frame| self.nodes.prepare(&[*found], request.order());
        let found = self.find(first, &request, own, find, prepare);
        let found = found.map_err(|held_by_cpus| self.no_block(request, held_by_cpus))?;
        if self.nodes.serve_zeroed(found, &request, known) {
            return Ok(found);
        }
        let frames = request.order().frames();
        let row = self.known_zero_near(first, frames, frames, request)?;
        Ok(row.start())
    }

    /// Frames in a row, all of them known to be zero, for a kernel that zeroes nothing: of all
    /// memory that the request may have. What CPUs cache is not known to be, nor what a kernel
    /// would reclaim.
    #[cold]
    fn known_zero_near(
        &self,
        first: NodeId,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        let (nodes, all) = (&self.nodes, Reach::All);
        let row =
            range::contiguous::allocate(nodes, first, all, frames, align_frames, &request, true);
        let row = row.and_then(Result::ok);
        let row = row.ok_or(AllocError::NotZeroed { request })?;
        nodes.prepare_range(row);
        Ok(row)
    }

    #[cold]
    fn no_block(&self, request: Request, held_by_cpus: u64) -> AllocError {
        let frames = request.order().frames();
        AllocError::OutOfMemory {
            request,
            frames,
            align_frames: frames,
            held_by_cpus,
            in_work: self.in_work(),
        }
    }

    /// Frames that workers have now.
    pub(crate) fn in_work(&self) -> u64 {
        let segments = self.nodes.segments.iter();
        segments.map(ZoneSegment::in_work_frames).sum()
    }

    /// Takes frames in a row, likewise.
    pub(crate) fn allocate_frames_near(
        &self,
        near: Option<NodeId>,
        frames: u64,
        align_frames: u64,
        request: Request,
        own: &mut impl Own,
    ) -> Result<FrameRange, AllocError> {
        let first = self.first_node(near, &request)?;
        self.allocate_frames_from(first, frames, align_frames, request, own)
    }

    /// Takes frames in a row, nearest to `first`.
    #[inline(never)]
    fn allocate_frames_from(
        &self,
        first: NodeId,
        frames: u64,
        align_frames: u64,
        request: Request,
        own: &mut impl Own,
    ) -> Result<FrameRange, AllocError> {
        let align_frames = align_frames.max(request.order().frames());
        let nodes = &self.nodes;
        let cut = range::cut::of(frames, align_frames, &request);
        let find = |reach| {
            let cut = cut.and_then(|want| range::cut::allocate(nodes, first, &request, want));
            cut.map(Ok).or_else(|| {
                range::contiguous::allocate(
                    nodes,
                    first,
                    reach,
                    frames,
                    align_frames,
                    &request,
                    false,
                )
            })
        };
        let prepare = |found: &Result<FrameRange, NotZeroed>| {
            found.iter().for_each(|range| nodes.prepare_range(*range));
        };
        let found = self.find(first, &request, own, find, prepare);
        let found = found.map_err(|held_by_cpus| AllocError::OutOfMemory {
            request,
            frames,
            align_frames,
            held_by_cpus,
            in_work: self.in_work(),
        })?;
        match found {
            Ok(range) => Ok(range),
            Err(NotZeroed) => self.known_zero_near(first, frames, align_frames, request),
        }
    }

    /// What `find` finds, at the latest after all caches were drained and the kernel did what it
    /// could; else how much CPUs cache whose drain is pending.
    #[inline]
    fn find<T>(
        &self,
        first: NodeId,
        request: &Request,
        own: &mut impl Own,
        find: impl Fn(Reach) -> Option<T>,
        prepare: impl Fn(&T),
    ) -> Result<T, u64> {
        let Some(hooks) = self.nodes.hooks else {
            return match find(Reach::All) {
                Some(found) => Ok(found),
                None => self.find_drained(request, own, find),
            };
        };
        let found = self.find_hooked(hooks, first, request, own, find);
        found.inspect(prepare)
    }

    #[inline(never)]
    fn find_hooked<T>(
        &self,
        hooks: &dyn Hooks,
        first: NodeId,
        request: &Request,
        own: &mut impl Own,
        find: impl Fn(Reach) -> Option<T>,
    ) -> Result<T, u64> {
        // The request that follows asks the kernel before it goes on to other nodes.
        if request.is_attempt() {
            return find(Reach::Node).ok_or(0);
        }
        loop {
            if let Some(found) = find(Reach::Node) {
                return Ok(found);
            }
            if !hooks.exhausted(request, Exhausted::Node(first)) {
                break;
            }
        }
        if !request.is_only_node()
            && let Some(found) = find(Reach::All)
        {
            return Ok(found);
        }
        let mut found = self.find_drained(request, own, &find);
        while let Err(held_by_cpus) = found {
            let again = hooks.exhausted(request, Exhausted::All(first));
            // Also if there is no more: some may have come since the last search.
            found = find(Reach::All).ok_or(held_by_cpus);
            if !again {
                break;
            }
        }
        found
    }

    #[cold]
    fn find_drained<T, O: Own>(
        &self,
        request: &Request,
        own: &mut O,
        find: impl Fn(Reach) -> Option<T>,
    ) -> Result<T, u64> {
        if !request.may_drain() {
            return Err(0);
        }
        if own.drain()
            && let Some(found) = find(Reach::All)
        {
            return Ok(found);
        }
        if self.cpus.len() <= O::CACHES {
            return Err(0);
        }
        let pending = self.drain_any();
        // Also if no CPU caches anything: it may have come back since the last search.
        find(Reach::All).ok_or(pending)
    }

    /// Takes all frames of `range`, or none of them.
    pub(crate) fn take_range(&self, range: FrameRange) -> Result<(), RangeError> {
        // A block by one step; what keeps it from that, the checks below say.
        if self.nodes.take_block(range) {
            return Ok(());
        }
        let mut taken = range::allocate(&self.nodes.segments, range);
        if matches!(taken, Err(RangeError::InUse { .. })) && !self.cpus.is_empty() {
            // Also if no CPU caches anything: it may have come back since the first look.
            self.drain_any();
            taken = range::allocate(&self.nodes.segments, range);
        }
        taken?;
        self.nodes.count_range(range, -1);
        self.nodes.prepare_range(range);
        Ok(())
    }

    // ---- CPUs ----------------------------------------------------------------

    /// Drains all CPUs that cache something. How many frames are pending after that.
    #[cold]
    pub(crate) fn drain_any(&self) -> u64 {
        let requested = self.cpus.slots().filter(|slot| slot.request_drain_of_any());
        if requested.count() == 0 {
            return 0;
        }
        self.reach()
    }

    /// Drains all CPUs, whether they cache something or not: one in the middle of a call may be
    /// about to cache what it saw before the caller changed it.
    #[cold]
    pub(crate) fn drain_all(&self) {
        self.drain_at_next_call();
        if !self.cpus.is_empty() {
            self.reach();
        }
    }

    /// Requests a drain that no CPU is reached for.
    pub(crate) fn drain_at_next_call(&self) {
        self.cpus.slots().for_each(CpuSlot::request_drain);
    }

    fn reach(&self) -> u64 {
        let request = DrainRequest::new(&self.cpus);
        if let Some(hooks) = self.nodes.hooks {
            hooks.drain(&request);
        }
        request.pending_frames()
    }
}
