//! Any number of frames, through the lists: a block that is large enough, less what is too
//! much of it.

use super::Cpu;
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::{AllocError, BlockError, RangeError};
use crate::frames::range;
use crate::frames::request::Request;
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{
    Block, HUGE_FRAMES, HUGE_ORDER, blocks, blocks_down, blocks_up_to,
};

/// Order of the smallest block of so many frames, so aligned; neither is zero.
#[inline]
fn order_of(frames: u64, align_frames: u64) -> Option<Order> {
    let less_one = frames.max(align_frames) - 1;
    let order = u64::BITS - less_one.leading_zeros();
    Order::new(u8::try_from(order).ok()?)
}

/// `start..end`, which are in order.
fn span(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).unwrap_or_default()
}

/// With the feature that refuses what is cached already, pieces take the same way as blocks.
const CHECKS: bool = cfg!(feature = "check-double-free");

impl Cpu<'_, '_> {
    /// Allocates `frames` frames in a row, the first a multiple of `align_frames`, as
    /// [`Frames::allocate_frames`](crate::frames::Frames::allocate_frames) does. Up to a huge
    /// frame they come from this CPU's lists.
    ///
    /// ```
    /// # use firstlight::addr::Order;
    /// # use firstlight::frames::{Cpu, Request};
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
        range::contiguous::check(frames, align_frames)?;
        let align_frames = align_frames.max(request.order().frames());
        if let Some(order) = order_of(frames, align_frames)
            && order.get() <= HUGE_ORDER
            && !request.is_zeroed()
        {
            if let Some(start) = self.cut_cached(&request, order, frames) {
                return Ok(span(start.get(), start.get() + frames));
            }
            if let Some(start) = self.cut_free(&request, order, frames) {
                return Ok(span(start.get(), start.get() + frames));
            }
        }
        let (shared, node) = (self.shared, self.node);
        let request = self.at_home(request);
        shared.allocate_frames_near(Some(node), frames, align_frames, request, self)
    }

    /// The first `frames` of the block of `order` on top of the list that serves a request. The
    /// rest moves to other lists, or goes back.
    #[inline]
    fn cut_cached(&mut self, request: &Request, order: Order, frames: u64) -> Option<Frame> {
        if self.slot.is_drain_requested() || !self.serves(request) {
            return None;
        }
        let (slot, mobility) = (self.slot, request.mobility());
        let all = order.frames();
        if all == frames {
            return (self.cache.of(mobility)).pop(slot, mobility, order.get().into());
        }
        // Other CPUs see the rest in one list or the other, or that it moves.
        let moving = slot.begin_move(all - frames);
        let start = (self.cache.of(mobility)).pop(slot, mobility, order.get().into());
        if let Some(start) = start {
            let (rest, end) = (start.get() + frames, start.get() + all);
            self.give_rest(rest, end, frames, Some(mobility));
        }
        slot.end_move(moving);
        start
    }

    /// The same of a block that no list has.
    fn cut_free(&mut self, request: &Request, order: Order, frames: u64) -> Option<Frame> {
        self.poll();
        let slot = self.slot;
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
            return self.give_shared(span(rest, end));
        }
        for Block { start, order } in blocks_up_to(rest, end) {
            if let Some(mobility) = cached {
                let (slot, lists) = (self.slot, self.cache.of(mobility));
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

    /// Gives back a part of a block that was allocated, past all lists.
    fn give_shared(&mut self, part: FrameRange) {
        let nodes = &self.shared.nodes;
        let Some(segment) = nodes.segments.at(part.start()) else {
            return;
        };
        let mut given = 0;
        if let Some(online) = segment.online() {
            // The largest first: the others are part of its huge frame then.
            for block in blocks_down(part) {
                match (online.give(block), Order::new(block.order)) {
                    (Ok(()), _) => given += block.frames().cast_signed(),
                    (Err(_), Some(order)) => {
                        let frame = block.start;
                        let error = BlockError::FreedTwice { frame, order };
                        self.freed_twice.get_or_insert(error);
                    }
                    (Err(_), None) => {}
                }
            }
        }
        nodes.count(segment, given);
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
    /// As [`Frames::free_frames`](crate::frames::Frames::free_frames).
    pub fn free_frames(&mut self, range: FrameRange) -> Result<(), RangeError> {
        if CHECKS || !(1..=u64::from(HUGE_FRAMES)).contains(&range.count()) {
            return range::free(&self.shared.nodes, range);
        }
        self.poll();
        if self.join_cached(range) {
            return Ok(());
        }
        let mut of_one = None;
        for Block { start, order } in blocks(range) {
            let allocated = Order::new(order).and_then(|order| self.allocated(start, order));
            let Some(mobility) = allocated.filter(|&one| *of_one.get_or_insert(one) == one) else {
                // It lies elsewhere, or not all of it is allocated.
                return range::free(&self.shared.nodes, range);
            };
            of_one = Some(mobility);
        }
        for Block { start, order } in blocks(range) {
            if let (Some(mobility), Some(order)) = (of_one, Order::new(order)) {
                let freed = self.keep(mobility, start, order);
                self.report_later(freed);
            }
        }
        Ok(())
    }

    /// Frees `range` together with blocks on top of this CPU's lists, if all form one aligned
    /// block; returns whether they did.
    #[inline]
    fn join_cached(&mut self, range: FrameRange) -> bool {
        let (start, rest) = (range.start(), range.end().get());
        let Some(order) = order_of(range.count(), 1) else {
            return false;
        };
        if !start.is_aligned(order) {
            return false;
        }
        let Some(mobility) = self.allocated(start, order) else {
            return false;
        };
        let end = start.get() + order.frames();
        if rest == end {
            let freed = self.keep(mobility, start, order);
            self.report_later(freed);
            return true;
        }
        let slot = self.slot;
        // As in `cut_cached`.
        let moving = slot.begin_move(end - rest);
        let lists = self.cache.of(mobility);
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
