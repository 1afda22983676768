//! One CPU's own frames in front of all others: [`Cpu`].
//!
//! *A CPU allocates first what it freed last, and while its lists serve it writes no word that
//! another CPU writes.* For each mobility a CPU caches a list of blocks for each order up to a
//! huge frame, and a bump block: a huge frame it took as a whole and cuts pages from. All of it
//! counts as allocated in the shared levels, so these need to know nothing of CPUs. A full list
//! gives back its older half; an empty one is refilled by half, in few atomic operations.
//!
//! The lists of each mobility hold only frames of one node, the nearest that has memory for
//! it, and there of the highest zone that fits. Everything else goes straight to the shared
//! levels, as do larger orders.
//!
//! | file | what it is |
//! |---|---|
//! | [`cache`], [`cpus`] | all that is kept for one CPU; those of all CPUs |
//! | [`slot`] | what other CPUs may read and request |
//! | [`drain`] | how they are reached, which the kernel knows |
//! | [`lists`] | the lists |
//! | `cell` | a kernel's `Cpu`, between its calls |
//! | `per_cpu` | what a kernel says once about its CPUs |
//! | [`slow`] | refill, flush, drain |
//! | [`pieces`] | any number of frames |
//! | [`zeroed`] | requests for zeros |

pub(crate) mod cache;
#[cfg(not(firstlight_loom))]
pub(crate) mod cell;
pub(crate) mod cpus;
pub(crate) mod drain;
mod lists;
#[cfg(all(test, firstlight_loom))]
mod loom_tests;
#[cfg(not(firstlight_loom))]
pub(crate) mod per_cpu;
mod pieces;
pub(crate) mod slot;
mod slow;
mod zeroed;

use super::error::{AllocError, BlockError, CpuError};
use super::find::Frames;
use super::request::Request;
use super::segment::window::Window;
use super::word::Mobility;
use super::word::geometry::HUGE_ORDER;
use super::word::mobility::MOBILITIES;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, Order};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{Ordering, fence};
use cache::OwnLists;
use slot::CpuSlot;

/// With the feature that refuses what is cached already, nothing takes the fast paths.
const CHECKS: bool = cfg!(feature = "check-double-free");

/// A CPU's way to allocate and free: as [`Frames::allocate`] and [`Frames::free`], but
/// blocks up to a huge frame that were freed here cost no atomic read-modify-write.
///
/// It belongs to one CPU (thread) at a time and takes `&mut self`: a kernel keeps it in
/// per-CPU data and uses it with preemption off, and with interrupts off where their
/// handlers use it too. It can be moved; what it caches lies in the CPU's
/// [`CpuCache`](cache::CpuCache).
///
/// Dropping it frees all it caches. A frame that only then is found to be freed twice
/// is not reported: [`Cpu::close`] and [`Cpu::drain`] report it.
///
/// [`Frames::allocate`]: crate::frames::Frames::allocate
/// [`Frames::free`]: crate::frames::Frames::free
///
/// ```
/// # use firstlight_frames::addr::Order;
/// # use firstlight_frames::frames::{Frames, Request};
/// fn pages_and_huge_pages(frames: &Frames<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let mut cpu = frames.cpu(0, Default::default())?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     let huge = cpu.allocate(Request::new(Order::HUGE).movable())?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.free(huge, Order::HUGE)?;
///     cpu.drain()?; // before the CPU goes idle for long
///     cpu.close()?; // before it goes offline for good
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Cpu<'f, 'm> {
    shared: &'f Frames<'m>,
    lists: OwnLists<'f>,
    /// Frames that can be freed into the lists after one check each.
    window: Window<'m>,
    /// Where the window lies.
    near: &'f ZoneSegment<'m>,
    /// Whether the lists of each mobility take what lies there.
    takes: [bool; MOBILITIES],
    sources: [Source; MOBILITIES],
    /// Where the CPU is.
    node: NodeId,
    /// A frame that was found to be freed twice, until a call that may fail reports it.
    freed_twice: Option<BlockError>,
    /// Memory enough in both zones to cache huge frames, and for a bump block.
    has_huges: bool,
    /// Frames freed beside the window since it moved.
    missed: u8,
    /// How many huge frames had been added when that was looked at.
    added: u64,
}

