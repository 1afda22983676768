//! What is rare: refill, flush, drain, and blocks that no list holds.

use super::slot::{CpuEvent, CpuSlot};
use super::{CHECKS, Cpu, Source};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::{AllocError, BlockError};
use crate::frames::find::Frames;
use crate::frames::find::Own;
use crate::frames::request::Request;
use crate::frames::search::batch::{self, Batch};
use crate::frames::search::{self, BlockRequest};
use crate::frames::segment::Segment;
use crate::frames::segment::window::Window;
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use crate::frames::word::mobility::MOBILITIES;
use crate::frames::word::{IS_KEPT, Mobility};
use crate::frames::zone::gate::Gate;
use crate::frames::zone::give::Local;
use crate::frames::zone::segment::ZoneSegment;
use crate::sync::Ordering;

/// How many giant frames to pass in search of a block to cut up.
const GIANTS: usize = 16;
/// The window moves with every so many frames that are freed beside it: moving it for each costs more, where frames all
/// over memory are freed, than the longer way.
const MISSES: u8 = 4;

/// Flushes cached blocks, counts them, and keeps the first that was refused.
macro_rules! give {
    ($cpu:ident, $mobility:expr, |$local:ident, $bad:ident| $give:expr) => {{
        if $cpu.near.is_of_window() && !$cpu.takes[$mobility as usize] {
            $cpu.move_near($mobility);
        }
        let online = $cpu.near.online();
        let mut refused = 0;
        if let Some(segment) = online {
            let $local = &Local {
                segment,
                window: &$cpu.window,
            };
            let freed_twice = &mut $cpu.freed_twice;
            let $bad = &mut |frame: Frame, order: Order| {
                refused += order.frames();
                freed_twice.get_or_insert(BlockError::FreedTwice { frame, order });
            };
            let given: u64 = $give;
            let source = &$cpu.sources[$mobility as usize];
            let more = (given - refused).cast_signed();
            $cpu.shared.nodes.count_zone(source.node, source.zone, more);
        }
    }};
}

impl<'f, 'm> Cpu<'f, 'm> {
    // ---- Allocate ------------------------------------------------------------

    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slow(&mut self, request: Request) -> Result<Frame, AllocError> {
        self.poll();
        let order = request.order();
        if request.is_zeroed() {
            return self.allocate_zeroed(request);
        }
        if self.caches(order) && self.serves_among(&request) {
            let (mobility, index) = (request.mobility(), usize::from(order.get()));
            let mut found = self.pop(mobility, index);
            if found.is_none() && order == Order::PAGE {
                let slot = self.slot();
                found = (self.lists.of(mobility)).pop_bump(slot, mobility);
            }
            let most = self.lists.of(mobility).refill_limit(index) << index;
            if found.is_none() && self.may_cache(&request, most as u64) {
                self.slot().count(CpuEvent::Refill);
                found = match order.get() {
                    0 => self.refill_pages(&request),
                    HUGE_ORDER => self.refill_huges(mobility),
                    _ => self.refill_blocks(mobility, order),
                };
            }
            if let Some(frame) = found {
                return Ok(frame);
            }
        }
        self.allocate_shared(request)
    }

    /// Whether a list may have blocks of this order: huge frames only where there is much memory for each CPU.
    #[inline]
    pub(super) fn caches(&mut self, order: Order) -> bool {
        let mut huges = || self.lists.of(Mobility::Unmovable).limit(HUGE_ORDER.into()) > 0;
        order.get() < HUGE_ORDER || order.get() == HUGE_ORDER && huges()
    }

    /// The block on top of a list.
    fn pop(&mut self, mobility: Mobility, order: usize) -> Option<Frame> {
        let slot = self.slot();
        self.lists.of(mobility).pop(slot, mobility, order)
    }

    /// Whether the water marks allow that `frames` frames are cached.
    pub(super) fn may_cache(&self, request: &Request, frames: u64) -> bool {
        let source = &self.sources[request.mobility() as usize];
        // For requests to come, which are of no reserve.
        let gate = Gate::new(
            &self.shared.nodes.segments.zones,
            &request.without_reserve(),
            frames,
        );
        gate.is_none_or(|gate| gate.allows(source.node, source.zone))
    }

