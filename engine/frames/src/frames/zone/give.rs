//! Many blocks freed at a time.

use super::{Nodes, Segments};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::segment::Segment;
use crate::frames::segment::window::Window;
use crate::frames::word::geometry::{Block, HUGE_FRAMES, HUGE_ORDER};

/// The words of so many pages to be freed next are prefetched.
const PREFETCHED: usize = 16;
/// Giant frames whose counts are raised once for all their huge frames that are freed together.
const GIANTS: usize = 16;

/// A hint: the segment and window that most of some blocks lie in.
#[derive(Debug)]
pub(crate) struct Local<'a, 'm> {
    pub(crate) segment: &'a Segment<'m>,
    pub(crate) window: &'a Window<'m>,
}

impl<'m> Nodes<'m> {
    /// Frees blocks of `order`, most of them `near`. `bad` is called with those refused.
    pub(crate) fn give(
        &self,
        order: Order,
        blocks: &[Frame],
        local: &Local<'_, 'm>,
        bad: &mut dyn FnMut(Frame),
    ) {
        match order.get() {
            0 => self.segments.give_pages(blocks, local, bad),
            HUGE_ORDER => self.segments.give_huges(blocks, local, bad),
            _ => {
                for &start in blocks {
                    let order = order.get();
                    let block = Block { start, order };
                    let is_given = local.segment.give_small(local.window, block);
                    if !is_given && !self.segments.give_block(block, local.segment) {
                        bad(start);
                    }
                }
            }
        }
    }

    /// Frees contiguous pages, all of one huge frame, most of them `near`.
    pub(crate) fn give_run(
        &self,
        pages: FrameRange,
        local: &Local<'_, 'm>,
        bad: &mut dyn FnMut(Frame),
    ) {
        let (mut start, end) = (pages.start().get(), pages.end().get());
        while start < end {
            let next = (start / 64 + 1) * 64;
            let mut word = [Frame::new(0); 64];
            let mut count = 0;
            for (entry, frame) in word.iter_mut().zip(start..next.min(end)) {
                *entry = Frame::new(frame);
                count += 1;
            }
            self.segments.give_pages(&word[..count], local, bad);
            start = next;
        }
    }
}

impl<'m> Segments<'m> {
    /// The segment of `frame`: `near` if it lies there.
    fn local_or_at<'s>(&'s self, frame: Frame, local: &'s Segment<'m>) -> Option<&'s Segment<'m>> {
        if local.frames.contains(frame) {
            Some(local)
        } else {
            self.at(frame)?.online()
        }
    }

    fn give_block(&self, block: Block, local: &Segment<'m>) -> bool {
        let segment = self.local_or_at(block.start, local);
        let covers = |segment: &&Segment<'m>| segment.frames.covers(block.range());
        segment
            .filter(covers)
            .is_some_and(|segment| segment.give(block).is_ok())
    }

    pub(crate) fn give_pages(
        &self,
        frames: &[Frame],
        local: &Local<'_, 'm>,
        bad: &mut dyn FnMut(Frame),
    ) {
        let mut coming = frames.iter();
        let prefetch = |&page: &Frame| local.segment.prefetch(page);
        coming.by_ref().take(PREFETCHED).for_each(prefetch);
        for frames in frames.chunk_by(|one, other| one.get() / 64 == other.get() / 64) {
            if let &[start] = frames {
                coming.next().into_iter().for_each(prefetch);
                let freed = local.segment.give_page(local.window, start);
                if !freed && !self.give_block(Block { start, order: 0 }, local.segment) {
                    bad(start);
                }
            } else {
                // One of them: behind pages of one word there are mostly others of one.
                coming.nth(frames.len() - 1).into_iter().for_each(prefetch);
                self.give_neighbours(frames, local.segment, bad);
            }
        }
    }

    /// Frees pages of one bitmap word.
    fn give_neighbours(&self, frames: &[Frame], local: &Segment<'m>, bad: &mut dyn FnMut(Frame)) {
        let mut left = frames;
        while let Some(&first) = left.first() {
            let segment = self.local_or_at(first, local);
            let is_inside = |frame| segment.is_none_or(|segment| segment.frames.contains(frame));
            // All pages up to a hole.
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
            let index = usize::try_from(first.get() % u64::from(HUGE_FRAMES) / 64).unwrap_or(0);
            let mut refused = segment.map_or(bits, |segment| {
                segment.give_pages(segment.huge_of(first), index, bits)
            });
            let word = first.get() / 64 * 64;
            while refused != 0 {
                bad(Frame::new(word + u64::from(refused.trailing_zeros())));
                refused &= refused - 1;
            }
        }
    }

    pub(crate) fn give_huges(
        &self,
        frames: &[Frame],
        local: &Local<'_, 'm>,
        bad: &mut dyn FnMut(Frame),
    ) {
        let segment = local.segment;
        let count = |(giant, count)| {
            if count > 0 {
                segment.count_huges(giant, count);
            }
        };
        // By a giant frame's last bits, how many of its huge frames were freed.
        let mut freed = [(0, 0); GIANTS];
        for &start in frames {
            if local.window.has_huge(start) && segment.give_huge(segment.huge_of(start)) {
                let giant = segment.giant_of(start);
                let entry = &mut freed[giant % GIANTS];
                if entry.0 != giant {
                    count(core::mem::replace(entry, (giant, 0)));
                }
                entry.1 += 1;
                continue;
            }
            let order = HUGE_ORDER;
            if !self.give_block(Block { start, order }, segment) {
                bad(start);
            }
        }
        freed.into_iter().for_each(count);
    }
}