/// Where the lists of one mobility are filled from.
#[derive(Debug)]
struct Source {
    node: NodeId,
    zone: ZoneKind,
    /// Bit `z` is set if a request for zone `z` and below wants this zone of this node first.
    serves: u8,
    /// Huge frame, by its index in the segment it was taken from, that last served pages and
    /// huge frames; searches clamp it to other segments.
    page_hint: usize,
    huge_hint: usize,
}

impl Source {
    fn is_of(&self, segment: &ZoneSegment<'_>) -> bool {
        (self.node, self.zone) == (segment.node(), segment.zone())
    }
}

impl<'f, 'm> Cpu<'f, 'm> {
    pub(crate) fn new(shared: &'f Frames<'m>, cpu: usize, node: NodeId) -> Result<Self, CpuError> {
        let cpus = shared.cpus.len();
        let cache = shared.cpus.get(cpu);
        let cache = cache.ok_or(CpuError::NoSuchCpu { cpu, cpus })?;
        let nodes = shared.nodes.segments.nodes();
        if usize::from(node.0) >= nodes {
            return Err(CpuError::NoSuchNode { node, nodes });
        }
        // Before the look: what is added meanwhile is looked for at the first drain.
        let added = shared.nodes.added_huges();
        let nearest = Self::nearest(shared, node).ok_or(CpuError::NoMemory)?;
        let [near, ..] = nearest;
        let online = near.online().ok_or(CpuError::NoMemory)?;
        let lists = cache.take().ok_or(CpuError::Taken)?;
        // A call that found no CPUs, because they were provided meanwhile, is seen by all this CPU does: `Cpus`.
        fence(Ordering::SeqCst);
        let mut new = Self {
            shared,
            lists,
            window: Window::empty(online),
            near,
            takes: [false; MOBILITIES],
            sources: Self::sources(shared, node, nearest, cpu),
            node,
            freed_twice: None,
            has_huges: false,
            missed: 0,
            added,
        };
        new.set_limits();
        Ok(new)
    }

    /// The nearest memory that lists are filled from, by mobility.
    fn nearest(shared: &'f Frames<'m>, node: NodeId) -> Option<[&'f ZoneSegment<'m>; MOBILITIES]> {
        let movable = shared.nodes.nearest(node, ZoneKind::Movable)?;
        let near = shared.nodes.nearest(node, ZoneKind::Normal);
        let near = near.unwrap_or(movable);
        Some(Mobility::ALL.map(|one| if one.is_movable() { movable } else { near }))
    }

    /// Looks anew where lists, which are empty, are filled from, if memory was added.
    fn fill_from_nearest(&mut self) {
        let added = self.shared.nodes.added_huges();
        if added == self.added {
            return;
        }
        self.added = added;
        let Some(nearest) = Self::nearest(self.shared, self.node) else {
            return;
        };
        let [near, ..] = nearest;
        let Some(online) = near.online() else {
            return;
        };
        (self.near, self.window) = (near, Window::empty(online));
        let (shared, node) = (self.shared, self.node);
        let mut slots = shared.cpus.slots();
        let cpu = slots.position(|slot| core::ptr::eq(slot, self.slot()));
        let cpu = cpu.unwrap_or(0);
        self.sources = Self::sources(shared, node, nearest, cpu);
        self.set_limits();
    }

    /// Sets how much the lists, which are empty, may hold.
    fn set_limits(&mut self) {
        let cpus = self.shared.cpus.len() as u64;
        self.has_huges = true;
        self.takes = self
            .sources
            .each_ref()
            .map(|source| source.is_of(self.near));
        for (mobility, source) in Mobility::ALL.into_iter().zip(&self.sources) {
            let segments = self.shared.nodes.segments.of_zone(source.node, source.zone);
            let frames: u64 = segments.map(ZoneSegment::managed_frames).sum();
            let lists = self.lists.of(mobility);
            self.has_huges &= lists.reset(frames / cpus);
            lists.take_window(self.takes[mobility as usize]);
        }
    }

