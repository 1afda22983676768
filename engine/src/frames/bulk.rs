//! Taking and giving back many pages or huge frames at a time: what stands
//! between a CPU's magazines and the shared levels.
//!
//! Up to 64 pages cost two atomic operations when they lie in one word of a
//! bitmap: one on the count, one on the bits. Huge frames cost one each, and one
//! for all of those of a giant frame.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::Frames;
use super::directory::Directory;
use super::error::{AllocError, BlockError};
use super::geometry::{Block, HUGE_FRAMES, HUGE_ORDER, ROW_WORDS};
use super::place::Place;
use super::request::{Mobility, Request};
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::word::{Change, Giant, GiantState, Huge, HugeState};
use crate::addr::{Frame, FrameRange, Order};
use crate::sync::{AtomicU32, Ordering, pause};

/// How many giant frames to pass in search of pages or huge frames.
const GIANTS: usize = 64;
/// How many huge frames to take pages from at a time.
const HUGES: usize = 32;

/// For how many pages that are given back next the processor fetches the words already.
const AHEAD: usize = 16;
/// How many huge frames are given back before their giant frames' counts are raised.
const GIVEN: usize = 16;

/// Frames on their way from the shared levels to whoever asked for them.
#[derive(Debug)]
pub(super) struct Basket<'a> {
    frames: &'a mut [Frame],
    count: usize,
}

impl<'a> Basket<'a> {
    pub(super) fn new(frames: &'a mut [Frame]) -> Self {
        Self { frames, count: 0 }
    }

    /// How many frames are in it, from the first place on.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn room(&self) -> u32 {
        u32::try_from(self.frames.len() - self.count).unwrap_or(u32::MAX)
    }

    fn put(&mut self, frame: Frame) {
        debug_assert!(self.room() > 0, "{frame} would be lost");
        if let Some(place) = self.frames.get_mut(self.count) {
            *place = frame;
            self.count += 1;
        }
    }
}

