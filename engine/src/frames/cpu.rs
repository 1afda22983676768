//! One CPU's own frames in front of the shared levels: [`Cpu`].
//!
//! *What a CPU freed last it hands out first, without asking anybody.* For each
//! mobility a CPU has a magazine for each order up to a huge frame, and an area: a huge
//! frame it took as a whole and cuts pages from. All of it counts as allocated in the
//! shared levels, so these need to know nothing of CPUs. Full magazines give back their
//! older half; empty ones of pages and huge frames are refilled by half, in few atomic
//! operations, those of the orders between hold only what was freed here.
//!
//! Magazines hold only frames of the CPU's home: the nearest node with memory,
//! and there the highest zone that fits the mobility. Everything else goes straight to
//! the shared levels, as do larger orders.

use super::Frames;
use super::bulk::Basket;
use super::error::{AllocError, BlockError, CpuError};
use super::geometry::{HUGE_FRAMES, HUGE_ORDER, unit};
use super::magazine::{Area, Magazine};
use super::place::Place;
use super::request::{Mobility, Request};
use super::segment::Segment;
use super::slot::CpuSlot;
use crate::addr::{Frame, FrameRange, Order};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU32, Ordering};

/// Pages in a magazine, at most.
const PAGES: usize = 512;
/// Blocks of a larger order in a magazine, at most.
const BLOCKS: usize = 16;
/// Frames in a magazine of blocks below a huge frame, at most; or two blocks.
const BLOCK_FRAMES: usize = 256;
/// A magazine holds at most one in so many frames of the CPU's share of its home.
const SHARE: u64 = 128;

/// What a CPU keeps of one mobility.
#[derive(Debug)]
struct Stock {
    pages: Magazine<PAGES>,
    /// Of orders 1 to [`HUGE_ORDER`].
    blocks: [Magazine<BLOCKS>; HUGE_ORDER as usize],
    area: Area,
    /// Where the CPU's own pages and huge frames came from last, in the segment at hand.
    near_page: AtomicU32,
    near_huge: AtomicU32,
    zone: ZoneKind,
    /// Bit `z` is set if a request for zone `z` and below wants this zone first.
    serves: u8,
}

/// A CPU's way to allocate and free: as [`Frames::allocate`] and [`Frames::free`], but
/// blocks up to a huge frame that were freed here cost no atomic operation, and pages and
/// huge frames mostly none at all.
///
/// It belongs to one CPU (thread) at a time and takes `&mut self`: a kernel keeps it in
/// per-CPU data and uses it with preemption off, and with interrupts off where their
/// handlers use it too. Dropping it gives back all
/// it holds; [`Cpu::drain`] does too, and says what was freed twice.
///
/// ```
/// # use firstlight::addr::Order;
/// # use firstlight::frames::{BlockError, Frames, Request};
/// fn pages_and_huge_pages(frames: &Frames<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let mut cpu = frames.cpu(0, Default::default())?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     let cache = cpu.allocate(Request::new(Order::HUGE).movable())?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.free(cache, Order::HUGE)?;
///     cpu.drain()?; // before the CPU goes idle for long, or offline
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Cpu<'f, 'm> {
    frames: &'f Frames<'m>,
    slot: &'f CpuSlot,
    /// Where the last frame that went into a magazine lies.
    segment: &'f Segment<'m>,
    zone: ZoneKind,
    stocks: [Stock; 2],
    home: NodeId,
    held: u32,
    /// A frame that was found to be freed twice, until a call that may fail tells.
    freed_twice: Option<BlockError>,
    /// There is memory enough that a huge frame may be kept to cut pages from.
    has_areas: bool,
}

impl Stock {
    /// The magazine of an order from 1 to [`HUGE_ORDER`].
    #[inline]
    fn blocks_of(&mut self, order: Order) -> Option<&mut Magazine<BLOCKS>> {
        let index = usize::from(order.get()).checked_sub(1)?;
        self.blocks.get_mut(index)
    }

    /// The magazine of huge frames.
    fn huges(&mut self) -> &mut Magazine<BLOCKS> {
        let [.., huges] = &mut self.blocks;
        huges
    }
}

