//! One CPU's own frames in front of the shared levels: [`Cpu`].
//!
//! *What a CPU freed last it hands out first, without asking anybody.* For each
//! mobility a CPU has a magazine for each order up to a huge frame, and an area: a huge
//! frame it took as a whole and cuts pages from. All of it counts as allocated in the
//! shared levels, so these need to know nothing of CPUs. Full magazines give back their
//! older half; empty ones of pages and huge frames are refilled by half, in few atomic
//! operations, those of the orders between hold only what was freed here.
//!
//! Magazines of each mobility hold only frames of one node, the nearest that has memory for
//! it, and there of the highest zone that fits. Everything else goes straight to the shared
//! levels, as do larger orders.

use super::Frames;
use super::bulk::Basket;
use super::error::{AllocError, BlockError, CpuError};
use super::geometry::{HUGE_FRAMES, HUGE_ORDER, unit};
use super::magazine::Area;
use super::place::Place;
use super::request::{Mobility, Request};
use super::segment::Segment;
use super::slot::CpuSlot;
use super::stock::{Given, Magazines, Stock, frames_of};
use crate::addr::{Frame, Order};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU32, Ordering};

/// A CPU's way to allocate and free: as [`Frames::allocate`] and [`Frames::free`], but
/// blocks up to a huge frame that were freed here cost no atomic read-modify-write, and pages
/// and huge frames mostly none at all.
///
/// It belongs to one CPU (thread) at a time and takes `&mut self`: a kernel keeps it in
/// per-CPU data and uses it with preemption off, and with interrupts off where their
/// handlers use it too. It is 96 bytes and can be moved; what it holds lies in the
/// [`Magazines`] it was lent.
///
/// Dropping it gives back all it holds. A frame that only then is found to be freed twice
/// is told to nobody: [`Cpu::close`] tells, and so does [`Cpu::drain`].
///
/// ```
/// # use firstlight::addr::Order;
/// # use firstlight::frames::{Frames, Magazines, Request};
/// fn pages_and_huge_pages(
///     frames: &Frames<'_>,
///     magazines: &mut Magazines,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let mut cpu = frames.cpu(0, Default::default(), magazines)?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     let cache = cpu.allocate(Request::new(Order::HUGE).movable())?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.free(cache, Order::HUGE)?;
///     cpu.drain()?; // before the CPU goes idle for long
///     cpu.close()?; // before it goes offline for good
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Cpu<'f, 'm> {
    frames: &'f Frames<'m>,
    slot: &'f CpuSlot,
    /// Where the last frame that went into a magazine lies.
    segment: &'f Segment<'m>,
    /// Whether the magazines of each mobility take what lies there.
    takes: [bool; 2],
    /// Of each mobility.
    stocks: [&'f mut Stock; 2],
    sources: [Source; 2],
    /// Where the CPU is.
    node: NodeId,
    held: u32,
    /// A frame that was found to be freed twice, until a call that may fail tells.
    freed_twice: Option<BlockError>,
    /// Memory enough for an area in both zones.
    has_areas: bool,
}

/// Where the magazines of one mobility are filled from.
#[derive(Debug)]
struct Source {
    node: NodeId,
    zone: ZoneKind,
    /// Bit `z` is set if a request for zone `z` and below wants this zone of this node first.
    serves: u8,
    /// Where the CPU's own pages and huge frames came from last, in the segment at hand.
    near_page: AtomicU32,
    near_huge: AtomicU32,
}

impl Source {
    fn is_of(&self, place: &Place<'_>) -> bool {
        (self.node, self.zone) == (place.node, place.zone)
    }
}

impl<'f, 'm> Cpu<'f, 'm> {
    pub(super) fn new(
        frames: &'f Frames<'m>,
        slot: &'f CpuSlot,
        node: NodeId,
        cpus: usize,
        magazines: &'f mut Magazines,
    ) -> Result<Self, CpuError> {
        let directory = &frames.directory;
        // `build` refuses a machine without memory.
        let nodes = directory.heads.len();
        let none = CpuError::NoSuchNode { node, nodes };
        let movable = frames.nearest(node, ZoneKind::Movable).ok_or(none)?;
        let place = frames.nearest(node, ZoneKind::Normal).unwrap_or(movable);
        if !slot.take() {
            return Err(CpuError::Taken);
        }
        let source = |place: &Place<'_>| {
            let mut source = Source {
                node: place.node,
                zone: place.zone,
                serves: 0,
                near_page: AtomicU32::new(0),
                near_huge: AtomicU32::new(0),
            };
            for highest in ZoneKind::ALL {
                let first = frames.nearest(node, highest);
                if first.is_some_and(|first| source.is_of(first)) {
                    source.serves |= 1 << highest as u8;
                }
            }
            source
        };
        let sources = [source(place), source(movable)];
        let mut has_areas = true;
        let mut stocks = magazines.stocks.each_mut();
        for (stock, source) in stocks.iter_mut().zip(&sources) {
            let chain = directory.chain(source.node, source.zone);
            let frames: u64 = chain.map(|place| place.frames().count()).sum();
            has_areas &= stock.reset(frames / cpus.max(1) as u64);
        }
        Ok(Self {
            frames,
            slot,
            segment: place.segment(),
            takes: sources.each_ref().map(|source| source.is_of(place)),
            stocks,
            sources,
            has_areas,
            node,
            held: 0,
            freed_twice: None,
        })
    }

    /// Takes a block, as [`Frames::allocate`] does; without a preferred node, as near to
    /// this CPU as there is one.
    ///
    /// # Errors
    /// As [`Frames::allocate`]. Before it fails this CPU gave back all it held, and the
    /// others were asked to, unless the request is [without that](Request::without_draining).
    #[inline]
    pub fn allocate(&mut self, request: Request) -> Result<Frame, AllocError> {
        if self.slot.is_asked() {
            self.answer();
        }
        let order = request.order();
        if self.serves(&request) {
            let stock = &mut self.stocks[request.mobility() as usize];
            if order == Order::PAGE {
                if let Some(page) = stock.pages.pop().or_else(|| stock.area.pop()) {
                    self.hold(-1);
                    return Ok(page);
                }
            } else if let Some(blocks) = stock.blocks_of(order)
                && let Some(block) = blocks.pop()
            {
                self.hold(-frames_of(order));
                return Ok(block);
            }
        }
        self.allocate_shared(request)
    }

    /// Gives back a block, as [`Frames::free`] does.
    ///
    /// A frame that is free in the shared levels is refused at once. One that lies in a
    /// magazine was allocated as far as these can tell; that it was freed twice is seen
    /// at the latest when a magazine gives it back.
    ///
    /// # Errors
    /// As [`Frames::free`], and [`BlockError::FreedTwice`].
    #[inline]
    pub fn free(&mut self, frame: Frame, order: Order) -> Result<(), BlockError> {
        if self.slot.is_asked() {
            self.answer();
        }
        let near = if order == Order::PAGE {
            self.segment.allocated_page(frame)
        } else if order.get() <= HUGE_ORDER && frame.is_aligned(order) {
            self.segment.allocated_block(frame, order.get())
        } else {
            return self.frames.free(frame, order);
        };
        let held = match near {
            Some(mobility) => Some(mobility),
            None => self.allocated_elsewhere(frame, order),
        };
        if let Some(mobility) = held
            && self.takes[mobility as usize]
        {
            let stock = &mut self.stocks[mobility as usize];
            if stock.push(frame, order) {
                self.hold(frames_of(order));
                return Ok(());
            }
            return self.spill(mobility, frame, order);
        }
        self.frames.free(frame, order)
    }

    /// Gives back all that the magazines hold. For a CPU that goes idle or offline.
    ///
    /// # Errors
    /// [`BlockError::FreedTwice`] for the first frame that was, now or in an earlier call
    /// that could not tell; all others are given back.
    pub fn drain(&mut self) -> Result<(), BlockError> {
        self.give_all();
        self.tell()
    }

    /// Gives back all that the magazines hold, and the slot.
    ///
    /// # Errors
    /// As [`Cpu::drain`].
    pub fn close(mut self) -> Result<(), BlockError> {
        self.drain()
    }

    /// Gives back all that the magazines hold if another CPU has asked for it. Every other
    /// call does this too; for an interrupt handler, an idle loop.
    pub fn poll(&mut self) {
        if self.slot.is_asked() {
            self.answer();
        }
    }

    /// Frames in this CPU's magazines.
    pub fn held_frames(&self) -> u64 {
        self.held.into()
    }

    /// The node its magazines are filled from, those of movable content perhaps from one that
    /// is nearer and has no memory for anything else.
    pub fn home(&self) -> NodeId {
        self.sources[Mobility::Unmovable as usize].node
    }

    // ---- What is rare ----------------------------------------------------

    /// Whether the magazines may serve a request.
    #[inline]
    fn serves(&self, request: &Request) -> bool {
        let source = &self.sources[request.mobility() as usize];
        let highest = request.highest_zone();
        source.serves & 1 << highest as u8 != 0
            && (!request.is_exact_zone() || source.zone == highest)
            && request.node().is_none_or(|node| node == source.node)
    }

    #[inline]
    fn hold(&mut self, more: i32) {
        self.held = self.held.wrapping_add_signed(more);
        self.slot.set_held(self.held);
    }

    /// What the huge frame of an aligned block was taken for, if that lies in another
    /// segment that magazines are filled from, which is the one at hand then, and is allocated.
    #[cold]
    fn allocated_elsewhere(&mut self, frame: Frame, order: Order) -> Option<Mobility> {
        let place = self.frames.directory.place_at(frame)?;
        let takes = (self.sources.each_ref()).map(|source| source.is_of(place));
        if takes == [false; 2] || place.frames().contains(self.segment.frames.start()) {
            return None;
        }
        self.segment = place.segment();
        self.takes = takes;
        if order == Order::PAGE {
            self.segment.allocated_page(frame)
        } else {
            self.segment.allocated_block(frame, order.get())
        }
    }

    #[cold]
    fn answer(&mut self) {
        self.give_all();
    }

    fn give_all(&mut self) {
        let near = self.segment;
        self.slot.begin_answer();
        for (stock, source) in self.stocks.iter_mut().zip(&self.sources) {
            let mut given = Given::new(self.frames, near, &mut self.freed_twice);
            stock.give_all(&mut given);
            (self.frames).count_zone(source.node, source.zone, given.count);
        }
        self.held = 0;
        self.slot.answer();
    }

    /// What was found to be freed twice, once.
    fn tell(&mut self) -> Result<(), BlockError> {
        self.freed_twice.take().map_or(Ok(()), Err)
    }

    /// A full magazine gives back its older half and takes one block more.
    #[cold]
    fn spill(&mut self, mobility: Mobility, block: Frame, order: Order) -> Result<(), BlockError> {
        let stock = &mut self.stocks[mobility as usize];
        let mut given = Given::new(self.frames, self.segment, &mut self.freed_twice);
        let more = stock.spill(block, order, &mut given);
        let source = &self.sources[mobility as usize];
        (self.frames).count_zone(source.node, source.zone, given.count);
        self.hold(more);
        self.tell()
    }

    #[cold]
    fn allocate_shared(&mut self, request: Request) -> Result<Frame, AllocError> {
        let order = request.order();
        if self.serves(&request) {
            let found = if order == Order::PAGE {
                self.refill_pages(request.mobility())
            } else if order.get() == HUGE_ORDER {
                self.refill_huges(request.mobility())
            } else {
                None
            };
            if let Some(frame) = found {
                return Ok(frame);
            }
        }
        // `exactly` without a node is where the magazines are filled from.
        let at_home = request.on(self.sources[request.mobility() as usize].node);
        let wanted = match request.node() {
            None if at_home.is_exact() => at_home,
            _ => request,
        };
        let frame = self.frames.allocate_near(self.node, wanted, 1, || {
            let held = self.held > 0;
            self.give_all();
            held
        })?;
        // It was out of reach for the magazines; next time they look there.
        if self.segment.frames.contains(frame) {
            let source = &self.sources[request.mobility() as usize];
            let near = if order == Order::PAGE {
                &source.near_page
            } else {
                &source.near_huge
            };
            let huge = u32::try_from(self.segment.huge_of(frame)).unwrap_or(0);
            near.store(huge, Ordering::Relaxed);
        }
        Ok(frame)
    }

    /// Fills the magazine of pages, or takes an area, and takes one.
    fn refill_pages(&mut self, mobility: Mobility) -> Option<Frame> {
        let directory = &self.frames.directory;
        let stock = &mut self.stocks[mobility as usize];
        let source = &self.sources[mobility as usize];
        let (node, zone) = (source.node, source.zone);
        let places = || directory.chain(node, zone);
        // Before they are taken: who finds nothing sees who has them.
        self.slot.set_held(self.held + stock.pages.half());
        let near = &source.near_page;
        stock.pages.refill(|room| {
            take_from_first(places(), room, |segment, basket| {
                segment.take_pages(mobility, near, basket);
            })
        });
        let mut taken = stock.pages.len();
        let mut from_magazine = false;
        if taken == 0 && self.has_areas {
            // A huge frame of its own.
            let huge = match stock.huges().pop() {
                Some(huge) => {
                    self.held -= HUGE_FRAMES;
                    from_magazine = true;
                    Some(huge)
                }
                None => {
                    self.slot.set_held(self.held + HUGE_FRAMES);
                    let mut one = [Frame::new(0)];
                    let near = &source.near_huge;
                    let count = take_from_first(places(), &mut one, |segment, basket| {
                        segment.take_huges(mobility, near, basket);
                    });
                    (count > 0).then_some(one[0])
                }
            };
            if let Some(huge) = huge {
                stock.area = Area::new(unit(huge.get() >> HUGE_ORDER, HUGE_ORDER));
                taken = HUGE_FRAMES as i32;
            }
        }
        let page = stock.pages.pop().or_else(|| stock.area.pop());
        if !from_magazine {
            (self.frames).count_zone(node, zone, -i64::from(taken));
        }
        self.hold(taken - i32::from(page.is_some()));
        page
    }

    /// Fills the magazine of huge frames and takes one.
    fn refill_huges(&mut self, mobility: Mobility) -> Option<Frame> {
        let directory = &self.frames.directory;
        let huges = self.stocks[mobility as usize].huges();
        let source = &self.sources[mobility as usize];
        let near = &source.near_huge;
        // As for pages.
        self.slot.set_held(self.held + huges.half() * HUGE_FRAMES);
        huges.refill(|room| {
            let places = directory.chain(source.node, source.zone);
            take_from_first(places, room, |segment, basket| {
                segment.take_huges(mobility, near, basket);
            })
        });
        let Some(huge) = huges.pop() else {
            self.hold(0);
            return None;
        };
        let left = huges.len();
        let taken = i64::from(left + 1) * i64::from(HUGE_FRAMES);
        (self.frames).count_zone(source.node, source.zone, -taken);
        self.hold(left * HUGE_FRAMES as i32);
        Some(huge)
    }
}

/// Fills `room` from the first of `places` that `take` finds something in. Says with how many.
fn take_from_first<'p, 'm: 'p>(
    mut places: impl Iterator<Item = &'p Place<'m>>,
    room: &mut [Frame],
    mut take: impl FnMut(&Segment<'m>, &mut Basket<'_>),
) -> usize {
    let mut basket = Basket::new(room);
    places.any(|place| {
        take(place.segment(), &mut basket);
        basket.count() > 0
    });
    basket.count()
}

impl Drop for Cpu<'_, '_> {
    fn drop(&mut self) {
        self.give_all();
        self.slot.leave();
    }
}