impl Segment<'_> {
    /// Takes single pages from huge frames that are split for `mobility`, from the
    /// one last used on: as many as there is room for, or what some of them have.
    pub(super) fn take_pages(&self, mobility: Mobility, near: &AtomicU32, basket: &mut Basket<'_>) {
        if basket.room() == 0 {
            return;
        }
        let from = near.load(Ordering::Relaxed) as usize;
        let mut left = HUGES;
        for giant in self.giants_around(from, mobility).take(GIANTS) {
            let word = self.giant(giant);
            if word.state != GiantState::Split || word.partial[mobility as usize] == 0 {
                continue;
            }
            let mut emptied = 0;
            for huge in self.huges_around(giant, from, mobility) {
                if !Huge::is_partial_in(self.huge_bits(huge), mobility) {
                    continue;
                }
                emptied += self.take_pages_of(huge, mobility, basket);
                if huge != from {
                    near.store(huge as u32, Ordering::Relaxed);
                }
                left -= 1;
                if basket.room() == 0 || left == 0 {
                    break;
                }
            }
            // One step for all of them.
            if emptied > 0 {
                self.settle_giant(giant, Change::partial(mobility, -emptied));
            }
            if basket.room() == 0 || left == 0 {
                return;
            }
        }
    }

    /// Takes as many pages of one huge frame as it has and there is room for. Says 1 if they
    /// were its last: its giant frame counts it as partial still, for the caller to settle.
    fn take_pages_of(&self, huge: HugeIndex, mobility: Mobility, basket: &mut Basket<'_>) -> i32 {
        let Some(promise) = self.promise_up_to(huge, mobility, basket.room()) else {
            return 0;
        };
        let first = self.huge_frames(huge).start().get();
        let mut left = promise.count();
        loop {
            for index in 0..ROW_WORDS {
                let mut bits = self.row(huge).claim_some(index, left);
                left -= bits.count_ones();
                while bits != 0 {
                    let page = index as u64 * 64 + u64::from(bits.trailing_zeros());
                    basket.put(Frame::new(first + page));
                    bits &= bits - 1;
                }
                if left == 0 {
                    return i32::from(promise.was_all());
                }
            }
            // What is promised is there: another CPU took what was seen and left its own.
            pause();
        }
    }

    /// Takes whole huge frames for `mobility`, as many as there is room for and are near:
    /// of split giant frames, else of the first that is whole.
    pub(super) fn take_huges(&self, mobility: Mobility, near: &AtomicU32, basket: &mut Basket<'_>) {
        if basket.room() == 0 {
            return;
        }
        let from = near.load(Ordering::Relaxed) as usize;
        let mut whole = None;
        for giant in self.giants_around(from, mobility).take(GIANTS) {
            let word = self.giant(giant);
            match word.state {
                GiantState::Whole => whole = whole.or(Some((giant, word))),
                GiantState::Split if word.free > 0 => {
                    self.take_huges_of(giant, word, mobility, near, basket);
                }
                _ => {}
            }
            if basket.room() == 0 {
                return;
            }
        }
        if basket.count() == 0
            && let Some((giant, word)) = whole
        {
            let start = self.giant_frames(giant).start();
            let order = HUGE_ORDER;
            if self.split_giant(giant, word, Block { start, order }, mobility) {
                basket.put(start);
                self.take_huges_of(giant, self.giant(giant), mobility, near, basket);
            }
        }
    }

    /// Takes as many huge frames as there is room for and giant frame `giant`, found as
    /// `word`, has.
    fn take_huges_of(
        &self,
        giant: GiantIndex,
        word: Giant,
        mobility: Mobility,
        near: &AtomicU32,
        basket: &mut Basket<'_>,
    ) {
        let count = word.free.min(basket.room());
        if count > 0 && (self.change_giant(giant, Change::free(-(count as i32)))).is_ok() {
            let from = near.load(Ordering::Relaxed) as usize;
            let last = self.find_promised_huges(giant, count, from, mobility, basket);
            near.store(last as u32, Ordering::Relaxed);
        }
    }

    /// Finds `count` free huge frames this CPU was promised; says which was the last.
    fn find_promised_huges(
        &self,
        giant: GiantIndex,
        mut count: u32,
        from: HugeIndex,
        mobility: Mobility,
        basket: &mut Basket<'_>,
    ) -> HugeIndex {
        let to = Huge::allocated(mobility);
        loop {
            for huge in self.huges_around(giant, from, mobility) {
                if self.huge_bits(huge) == Huge::FREE.pack() && self.swap_huge(huge, Huge::FREE, to)
                {
                    basket.put(self.huge_frames(huge).start());
                    count -= 1;
                    if count == 0 {
                        return huge;
                    }
                }
            }
            pause();
        }
    }

    /// Makes a huge frame free that lies in the segment and is allocated as one, and says in
    /// which giant frame: its count is the caller's to raise.
    fn give_huge(&self, start: Frame) -> Option<GiantIndex> {
        self.allocated_block(start, HUGE_ORDER)?;
        let (giant, huge) = (self.giant_of(start), self.huge_of(start));
        let word = self.huge(huge);
        let mine = word.state == HugeState::Allocated
            && !word.isolated
            && self.swap_huge(huge, word, Huge::FREE);
        mine.then_some(giant)
    }

    /// Gives back pages of one word of a huge frame's bitmap, those whose bits are
    /// set. Says which of them were not allocated.
    fn give_pages_of(&self, huge: HugeIndex, index: usize, bits: u64) -> u64 {
        let giant = self.giant_of(self.huge_frames(huge).start());
        let page = |bits: u64| index as u32 * 64 + bits.trailing_zeros();
        let (mut left, mut refused) = (bits, 0);
        while left != 0 {
            // Only below a giant frame that is split already is the huge frame's word written.
            let is_split = self.giant(giant).state == GiantState::Split;
            match is_split.then(|| self.huge(huge).state) {
                Some(HugeState::Split) => {
                    let (released, run) = self.row(huge).release_some(index, left);
                    if released != 0 {
                        self.return_pages(giant, huge, released.count_ones(), run);
                    }
                    return refused | left & !released;
                }
                Some(HugeState::Splitting) => pause(),
                Some(HugeState::Free) => return refused | left,
                // It opens with one page; the others follow.
                _ => {
                    let start = self.huge_frames(huge).start().get() + u64::from(page(left));
                    let block = Block {
                        start: Frame::new(start),
                        order: 0,
                    };
                    let rest = left & (left - 1);
                    if self.free(block).is_err() {
                        refused |= left & !rest;
                    }
                    left = rest;
                }
            }
        }
        refused
    }
}