impl<'f, 'm> Cpu<'f, 'm> {
    pub(super) fn new(
        frames: &'f Frames<'m>,
        slot: &'f CpuSlot,
        node: NodeId,
        cpus: usize,
    ) -> Result<Self, CpuError> {
        let directory = &frames.directory;
        // `build` refuses a machine without memory.
        let nodes = directory.heads.len();
        let none = CpuError::NoSuchNode { node, nodes };
        let home = frames.home_of(node).ok_or(none)?;
        let zone_of = |highest| directory.places_on(home, highest).next();
        let normal = zone_of(ZoneKind::Normal).or(zone_of(ZoneKind::Movable));
        let (Some(place), Some(movable)) = (normal, zone_of(ZoneKind::Movable)) else {
            return Err(none);
        };
        let share = |zone| {
            let chain = directory.chain(home, zone);
            let frames: u64 = chain.map(|place| place.frames().count()).sum();
            frames / cpus.max(1) as u64 / SHARE
        };
        if !slot.take() {
            return Err(CpuError::Taken);
        }
        let stock = |zone: ZoneKind| {
            let share = share(zone);
            let most = |order: usize| usize::try_from(share >> order).unwrap_or(usize::MAX);
            let blocks = |index: usize| {
                let order = index + 1;
                let few = (BLOCK_FRAMES >> order).max(2);
                let few = if order == HUGE_ORDER.into() {
                    BLOCKS
                } else {
                    few
                };
                Magazine::new(most(order).min(few))
            };
            let first = |highest: &ZoneKind| zone_of(*highest).map(|place| place.zone);
            let serves = |highest: &ZoneKind| first(highest) == Some(zone);
            let served = ZoneKind::ALL.into_iter().filter(serves);
            Stock {
                pages: Magazine::new(most(0)),
                blocks: core::array::from_fn(blocks),
                area: Area::default(),
                near_page: AtomicU32::new(0),
                near_huge: AtomicU32::new(0),
                zone,
                serves: served.fold(0, |bits, zone| bits | 1 << zone as u8),
            }
        };
        let smallest = share(place.zone).min(share(movable.zone));
        Ok(Self {
            frames,
            slot,
            segment: place.segment(),
            zone: place.zone,
            stocks: [stock(place.zone), stock(movable.zone)],
            home,
            held: 0,
            freed_twice: None,
            has_areas: smallest > 2 * u64::from(HUGE_FRAMES),
        })
    }

