//! Any number of frames, through the lists: a block that is large enough, less what is too
//! much of it.

use super::Cpu;
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::{AllocError, BlockError, RangeError};
use crate::frames::range;
use crate::frames::request::Request;
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{Block, HUGE_FRAMES, HUGE_ORDER, blocks, blocks_down};

/// Order of the smallest block of so many frames, so aligned; neither is zero.
fn order_of(frames: u64, align_frames: u64) -> Option<Order> {
    let less_one = frames.max(align_frames) - 1;
    let order = less_one.checked_ilog2().map_or(0, |order| order + 1);
    Order::new(u8::try_from(order).ok()?)
}

/// `start..end`, which are in order.
fn span(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).unwrap_or_default()
}

/// With the feature that refuses what is cached already, pieces take the same way as blocks.
const CHECKS: bool = cfg!(feature = "check-double-free");

impl Cpu<'_, '_> {
    /// Takes `frames` frames in a row, the first a multiple of `align_frames`, as
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
            && let Some((start, cached)) = self.allocate_whole(request.with_order(order))
        {
            let (first, end) = (start.get(), start.get() + frames);
            let rest = span(end, first + order.frames());
            let Some(mobility) = cached else {
                self.give_rest(rest, frames, cached);
                return Ok(span(first, end));
            };
            // Other CPUs see what is left of it in one list or the other, or that it moves.
            self.begin_move(rest);
            self.give_rest(rest, frames, cached);
            let lists = self.cache.of(mobility);
            lists.pop(self.slot, mobility, order.get().into());
            self.slot.end_move();
            return Ok(span(first, end));
        }
        let (shared, node) = (self.shared, self.node);
        let request = self.at_home(request);
        shared.allocate_frames(node, frames, align_frames, request, self)
    }

    /// A block; from a list, of which mobility that is: then it is on top of that list still.
    #[inline]
    fn allocate_whole(&mut self, request: Request) -> Option<(Frame, Option<Mobility>)> {
        let mobility = request.mobility();
        if !self.slot.is_drain_requested() && self.serves(&request) {
            let (slot, lists) = (self.slot, self.cache.of(mobility));
            if let Some(start) = lists.top(slot, mobility, request.order().get().into()) {
                return Some((start, Some(mobility)));
            }
        }
        let start = self.allocate_slow(request.no_drain()).ok()?;
        Some((start, None))
    }

    /// Frames, a huge frame at most, are going to move from one list to another.
    fn begin_move(&self, frames: FrameRange) {
        let count = u32::try_from(frames.count()).unwrap_or(HUGE_FRAMES);
        self.slot.begin_move(count);
    }

    /// Gives back the rest of a block that was too large for `frames` frames.
    fn give_rest(&mut self, rest: FrameRange, frames: u64, cached: Option<Mobility>) {
        // Little goes into the lists, much is left for all.
        if rest.count() > frames {
            return self.give_shared(rest);
        }
        for Block { start, order } in blocks(rest) {
            let Some(order) = Order::new(order) else {
                continue;
            };
            let given = match cached {
                Some(mobility) => self.keep(mobility, start, order),
                None => self.free_slow(start, order),
            };
            self.report_later(given);
        }
    }

    /// Gives back a part of a block that was allocated, past all lists.
    fn give_shared(&self, part: FrameRange) {
        let nodes = &self.shared.nodes;
        let Some(segment) = nodes.segments.at(part.start()) else {
            return;
        };
        let mut given = 0;
        if let Some(online) = segment.online() {
            // The largest first: the others are part of its huge frame then.
            for block in blocks_down(part) {
                let frames = online.give(block).map_or(0, |()| block.frames());
                given += frames.cast_signed();
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

    /// Gives back frames in a row, as
    /// [`Frames::free_frames`](crate::frames::Frames::free_frames) does.
    ///
    /// # Errors
    /// As [`Frames::free_frames`](crate::frames::Frames::free_frames).
    pub fn free_frames(&mut self, range: FrameRange) -> Result<(), RangeError> {
        if range.count() > u64::from(HUGE_FRAMES) || range.is_empty() || CHECKS {
            return range::free(&self.shared.nodes, range);
        }
        self.poll();
        if let Some((mobility, start, order)) = self.whole_of(range) {
            // As above.
            let rest = span(range.end().get(), start.get() + order.frames());
            self.begin_move(rest);
            let freed = self.keep(mobility, start, order);
            self.report_later(freed);
            for block in blocks(rest) {
                let lists = self.cache.of(mobility);
                lists.pop(self.slot, mobility, block.order.into());
            }
            self.slot.end_move();
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

    /// The block that `range` and the blocks on top of this CPU's lists make up, if they do;
    /// those are on the lists still.
    fn whole_of(&mut self, range: FrameRange) -> Option<(Mobility, Frame, Order)> {
        let order = order_of(range.count(), 1)?;
        let start = range.start();
        if !start.is_aligned(order) {
            return None;
        }
        let mobility = self.allocated(start, order)?;
        let rest = span(range.end().get(), start.get() + order.frames());
        let (slot, lists) = (self.slot, self.cache.of(mobility));
        let is_on_top =
            |block: Block| lists.top(slot, mobility, block.order.into()) == Some(block.start);
        if !blocks(rest).all(is_on_top) {
            return None;
        }
        Some((mobility, start, order))
    }
}