impl<'m> Frames<'m> {
    /// Takes blocks for all places of `blocks`, as [`Frames::allocate`] would one by one but
    /// up to 64 pages at a time, and says how many there were: the first so many places
    /// hold them. Fewer only when memory ran out.
    ///
    /// # Errors
    /// [`AllocError::NoSuchNode`].
    ///
    /// ```
    /// # use firstlight::addr::{Frame, Order};
    /// # use firstlight::frames::{AllocError, Frames, Request};
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
        let mut basket = Basket::new(blocks);
        while basket.room() > 0 {
            // One by the rules of `allocate`; it says where the next ones are.
            let frame = match self.allocate(request) {
                Ok(frame) => frame,
                Err(AllocError::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            };
            basket.put(frame);
            let Some(place) = self.directory.place_at(frame) else {
                continue;
            };
            let (segment, before) = (place.segment(), basket.count());
            let near = AtomicU32::new(segment.huge_of(frame) as u32);
            if order == Order::PAGE {
                segment.take_pages(mobility, &near, &mut basket);
            } else if order == Order::HUGE {
                segment.take_huges(mobility, &near, &mut basket);
            }
            let taken = (basket.count() - before) as u64 * order.frames();
            self.count(place, -taken.cast_signed());
        }
        Ok(basket.count())
    }

    /// Gives back blocks of one order, neighbours together.
    ///
    /// # Errors
    /// That of one of the blocks that could not be given back, as from [`Frames::free`]. All
    /// others are.
    pub fn free_bulk(&self, blocks: &[Frame], order: Order) -> Result<(), BlockError> {
        let mut refused = Ok(());
        for blocks in
            blocks.chunk_by(|one, other| order == Order::PAGE && one.get() / 64 == other.get() / 64)
        {
            let free = match blocks {
                [block] => self.free(*block, order),
                [first, ..] => self.free_pages(*first, blocks),
                [] => Ok(()),
            };
            refused = refused.and(free);
        }
        refused
    }

    /// Gives back pages of one word of a bitmap.
    fn free_pages(&self, first: Frame, pages: &[Frame]) -> Result<(), BlockError> {
        let order = Order::PAGE;
        let inside = |place: &&Place<'m>| pages.iter().all(|&page| place.frames().contains(page));
        let Some(place) = self.directory.place_at(first).filter(inside) else {
            // They lie on both sides of a border.
            let one = |all: Result<(), _>, &page| all.and(self.free(page, order));
            return pages.iter().fold(Ok(()), one);
        };
        let mut refused = Ok(());
        let mut freed = pages.len() as i64;
        (self.directory).give_pages(pages, place.segment(), &mut |frame| {
            freed -= 1;
            refused = refused.and(Err(BlockError::NotAllocated { frame, order }));
        });
        self.count(place, freed);
        refused
    }
}

