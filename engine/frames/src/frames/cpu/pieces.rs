//! Any number of frames, through the lists: a block that is large enough, less what is too
//! much of it.

use super::{CHECKS, Cpu};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::{AllocError, BlockError, RangeError};
use crate::frames::range;
use crate::frames::range::cut::order_of;
use crate::frames::request::Request;
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{Block, blocks, blocks_up_to};

impl Cpu<'_, '_> {
    /// Allocates `frames` frames in a row, the first a multiple of `align_frames`, as
    /// [`Frames::allocate_frames`](crate::frames::Frames::allocate_frames) does. Up to a huge
    /// frame they come from this CPU's lists.
    ///
    /// ```
    /// # use firstlight_frames::addr::Order;
    /// # use firstlight_frames::frames::{Cpu, Request};
    /// fn three(cpu: &mut Cpu<'_, '_>) -> Result<(), Box<dyn std::error::Error>> {
    ///     let stack = cpu.allocate_frames(3, 1, Request::new(Order::PAGE))?;
    ///     assert_eq!(stack.count(), 3);
    ///     cpu.free_frames(stack)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Frames::allocate_frames`](crate::frames::Frames::allocate_frames).
    pub fn allocate_frames(
        &mut self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        match self.cut_cached(frames, align_frames, &request) {
            Some(start) => Ok(FrameRange::of(start, frames)),
            None => self.allocate_frames_slow(frames, align_frames, request),
        }
    }