    /// A block that no list serves.
    pub(super) fn allocate_shared(&mut self, request: Request) -> Result<Frame, AllocError> {
        let (shared, node) = (self.shared, self.node);
        self.slot().count(CpuEvent::Miss);
        let frame = shared.allocate_near(Some(node), request, self)?;
        // It was out of reach for the lists; next time they look there.
        if let Some(online) = self.near.online()
            && online.frames.contains(frame)
        {
            let source = &mut self.sources[request.mobility() as usize];
            let huge = online.huge_of(frame);
            match request.order().get() {
                order if order < HUGE_ORDER => source.page_hint = huge,
                _ => source.huge_hint = huge,
            }
        }
        Ok(frame)
    }

    /// Fills the list of pages, or takes a bump block, and takes a page.
    fn refill_pages(&mut self, request: &Request) -> Option<Frame> {
        let mobility = request.mobility();
        let (shared, slot) = (self.shared, self.slot());
        let source = &mut self.sources[mobility as usize];
        let (node, zone) = (source.node, source.zone);
        let segments = || shared.nodes.segments.of_zone(node, zone);
        let hint = &mut source.page_hint;
        let taken = self.lists.refill(slot, mobility, Order::PAGE, |space| {
            let count = take_from_first(segments(), space, |segment, batch| {
                batch::take_pages(segment, mobility, hint, batch);
            });
            shared.nodes.prepare(&space[..count], Order::PAGE);
            count
        });
        if taken > 0 {
            shared.nodes.count_zone(node, zone, -i64::from(taken));
            return self.pop(mobility, 0);
        }
        if !self.has_huges || !self.may_cache(request, HUGE_FRAMES.into()) {
            return None;
        }
        let moving = slot.begin_move(HUGE_FRAMES.into());
        let cached = self.pop(mobility, HUGE_ORDER.into());
        let bump = cached.or_else(|| self.take_huge(mobility));
        let lists = self.lists.of(mobility);
        if let Some(huge) = bump {
            lists.set_bump(slot, mobility, huge);
        }
        slot.end_move(moving);
        if cached.is_none() && bump.is_some() {
            shared.nodes.count_zone(node, zone, -i64::from(HUGE_FRAMES));
        }
        self.lists.of(mobility).pop_bump(slot, mobility)
    }

    /// A huge frame of the CPU's own.
    fn take_huge(&mut self, mobility: Mobility) -> Option<Frame> {
        let mut one = [Frame::new(0)];
        let source = &mut self.sources[mobility as usize];
        let count = take_huges(self.shared, self.lists.slot(), mobility, source, &mut one);
        (count > 0).then_some(one[0])
    }

    /// Fills the list of huge frames and takes one.
    fn refill_huges(&mut self, mobility: Mobility) -> Option<Frame> {
        let (shared, slot) = (self.shared, self.slot());
        let source = &mut self.sources[mobility as usize];
        let taken = self.lists.refill(slot, mobility, Order::HUGE, |space| {
            take_huges(shared, slot, mobility, source, space)
        });
        let frames = i64::from(taken) * i64::from(HUGE_FRAMES);
        shared.nodes.count_zone(source.node, source.zone, -frames);
        self.pop(mobility, HUGE_ORDER.into())
    }

    /// Cuts a larger block into those of `order`, and takes one.
    fn refill_blocks(&mut self, mobility: Mobility, order: Order) -> Option<Frame> {
        let (shared, slot) = (self.shared, self.slot());
        let source = &self.sources[mobility as usize];
        let most = self.lists.of(mobility).refill_limit(order.get().into());
        let more = u8::try_from(most.checked_ilog2()?).unwrap_or(0);
        let larger = (order.get() + more).min(HUGE_ORDER - 1);
        if larger == order.get() {
            return None;
        }
        let want = BlockRequest::block(larger, mobility);
        let mut segments = shared.nodes.segments.of_zone(source.node, source.zone);
        let taken = self.lists.refill(slot, mobility, order, |space| {
            // Only where huge frames are split already: none is opened for it.
            let found = segments.find_map(|segment| {
                search::any_of_split(segment.online()?, &segment.hints, want, GIANTS)
            });
            let Some(start) = found else {
                return 0;
            };
            let count = 1 << (larger - order.get());
            for (entry, at) in space.iter_mut().zip(0..count) {
                *entry = Frame::new(start.get() + (at << order.get()));
            }
            let count = usize::try_from(count).unwrap_or(0).min(space.len());
            shared.nodes.prepare(&space[..count], order);
            count
        });
        let frames = i64::from(taken) << order.get();
        shared.nodes.count_zone(source.node, source.zone, -frames);
        self.pop(mobility, order.get().into())
    }