    /// Where lists are filled from.
    fn sources(
        shared: &Frames<'m>,
        node: NodeId,
        nearest: [&'f ZoneSegment<'m>; MOBILITIES],
        cpu: usize,
    ) -> [Source; MOBILITIES] {
        let source = |one: Mobility| Self::source(shared, node, nearest[one as usize], cpu, one);
        Mobility::ALL.map(source)
    }

    /// Where lists of one mobility are filled from: `segment` and others of its zone.
    fn source(
        shared: &Frames<'m>,
        node: NodeId,
        segment: &ZoneSegment<'m>,
        cpu: usize,
        mobility: Mobility,
    ) -> Source {
        // CPUs begin far from each other, and what is movable at the other end: searches go on towards the middle.
        let cpus = shared.cpus.len().max(1);
        let huges = segment.online().map_or(1, |online| online.huge_count());
        let from_end = huges / cpus * cpu;
        let huge_hint = if mobility.is_movable() {
            huges.saturating_sub(from_end + 1)
        } else {
            from_end
        };
        let mut source = Source {
            node: segment.node(),
            zone: segment.zone(),
            serves: 0,
            page_hint: 0,
            huge_hint,
        };
        for highest in ZoneKind::ALL {
            let first = shared.nodes.nearest(node, highest);
            if first.is_some_and(|first| source.is_of(first)) {
                source.serves |= 1 << highest as u8;
            }
        }
        source
    }

    /// Allocates a block, as [`Frames::allocate`](crate::frames::Frames::allocate) does; without
    /// a preferred node, from the nearest to this CPU.
    ///
    /// # Errors
    /// As [`Frames::allocate`](crate::frames::Frames::allocate). Before it fails,
    /// this CPU's cache is drained and a drain of the others is requested, unless the request
    /// is [`no_drain`](Request::no_drain).
    #[inline(always)]
    pub fn allocate(&mut self, request: Request) -> Result<Frame, AllocError> {
        match self.allocate_cached(&request) {
            Some(frame) => Ok(frame),
            None => self.allocate_slow(request),
        }
    }

    /// A page or a huge frame that this CPU caches.
    // Always: with the request known, half of it is known at compile time.
    #[inline(always)]
    fn allocate_cached(&mut self, request: &Request) -> Option<Frame> {
        if self.slot().is_drain_requested() || !self.serves(request) {
            return None;
        }
        let (slot, order) = (self.slot(), request.order());
        // A branch, and each way its own list: what comes next depends on no load.
        match request.mobility() {
            mobility @ Mobility::Unmovable if order == Order::PAGE => {
                let lists = &mut self.lists.unmovable;
                (lists.pop_page(slot, mobility)).or_else(|| lists.pop_bump(slot, mobility))
            }
            mobility @ Mobility::Unmovable if order.get() == HUGE_ORDER => {
                self.lists.unmovable.pop_huge(slot, mobility)
            }
            #[cfg(feature = "movable")]
            mobility @ Mobility::Movable if order == Order::PAGE => {
                let lists = &mut self.lists.movable;
                (lists.pop_page(slot, mobility)).or_else(|| lists.pop_bump(slot, mobility))
            }
            #[cfg(feature = "movable")]
            mobility @ Mobility::Movable if order.get() == HUGE_ORDER => {
                self.lists.movable.pop_huge(slot, mobility)
            }
            _ => None,
        }
    }