    /// Takes frames in a row where no list has a block that is large enough.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_frames_slow(
        &mut self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        range::contiguous::check(frames, align_frames)?;
        let align_frames = align_frames.max(request.order().frames());
        if let Some(order) = order_of((frames - 1) | (align_frames - 1))
            && !request.is_zeroed()
            && self.caches(order)
            && let Some(start) = self.cut_free(&request, order, frames)
        {
            return Ok(FrameRange::of(start, frames));
        }
        let (shared, node) = (self.shared, self.node);
        shared.allocate_frames_near(Some(node), frames, align_frames, request, self)
    }

    /// The first `frames` of the block on top of the list that serves a request. The rest moves to
    /// other lists, or goes back. `None` if the list is empty, or for a request that is refused.
    #[inline]
    pub(super) fn cut_cached(
        &mut self,
        frames: u64,
        align_frames: u64,
        request: &Request,
    ) -> Option<Frame> {
        let is_served = align_frames.is_power_of_two() && self.serves(request);
        if !is_served || self.slot().is_drain_requested() {
            return None;
        }
        let align_less_one = (align_frames - 1) | (request.order().frames() - 1);
        let order = order_of(frames.checked_sub(1)? | align_less_one)?;
        let (slot, mobility) = (self.slot(), request.mobility());
        let (all, index) = (order.frames(), usize::from(order.get()));
        if all == frames {
            return (self.lists.of(mobility)).pop(slot, mobility, index);
        }
        // Other CPUs see the rest in one list or the other, or that it moves.
        let moving = slot.begin_move(all - frames);
        let start = (self.lists.of(mobility)).pop(slot, mobility, index);
        if let Some(start) = start {
            let (rest, end) = (start.get() + frames, start.get() + all);
            self.give_rest(rest, end, frames, Some(mobility));
        }
        slot.end_move(moving);
        start
    }

    /// Takes the start of a block that no list has, and caches or frees the rest.
    fn cut_free(&mut self, request: &Request, order: Order, frames: u64) -> Option<Frame> {
        self.poll();
        let slot = self.slot();
        // As in `cut_cached`; meanwhile other CPUs find none of the block.
        let moving = slot.begin_move(order.frames());
        let start = self.allocate_slow(request.with_order(order).attempt());
        if let Ok(start) = start {
            let (rest, end) = (start.get() + frames, start.get() + order.frames());
            self.give_rest(rest, end, frames, None);
        }
        slot.end_move(moving);
        start.ok()
    }

    /// Frees `rest..end` of a block: into the lists if it is at most `frames` frames, else to the
    /// shared levels. `cached` is the mobility of the list the block is from, if from one.
    #[inline(always)]
    fn give_rest(&mut self, rest: u64, end: u64, frames: u64, cached: Option<Mobility>) {
        // Little goes into the lists, much is left for all.
        if end - rest > frames {
            return self.give_shared(FrameRange::of(Frame::new(rest), end - rest));
        }
        for Block { start, order } in blocks_up_to(rest, end) {
            if let Some(mobility) = cached {
                let (slot, lists) = (self.slot(), self.lists.of(mobility));
                if lists.push(slot, mobility, order.into(), start) {
                    continue;
                }
            }
            let Some(order) = Order::new(order) else {
                continue;
            };
            let given = match cached {
                Some(mobility) => self.flush(mobility, start, order),
                None => self.free_any(start, order),
            };
            self.report_later(given);
        }
    }

    /// Gives back a part of a huge frame that was allocated, past all lists.
    fn give_shared(&mut self, part: FrameRange) {
        if !self.shared.nodes.free_part(part) {
            let (frame, order) = (part.start(), Order::PAGE);
            let error = BlockError::FreedTwice { frame, order };
            self.freed_twice.get_or_insert(error);
        }
    }

    /// Keeps an error that the next call to free or drain reports.
    fn report_later(&mut self, freed: Result<(), BlockError>) {
        if let Err(error) = freed {
            self.freed_twice.get_or_insert(error);
        }
    }

    /// Frees `range`, as
    /// [`Frames::free_frames`](crate::frames::Frames::free_frames) does.
    ///
    /// # Errors
    /// As [`Frames::free_frames`](crate::frames::Frames::free_frames), and [`RangeError::FreedTwice`].
    pub fn free_frames(&mut self, range: FrameRange) -> Result<(), RangeError> {
        if self.join_cached(range) {
            Ok(())
        } else {
            self.free_frames_slow(range)
        }
    }

    /// Frees a range block by block: for what lies outside of the window, forms no block with others, or finds
    /// no space.
    #[cold]
    #[inline(never)]
    pub(super) fn free_frames_slow(&mut self, range: FrameRange) -> Result<(), RangeError> {
        let is_cached = |order| self.caches(order);
        if !order_of(range.count().wrapping_sub(1)).is_some_and(is_cached) {
            return range::free(&self.shared.nodes, range);
        }
        self.poll();
        // Where the window was elsewhere, no join was tried yet; now it is here.
        if !self.window.frames().contains(range.start())
            && self.allocated(range.start(), Order::PAGE).is_some()
            && self.window.frames().contains(range.start())
        {
            return self.free_frames(range);
        }
        let mut of_one = None;
        for Block { start, order } in blocks(range) {
            let order = Order::new(order).unwrap_or_default();
            let allocated = self.allocated(start, order);
            let Some(mobility) = allocated.filter(|&one| *of_one.get_or_insert(one) == one) else {
                // It lies elsewhere, or not all of it is allocated.
                return range::free(&self.shared.nodes, range);
            };
            if CHECKS && self.is_cached(mobility, start, order) {
                let frame = start;
                return Err(RangeError::FreedTwice { frame, order });
            }
        }
        if let Some(mobility) = of_one {
            for Block { start, order } in blocks(range) {
                let freed = self.keep(mobility, start, Order::new(order).unwrap_or_default());
                self.report_later(freed);
            }
        }
        match self.report() {
            Err(BlockError::FreedTwice { frame, order }) => {
                Err(RangeError::FreedTwice { frame, order })
            }
            _ => Ok(()),
        }
    }

    /// Caches `range` of the window, together with blocks on top of this CPU's lists, if all form one
    /// aligned block; returns whether they did.
    #[inline]
    pub(super) fn join_cached(&mut self, range: FrameRange) -> bool {
        if CHECKS || self.slot().is_drain_requested() {
            return false;
        }
        let Some(order) = block_from(range) else {
            return false;
        };
        let (start, slot) = (range.start(), self.slot());
        let Some(mobility) = self.window.allocated_block(start, order.get()) else {
            return false;
        };
        if order.frames() == range.count() {
            let lists = self.lists.of(mobility);
            return lists.push_of_window(slot, mobility, order.get().into(), start);
        }
        self.takes[mobility as usize] && self.join(mobility, order, range)
    }

    /// Joins `range`, the start of an allocated block of `order`, with the blocks that make up the rest, if they are on top of
    /// their lists.
    #[inline]
    fn join(&mut self, mobility: Mobility, order: Order, range: FrameRange) -> bool {
        let (start, rest) = (range.start(), range.end().get());
        let end = start.get() + order.frames();
        let slot = self.slot();
        // As in `cut_cached`.
        let moving = slot.begin_move(end - rest);
        let lists = self.lists.of(mobility);
        let mut is_on_top =
            |block: &Block| lists.pop_if(slot, mobility, block.order.into(), block.start);
        let apart = blocks_up_to(rest, end).find(|block| !is_on_top(block));
        let is_whole = apart.is_none();
        if let Some(apart) = apart {
            // One list each.
            for Block { start, order } in blocks_up_to(rest, end) {
                if start == apart.start {
                    break;
                }
                let is_back = lists.push(slot, mobility, order.into(), start);
                debug_assert!(is_back, "it came from there");
            }
        } else {
            let freed = self.keep(mobility, start, order);
            self.report_later(freed);
        }
        slot.end_move(moving);
        is_whole
    }
}

/// Order of the smallest block, a huge frame at most, that begins with `range`, if that can start one.
#[inline(always)]
fn block_from(range: FrameRange) -> Option<Order> {
    let order = order_of(range.count().checked_sub(1)?)?;
    range.start().is_aligned(order).then_some(order)
}