    // ---- Free ------------------------------------------------------------------

    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(&mut self, frame: Frame, order: Order) -> Result<(), BlockError> {
        self.poll();
        self.free_any(frame, order)
    }

    /// A block of any order, wherever it lies.
    #[inline]
    pub(super) fn free_any(&mut self, frame: Frame, order: Order) -> Result<(), BlockError> {
        if order.get() <= HUGE_ORDER
            && frame.is_aligned(order)
            && let Some(mobility) = self.allocated(frame, order)
        {
            if CHECKS && self.is_cached(mobility, frame, order) {
                return Err(BlockError::FreedTwice { frame, order });
            }
            return self.keep(mobility, frame, order);
        }
        self.free_shared(frame, order)
    }

    pub(super) fn is_cached(&mut self, mobility: Mobility, frame: Frame, order: Order) -> bool {
        let index = usize::from(order.get());
        let len = self.slot().len(mobility, index).load(Ordering::Relaxed);
        self.lists.of(mobility).entries(index)[..len as usize].contains(&frame)
    }

    /// Puts an allocated block, of a huge frame of this mobility, into its list.
    #[inline]
    pub(super) fn keep(
        &mut self,
        mobility: Mobility,
        frame: Frame,
        order: Order,
    ) -> Result<(), BlockError> {
        let (slot, lists) = (self.slot(), self.lists.of(mobility));
        if lists.push(slot, mobility, order.get().into(), frame) {
            return Ok(());
        }
        self.flush(mobility, frame, order)
    }

    /// Past all lists.
    fn free_shared(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        self.shared.free(frame, order)
    }

    /// What the huge frame of an aligned block was taken for, if the block is allocated and the
    /// lists take it.
    #[inline]
    pub(super) fn allocated(&mut self, frame: Frame, order: Order) -> Option<Mobility> {
        match self.window.allocated_block(frame, order.get()) {
            Some(mobility) if self.takes[mobility as usize] => Some(mobility),
            _ => self.allocated_elsewhere(frame, order),
        }
    }

    /// What the block at `frame` was taken for, if it is allocated and the lists take its segment; may move the window there.
    #[inline(never)]
    fn allocated_elsewhere(&mut self, frame: Frame, order: Order) -> Option<Mobility> {
        if !self.near.has(frame) {
            let segment = self.shared.nodes.segments.at(frame)?;
            let takes = (self.sources.each_ref()).map(|source| source.is_of(segment));
            if takes == [false; MOBILITIES] {
                return None;
            }
            self.look_near(segment, segment.online()?, takes);
        }
        let online = self.near.online()?;
        let frames = self.window.frames();
        if !frames.contains(frame) {
            self.missed = (self.missed + 1) % MISSES;
            if self.missed == 0 || frames.is_empty() {
                self.window = Window::around(online, frame);
            }
        }
        let mobility = online.allocated_block(frame, order.get())?;
        self.takes[mobility as usize].then_some(mobility)
    }

    /// A full list gives back its older half and takes one block more.
    #[cold]
    pub(super) fn flush(
        &mut self,
        mobility: Mobility,
        block: Frame,
        order: Order,
    ) -> Result<(), BlockError> {
        let index = usize::from(order.get());
        if self.lists.of(mobility).limit(index) == 0 {
            return self.free_shared(block, order);
        }
        self.slot().count(CpuEvent::Flush);
        self.flush_list(mobility, order);
        let (slot, lists) = (self.slot(), self.lists.of(mobility));
        let is_cached = lists.push(slot, mobility, index, block);
        debug_assert!(is_cached, "half of the list was given back");
        self.report()
    }

    /// The older half of a list goes back; how many blocks that were.
    fn flush_list(&mut self, mobility: Mobility, order: Order) -> usize {
        let mut count = 0;
        give!(self, mobility, |local, bad| {
            let (slot, nodes) = (self.lists.slot(), &self.shared.nodes);
            let lists = self.lists.of(mobility);
            count = lists.flush(slot, mobility, order.get().into(), |blocks| {
                nodes.give(order, blocks, local, &mut |frame| bad(frame, order));
            });
            count as u64 * order.frames()
        });
        count
    }

    // ---- Drain -------------------------------------------------------------------

