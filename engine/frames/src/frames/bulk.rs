//! Many blocks of one order at a time.

use super::error::{AllocError, BlockError};
use super::find::Frames;
use super::request::Request;
use super::search::batch::{self, Batch};
use super::segment::window::Window;
use super::zone::give::Local;
use crate::addr::{Frame, Order};

impl Frames<'_> {
    /// Allocates blocks for all entries of `blocks`, as [`Frames::allocate`] would one by one but
    /// up to 64 pages at a time. Returns how many there were: the first so many entries hold
    /// them. Fewer only when memory ran out, or what holds zeros if those are requested.
    ///
    /// # Errors
    /// [`AllocError::NoSuchNode`]; [`AllocError::NotZeroed`] of the first block.
    ///
    /// ```
    /// # use firstlight_frames::addr::{Frame, Order};
    /// # use firstlight_frames::frames::{AllocError, Frames, Request};
    /// fn ring_buffer(frames: &Frames<'_>) -> Result<Option<[Frame; 256]>, AllocError> {
    ///     let mut pages = [Frame::new(0); 256];
    ///     let count = frames.allocate_bulk(Request::new(Order::PAGE), &mut pages)?;
    ///     if count < pages.len() {
    ///         let _ = frames.free_bulk(&pages[..count], Order::PAGE);
    ///         return Ok(None);
    ///     }
    ///     Ok(Some(pages))
    /// }
    /// ```
    pub fn allocate_bulk(
        &self,
        request: Request,
        blocks: &mut [Frame],
    ) -> Result<usize, AllocError> {
        let (order, mobility) = (request.order(), request.mobility());
        let mut done = 0;
        while let Some(left @ [_, ..]) = blocks.get_mut(done..) {
            // One by the rules of `allocate`; the next ones are from the same segment.
            let frame = match self.allocate(request) {
                Ok(frame) => frame,
                Err(AllocError::OutOfMemory { .. }) => break,
                // Those before it are the caller's.
                Err(AllocError::NotZeroed { .. }) if done > 0 => break,
                Err(error) => return Err(error),
            };
            left[0] = frame;
            done += 1;
            let Some(segment) = self.nodes.segments.at(frame) else {
                continue;
            };
            let Some(online) = segment.online() else {
                continue;
            };
            // No more than the water marks allow.
            let most = self.nodes.most_allowed(&request, segment) / order.frames();
            let len = usize::try_from(most)
                .unwrap_or(usize::MAX)
                .min(left.len() - 1);
            let mut batch = Batch::new(&mut left[1..=len]);
            let mut hint = online.huge_of(frame);
            if order == Order::PAGE {
                batch::take_pages(online, mobility, &mut hint, &mut batch);
            } else if order == Order::HUGE {
                batch::take_huges(online, mobility, &mut hint, |_| false, &mut batch);
            }
            self.nodes.prepare(batch.frames(), order);
            let taken = batch.count() as u64 * order.frames();
            self.nodes.count(segment, -taken.cast_signed());
            done += batch.count();
        }
        Ok(done)
    }

    /// Frees blocks of one order, neighbours together.
    ///
    /// # Errors
    /// That of one of the blocks that could not be freed, as from [`Frames::free`]. All others
    /// are freed.
    pub fn free_bulk(&self, blocks: &[Frame], order: Order) -> Result<(), BlockError> {
        let mut refused = Ok(());
        let same_word = |one: &Frame, other: &Frame| one.get() / 64 == other.get() / 64;
        for blocks in blocks.chunk_by(|one, other| order == Order::PAGE && same_word(one, other)) {
            let freed = match blocks {
                [block] => self.free(*block, order),
                [first, ..] => self.free_pages(*first, blocks),
                [] => Ok(()),
            };
            refused = refused.and(freed);
        }
        refused
    }

    /// Frees pages of one word of a bitmap.
    fn free_pages(&self, first: Frame, pages: &[Frame]) -> Result<(), BlockError> {
        let (nodes, order) = (&self.nodes, Order::PAGE);
        let one_by_one = || {
            let one = |all: Result<(), _>, &page| all.and(self.free(page, order));
            pages.iter().fold(Ok(()), one)
        };
        let Some(zone_segment) = nodes.segments.at(first) else {
            return one_by_one();
        };
        let Some(segment) = zone_segment.online() else {
            return one_by_one();
        };
        // The pages lie on both sides of a border, or some are reserved.
        let is_inside = |page: &Frame| segment.frames.contains(*page);
        if !pages.iter().all(is_inside) || pages.iter().any(|&page| segment.is_reserved(page)) {
            return one_by_one();
        }
        let mut refused = Ok(());
        let mut freed = pages.len() as i64;
        let window = &Window::empty(segment);
        let local = Local { segment, window };
        nodes.give(order, pages, &local, &mut |frame| {
            freed -= 1;
            refused = refused.and(Err(BlockError::NotAllocated { frame, order }));
        });
        nodes.count(zone_segment, freed);
        refused
    }
}