impl<'m> Directory<'m> {
    /// The segment of `frame`: `near` if it lies there.
    fn segment_near<'s>(&'s self, frame: Frame, near: &'s Segment<'m>) -> Option<&'s Segment<'m>> {
        if near.frames.contains(frame) {
            Some(near)
        } else {
            self.segment_at(frame)
        }
    }

    /// Gives back single pages, most of them of segment `near`. `bad` is told of those
    /// that were not allocated.
    pub(super) fn give_pages(
        &self,
        frames: &[Frame],
        near: &Segment<'m>,
        bad: &mut dyn FnMut(Frame),
    ) {
        let mut coming = frames.iter();
        let mut prefetch = |count| {
            let pages = coming.by_ref().take(count);
            pages.for_each(|&page| near.prefetch(page));
        };
        prefetch(AHEAD);
        for frames in frames.chunk_by(|one, other| one.get() / 64 == other.get() / 64) {
            prefetch(frames.len());
            if let &[start] = frames {
                let block = Block { start, order: 0 };
                let segment = self.segment_near(start, near);
                if segment.is_none_or(|segment| segment.free(block).is_err()) {
                    bad(start);
                }
            } else {
                self.give_neighbours(frames, near, bad);
            }
        }
    }

    /// The same for pages of one word.
    fn give_neighbours(&self, frames: &[Frame], near: &Segment<'m>, bad: &mut dyn FnMut(Frame)) {
        let mut left = frames;
        while let Some(&first) = left.first() {
            let segment = self.segment_near(first, near);
            let is_inside = |frame| segment.is_none_or(|segment| segment.frames.contains(frame));
            // All of them, but not beyond a hole.
            let mut bits = 0;
            while let Some((&frame, rest)) = left.split_first()
                && is_inside(frame)
            {
                let bit = 1 << (frame.get() % 64);
                if bits & bit != 0 {
                    bad(frame);
                }
                bits |= bit;
                left = rest;
            }
            let mut refused = segment.map_or(bits, |segment| {
                let index = (first.get() % u64::from(HUGE_FRAMES) / 64) as usize;
                segment.give_pages_of(segment.huge_of(first), index, bits)
            });
            let word = first.get() / 64 * 64;
            while refused != 0 {
                bad(Frame::new(word + u64::from(refused.trailing_zeros())));
                refused &= refused - 1;
            }
        }
    }

    /// Gives back whole huge frames, most of them of segment `near`. `bad` is told of
    /// those that were not allocated.
    pub(super) fn give_huges(
        &self,
        frames: &[Frame],
        near: &Segment<'m>,
        bad: &mut dyn FnMut(Frame),
    ) {
        for frames in frames.chunks(GIVEN) {
            let mut freed = [(0, 0); GIVEN];
            for &frame in frames {
                if let Some(giant) = near.give_huge(frame) {
                    let of_giant =
                        |entry: &&mut (GiantIndex, i32)| entry.1 == 0 || entry.0 == giant;
                    if let Some(entry) = freed.iter_mut().find(of_giant) {
                        *entry = (giant, entry.1 + 1);
                    }
                    continue;
                }
                let block = Block {
                    start: frame,
                    order: HUGE_ORDER,
                };
                let freed = self.segment_of(block).map(|segment| segment.free(block));
                if freed != Some(Ok(())) {
                    bad(frame);
                }
            }
            // One step for all that a giant frame got back.
            for (giant, count) in freed {
                if count > 0 {
                    near.settle_giant(giant, Change::free(count));
                }
            }
        }
    }

    /// Gives back blocks of `order`, a huge frame at most and most of them of segment
    /// `near`. `bad` is told of those that were not allocated.
    pub(super) fn give(
        &self,
        order: Order,
        blocks: &[Frame],
        near: &Segment<'m>,
        bad: &mut dyn FnMut(Frame),
    ) {
        match order {
            Order::PAGE => self.give_pages(blocks, near, bad),
            _ if order.get() == HUGE_ORDER => self.give_huges(blocks, near, bad),
            _ => {
                let order = order.get();
                for &start in blocks {
                    let block = Block { start, order };
                    let segment = self.segment_near(start, near);
                    if segment.is_none_or(|segment| segment.free(block).is_err()) {
                        bad(start);
                    }
                }
            }
        }
    }

    /// Gives back what is left of an area: pages of one huge frame, up to its end.
    pub(super) fn give_area(
        &self,
        pages: FrameRange,
        near: &Segment<'m>,
        bad: &mut dyn FnMut(Frame),
    ) {
        let (mut start, end) = (pages.start().get(), pages.end().get());
        while start < end {
            let next = (start / 64 + 1) * 64;
            let mut word = [Frame::new(0); 64];
            let mut count = 0;
            for (place, frame) in word.iter_mut().zip(start..next.min(end)) {
                *place = Frame::new(frame);
                count += 1;
            }
            self.give_pages(&word[..count], near, bad);
            start = next;
        }
    }
}