    /// Takes a block, as [`Frames::allocate`] does; without a preferred node, as near to
    /// this CPU as there is one.
    ///
    /// # Errors
    /// As [`Frames::allocate`]. Before it fails this CPU gave back all it held, and the
    /// others were asked to.
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
        let held = if order == Order::PAGE {
            let found = self.segment.allocated_page(frame);
            found.or_else(|| self.come_to(frame)?.allocated_page(frame))
        } else if order.get() <= HUGE_ORDER && frame.is_aligned(order) {
            let order = order.get();
            let found = self.segment.allocated_block(frame, order);
            found.or_else(|| self.come_to(frame)?.allocated_block(frame, order))
        } else {
            None
        };
        let zone = self.zone;
        if let Some(mobility) = held
            && let stock = &mut self.stocks[mobility as usize]
            && stock.zone == zone
        {
            let has_room = if order == Order::PAGE {
                stock.pages.push(frame)
            } else {
                (stock.blocks_of(order)).is_some_and(|blocks| blocks.push(frame))
            };
            if has_room {
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

    /// The node its magazines are filled from.
    pub fn home(&self) -> NodeId {
        self.home
    }

    // ---- What is rare ----------------------------------------------------

    /// Whether the magazines may serve a request.
    #[inline]
    fn serves(&self, request: &Request) -> bool {
        let zone = 1 << request.highest_zone() as u8;
        self.stocks[request.mobility() as usize].serves & zone != 0
            && request.node().is_none_or(|node| node == self.home)
    }

    #[inline]
    fn hold(&mut self, more: i32) {
        self.held = self.held.wrapping_add_signed(more);
        self.slot.set_held(self.held);
    }

    /// The segment a frame lies in, if it is another one and at home.
    #[cold]
    fn come_to(&mut self, frame: Frame) -> Option<&'f Segment<'m>> {
        let place = self.frames.directory.place_at(frame)?;
        if place.node != self.home || place.frames().contains(self.segment.frames.start()) {
            return None;
        }
        (self.segment, self.zone) = (place.segment(), place.zone);
        Some(self.segment)
    }

    #[cold]
    fn answer(&mut self) {
        self.give_all();
    }

    fn give_all(&mut self) {
        let near = self.segment;
        for stock in &mut self.stocks {
            let mut given = Given::new(self.frames, near, &mut self.freed_twice);
            while stock.pages.len() > 0 {
                stock.pages.take_oldest(|old| given.give(Order::PAGE, old));
            }
            for (order, blocks) in (1..).filter_map(Order::new).zip(&mut stock.blocks) {
                while blocks.len() > 0 {
                    blocks.take_oldest(|old| given.give(order, old));
                }
            }
            given.give_area(stock.area.take());
            (self.frames).count_zone(self.home, stock.zone, given.count);
        }
        self.held = 0;
        self.slot.answer(0);
    }

    /// What was found to be freed twice, once.
    fn tell(&mut self) -> Result<(), BlockError> {
        self.freed_twice.take().map_or(Ok(()), Err)
    }

    /// A full magazine gives back its older half and takes one block more.
    #[cold]
    fn spill(&mut self, mobility: Mobility, block: Frame, order: Order) -> Result<(), BlockError> {
        fn into<const N: usize>(
            magazine: &mut Magazine<N>,
            block: Frame,
            order: Order,
            given: &mut Given<'_, '_>,
        ) -> i32 {
            let before = magazine.len();
            magazine.take_oldest(|old| given.give(order, old));
            if !magazine.push(block) {
                given.give(order, &[block]);
            }
            (magazine.len() - before) * frames_of(order)
        }
        let stock = &mut self.stocks[mobility as usize];
        let mut given = Given::new(self.frames, self.segment, &mut self.freed_twice);
        let more = match stock.blocks_of(order) {
            Some(blocks) => into(blocks, block, order, &mut given),
            None => into(&mut stock.pages, block, order, &mut given),
        };
        (self.frames).count_zone(self.home, stock.zone, given.count);
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
        let near_home = match request.node() {
            None => request.on(self.home),
            Some(_) => request,
        };
        let frame = self.frames.allocate_after(near_home, 1, || {
            let held = self.held > 0;
            self.give_all();
            held
        })?;
        // It was out of reach for the magazines; next time they look there.
        if self.segment.frames.contains(frame) {
            let stock = &mut self.stocks[request.mobility() as usize];
            let near = if order == Order::PAGE {
                &stock.near_page
            } else {
                &stock.near_huge
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
        let (home, zone) = (self.home, stock.zone);
        let places = || directory.chain(home, zone).map(Place::segment);
        let near = &stock.near_page;
        stock.pages.refill(|room| {
            let mut basket = Basket::new(room);
            for segment in places() {
                segment.take_pages(mobility, near, &mut basket);
                if basket.count() > 0 {
                    break;
                }
            }
            basket.count()
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
                    let mut one = [Frame::new(0)];
                    let mut basket = Basket::new(&mut one);
                    let near = &stock.near_huge;
                    places()
                        .any(|segment| {
                            segment.take_huges(mobility, near, &mut basket);
                            basket.count() > 0
                        })
                        .then_some(one[0])
                }
            };
            if let Some(huge) = huge {
                stock.area = Area::new(unit(huge.get() >> HUGE_ORDER, HUGE_ORDER));
                taken = HUGE_FRAMES as i32;
            }
        }
        let page = stock.pages.pop().or_else(|| stock.area.pop());
        if !from_magazine {
            (self.frames).count_zone(self.home, stock.zone, -i64::from(taken));
        }
        self.hold(taken - i32::from(page.is_some()));
        page
    }

    /// Fills the magazine of huge frames and takes one.
    fn refill_huges(&mut self, mobility: Mobility) -> Option<Frame> {
        let directory = &self.frames.directory;
        let stock = &mut self.stocks[mobility as usize];
        let Stock {
            blocks,
            near_huge: near,
            ..
        } = stock;
        let [.., huges] = blocks;
        huges.refill(|room| {
            let mut basket = Basket::new(room);
            for place in directory.chain(self.home, stock.zone) {
                place.segment().take_huges(mobility, near, &mut basket);
                if basket.count() > 0 {
                    break;
                }
            }
            basket.count()
        });
        let huge = huges.pop()?;
        let left = huges.len();
        let taken = i64::from(left + 1) * i64::from(HUGE_FRAMES);
        (self.frames).count_zone(self.home, stock.zone, -taken);
        self.hold(left * HUGE_FRAMES as i32);
        Some(huge)
    }
}

impl Drop for Cpu<'_, '_> {
    fn drop(&mut self) {
        self.give_all();
        self.slot.leave();
    }
}

/// Frames of a block that a magazine may hold.
#[inline]
const fn frames_of(order: Order) -> i32 {
    1 << order.get()
}

/// What magazines give back: how many frames became free, and the first that was free
/// before.
#[derive(Debug)]
struct Given<'a, 'm> {
    frames: &'a Frames<'m>,
    near: &'a Segment<'m>,
    freed_twice: &'a mut Option<BlockError>,
    count: i64,
}

impl<'a, 'm> Given<'a, 'm> {
    fn new(
        frames: &'a Frames<'m>,
        near: &'a Segment<'m>,
        freed_twice: &'a mut Option<BlockError>,
    ) -> Self {
        Self {
            frames,
            near,
            freed_twice,
            count: 0,
        }
    }

    fn give(&mut self, order: Order, blocks: &[Frame]) {
        let count = i64::try_from(blocks.len()).unwrap_or_default();
        self.count += count * i64::from(frames_of(order));
        let (directory, near) = (&self.frames.directory, self.near);
        directory.give(order, blocks, near, &mut |frame| self.refuse(frame, order));
    }

    fn give_area(&mut self, area: FrameRange) {
        self.count += area.count().cast_signed();
        let (directory, near) = (&self.frames.directory, self.near);
        directory.give_area(area, near, &mut |frame| self.refuse(frame, Order::PAGE));
    }

    fn refuse(&mut self, frame: Frame, order: Order) {
        self.count -= i64::from(frames_of(order));
        (self.freed_twice).get_or_insert(BlockError::FreedTwice { frame, order });
    }
}