    /// Writes to what it finds: a CPU that has nothing leaves its lists' lengths alone, which others
    /// may be reading.
    #[cold]
    pub(super) fn drain_all(&mut self) {
        let slot = self.slot();
        slot.count(CpuEvent::Drain);
        slot.begin_drain();
        for mobility in Mobility::ALL {
            for order in (0..=HUGE_ORDER).filter_map(Order::new) {
                let len = slot.len(mobility, order.get().into());
                while len.load(Ordering::Relaxed) > 0 && self.flush_list(mobility, order) > 0 {}
            }
            let bump = self.lists.of(mobility).bump_left(slot, mobility);
            self.drain_left(mobility, bump, |slot| {
                slot.bump(mobility).store(0, Ordering::Release);
            });
            if IS_KEPT {
                let zero = self.lists.of(mobility).zero_left(slot, mobility);
                self.drain_left(mobility, zero, |slot| slot.set_zero(mobility, 0));
            }
        }
        self.fill_from_nearest();
        slot.end_drain();
    }

    /// Frees what is left of a block that pages are cut from, as any pages, the first and how many; then
    /// says in the slot that none are.
    fn drain_left(
        &mut self,
        mobility: Mobility,
        (start, count): (u64, u64),
        none_left: impl FnOnce(&CpuSlot),
    ) {
        if count == 0 {
            return;
        }
        give!(self, mobility, |local, bad| {
            let (slot, nodes) = (self.lists.slot(), &self.shared.nodes);
            let pages = FrameRange::new(start, start + count).unwrap_or_default();
            nodes.give_run(pages, local, &mut |page| bad(page, Order::PAGE));
            none_left(slot);
            count
        });
    }

    /// Looks near where the blocks of a list may lie: where it looks now may have the same frames, and is
    /// of another zone.
    #[cold]
    fn move_near(&mut self, mobility: Mobility) {
        let source = &self.sources[mobility as usize];
        let segments = &self.shared.nodes.segments;
        let mut of_zone = segments.of_zone(source.node, source.zone);
        let online = of_zone.find_map(|segment| Some((segment, segment.online()?)));
        if let Some((segment, online)) = online {
            let takes = (self.sources.each_ref()).map(|source| source.is_of(segment));
            self.look_near(segment, online, takes);
        }
    }

    /// Looks near this segment, of which the lists take blocks or not, with an empty window.
    fn look_near(
        &mut self,
        segment: &'f ZoneSegment<'m>,
        online: &Segment<'m>,
        takes: [bool; MOBILITIES],
    ) {
        self.window = Window::empty(online);
        self.near = segment;
        self.takes = takes;
        for mobility in Mobility::ALL {
            let takes = takes[mobility as usize];
            self.lists.of(mobility).take_window(takes);
        }
    }

    /// What was found to be freed twice, once.
    pub(super) fn report(&mut self) -> Result<(), BlockError> {
        self.freed_twice.take().map_or(Ok(()), Err)
    }
}

impl Own for Cpu<'_, '_> {
    const CACHES: usize = 1;

    fn drain(&mut self) -> bool {
        let had_frames = self.slot().cached_frames() > 0;
        self.drain_all();
        had_frames
    }
}

/// Fills `space` from the first of `segments` that `take` finds something in; how many.
fn take_from_first<'s, 'm: 's>(
    mut segments: impl Iterator<Item = &'s ZoneSegment<'m>>,
    space: &mut [Frame],
    mut take: impl FnMut(&Segment<'m>, &mut Batch<'_>),
) -> usize {
    let mut batch = Batch::new(space);
    segments.any(|segment| {
        if let Some(online) = segment.online() {
            take(online, &mut batch);
        }
        batch.count() > 0
    });
    batch.count()
}

/// Fills `space` with huge frames from where the CPU is at home; how many.
fn take_huges(
    shared: &Frames<'_>,
    slot: &CpuSlot,
    mobility: Mobility,
    source: &mut Source,
    space: &mut [Frame],
) -> usize {
    let (node, zone) = (source.node, source.zone);
    let segments = shared.nodes.segments.of_zone(node, zone);
    let is_home = |start: Frame| {
        let giant = start.get() >> GIANT_ORDER;
        shared.cpus.slots().any(|of| {
            let is_mine = |one| core::ptr::eq(of, slot) && one == mobility;
            (Mobility::ALL.into_iter()).any(|one| of.is_home(one, giant) && !is_mine(one))
        })
    };
    let count = take_from_first(segments, space, |segment, batch| {
        let hint = &mut source.huge_hint;
        batch::take_huges(segment, mobility, hint, is_home, batch);
        if batch.count() > 0 {
            slot.set_home(mobility, segment.huge_start(*hint) >> GIANT_ORDER);
        }
    });
    shared.nodes.prepare(&space[..count], Order::HUGE);
    count
}