    /// Frees a block, as [`Frames::free`](crate::frames::Frames::free) does.
    ///
    /// A frame that is free in the shared levels is refused at once. One that is cached was
    /// allocated as far as these can tell; that it was freed twice is seen at the latest when
    /// a cache flushes it. With the feature `check-double-free` a block that this CPU
    /// caches already is refused at once.
    ///
    /// # Errors
    /// As [`Frames::free`](crate::frames::Frames::free), and [`BlockError::FreedTwice`].
    #[inline(always)]
    pub fn free(&mut self, frame: Frame, order: Order) -> Result<(), BlockError> {
        if self.free_cached(frame, order) {
            Ok(())
        } else {
            self.free_slow(frame, order)
        }
    }

    /// Caches a page or a huge frame of the window; whether it did.
    #[inline(always)]
    fn free_cached(&mut self, frame: Frame, order: Order) -> bool {
        if CHECKS || self.slot().is_drain_requested() {
            return false;
        }
        let (slot, lists) = (self.slot(), &mut *self.lists);
        // As above.
        if order == Order::PAGE {
            match self.window.allocated_page(frame) {
                Some(mobility @ Mobility::Unmovable) => {
                    lists.unmovable.push_page(slot, mobility, frame)
                }
                #[cfg(feature = "movable")]
                Some(mobility @ Mobility::Movable) => {
                    lists.movable.push_page(slot, mobility, frame)
                }
                None => false,
            }
        } else if order.get() == HUGE_ORDER && frame.is_aligned(order) {
            match self.window.allocated_huge(frame) {
                Some(mobility @ Mobility::Unmovable) => {
                    lists.unmovable.push_huge(slot, mobility, frame)
                }
                #[cfg(feature = "movable")]
                Some(mobility @ Mobility::Movable) => {
                    lists.movable.push_huge(slot, mobility, frame)
                }
                None => false,
            }
        } else {
            false
        }
    }

    #[inline(always)]
    fn slot(&self) -> &'f CpuSlot {
        self.lists.slot()
    }

    /// Whether the lists may serve a request at once: one among some nodes is looked at once more.
    #[inline]
    fn serves(&self, request: &Request) -> bool {
        !request.is_among_some() && self.serves_here(request)
    }

    /// Whether they may serve it.
    fn serves_among(&self, request: &Request) -> bool {
        let source = &self.sources[request.mobility() as usize];
        self.serves_here(request)
            && (request.nodes()).is_none_or(|nodes| nodes.contains(source.node))
    }

    /// Whether they may, its mask aside.
    #[inline]
    fn serves_here(&self, request: &Request) -> bool {
        let source = &self.sources[request.mobility() as usize];
        let highest = request.highest_zone();
        !request.is_zeroed()
            && source.serves & 1 << highest as u8 != 0
            && (!request.is_only_zone() || source.zone == highest)
            && request.node().is_none_or(|node| node == source.node)
    }

    /// Frees all blocks this CPU caches. For a CPU that goes idle or offline.
    ///
    /// # Errors
    /// [`BlockError::FreedTwice`] for the first frame that was, now or in an earlier call
    /// that could not report it; all others are freed.
    pub fn drain(&mut self) -> Result<(), BlockError> {
        self.drain_all();
        self.report()
    }

    /// Frees all blocks this CPU caches, and its cache, which may be used anew.
    ///
    /// # Errors
    /// As [`Cpu::drain`].
    pub fn close(mut self) -> Result<(), BlockError> {
        self.drain()
    }

    /// Frees all blocks this CPU caches if another CPU has requested it. Every other call does
    /// this too; for an interrupt handler, an idle loop.
    pub fn poll(&mut self) {
        if self.slot().is_drain_requested() {
            self.drain_all();
        }
    }

    /// Frames in this CPU's cache.
    pub fn cached_frames(&self) -> u64 {
        self.slot().cached_frames().into()
    }

    /// The node of the unmovable lists; the movable ones may be filled from a nearer node that
    /// has zone Movable only.
    pub fn home(&self) -> NodeId {
        self.sources[Mobility::Unmovable as usize].node
    }
}

impl Drop for Cpu<'_, '_> {
    fn drop(&mut self) {
        self.drain_all();
        self.slot().release();
    }
}
