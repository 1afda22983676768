//! Frames whose words are known to be written: [`Window`], for a CPU's fast path.
//!
//! Huge words that were written once stay valid, and a window ends where frames
//! can't be freed. So the check before a block is cached reads no giant word, which other CPUs change all
//! the time, and compares one range.

use super::table::Numbered;
use super::{Segment, page_of};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::{HUGE_ORDER, Pages, WORD_ORDER};
use crate::frames::word::{Bitmap, Huge, Mobility};
use crate::sync::{AtomicU32, Ordering};

/// Giant frames a window reaches on each side, at most.
const WIDEN: usize = 16;

/// Frames of one segment, all of them below opened giant frames, none reserved for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'m> {
    /// First frame.
    start: u64,
    /// Number of frames.
    count: u64,
    /// By the numbers that huge frames have in the machine.
    huges: Numbered<'m, AtomicU32>,
    bitmaps: Numbered<'m, Bitmap>,
}

impl<'m> Window<'m> {
    /// No frames, of any segment.
    pub(crate) fn empty(segment: &Segment<'m>) -> Self {
        let first = segment.frames.start().get() >> HUGE_ORDER;
        Self {
            start: 0,
            count: 0,
            huges: segment.huges.numbered_from(first),
            bitmaps: segment.bitmaps.numbered_from(first),
        }
    }

    /// The opened giant frames around `frame`, up to 16 on each side, inside the segment and up to
    /// the next reserved frames; none if its giant frame was never opened, or if it is reserved
    /// for ever.
    #[cold]
    pub(crate) fn around(segment: &Segment<'m>, frame: Frame) -> Self {
        let giant = segment.giant_of(frame);
        let is_opened = |giant: &usize| segment.giant(*giant).is_opened();
        if !is_opened(&giant) {
            return Self::empty(segment);
        }
        let above = (giant + 1..segment.giant_count()).take(WIDEN);
        let end = above.take_while(is_opened).last().unwrap_or(giant);
        let below = (0..giant).rev().take(WIDEN);
        let first = below.take_while(is_opened).last().unwrap_or(giant);
        let start = segment.giant_frames(first).start();
        let opened = FrameRange::new(start.get(), segment.giant_frames(end).end().get());
        let opened = opened.unwrap_or_default().intersect(segment.frames);
        let frames = segment.pinned.around(frame).intersect(opened);
        Self {
            start: frames.start().get(),
            count: frames.count(),
            ..Self::empty(segment)
        }
    }

    /// The frames.
    pub(crate) fn frames(&self) -> FrameRange {
        FrameRange::new(self.start, self.start + self.count).unwrap_or_default()
    }

    /// The huge word of a block of 2^`order` frames, a huge frame at most, if all of it is in
    /// the window.
    #[inline]
    fn huge_of(&self, frame: Frame, order: u8) -> Option<(u64, Huge)> {
        let at = frame.get().wrapping_sub(self.start);
        if self.count.saturating_sub(at) < 1 << order {
            return None;
        }
        let huge = frame.get() >> HUGE_ORDER;
        // SAFETY: the window lies inside its segment, whose tables have an element for every
        // huge frame it touches, and `frame` lies in the window.
        let word = unsafe { self.huges.at(huge) };
        Some((huge, Huge::of_bits(word.load(Ordering::Acquire))))
    }

    /// The bitmap of the huge frame of a smaller block, if that is split and not isolated.
    #[inline]
    pub(crate) fn split(&self, start: Frame, order: u8) -> Option<&'m Bitmap> {
        let (huge, seen) = self.huge_of(start, order)?;
        // SAFETY: as for the huge word: there are as many bitmaps.
        seen.is_split().then(|| unsafe { self.bitmaps.at(huge) })
    }

    /// Whether all of the huge frame that begins at `start` is in the window.
    #[inline]
    pub(crate) fn has_huge(&self, start: Frame) -> bool {
        let at = start.get().wrapping_sub(self.start);
        at < self.count && self.count - at >= 1 << HUGE_ORDER
    }

    /// What the huge frame of `page` was taken for, if the page is allocated in it and not
    /// isolated.
    #[inline]
    pub(crate) fn allocated_page(&self, page: Frame) -> Option<Mobility> {
        let (_, seen) = self.huge_of(page, 0)?;
        // Most pages are of huge frames that are split.
        let is_allocated = if seen.is_split() {
            // SAFETY: as for the huge word: there are as many bitmaps.
            let word = unsafe { self.bitmaps.word(page.get() / 64) };
            word.load(Ordering::Acquire) >> (page.get() % 64) & 1 != 0
        } else {
            rare();
            seen.is_allocated()
        };
        is_allocated.then(|| seen.mobility())
    }

    /// What the huge frame of an aligned block of 2^`order` frames was taken for, if all of the block is allocated and not isolated; `None` for more than 64
    /// pages of one that is split.
    #[inline(always)]
    pub(crate) fn allocated_small(&self, start: Frame, order: u8) -> Option<Mobility> {
        let (_, seen) = self.huge_of(start, order)?;
        let is_allocated = if order <= WORD_ORDER && seen.is_split() {
            let pages = !0 >> (64 - (1u32 << order)) << (start.get() % 64);
            // SAFETY: as above.
            let word = unsafe { self.bitmaps.word(start.get() / 64) };
            word.load(Ordering::Acquire) & pages == pages
        } else {
            seen.is_allocated()
        };
        is_allocated.then(|| seen.mobility())
    }

    /// What the huge frame of an aligned block was taken for, likewise, also for more than 64 pages.
    // Always: else whether it is a call of its own depends on code elsewhere: 10 instructions a block.
    #[inline(always)]
    pub(crate) fn allocated_block(&self, start: Frame, order: u8) -> Option<Mobility> {
        if order <= WORD_ORDER {
            return self.allocated_small(start, order);
        }
        let (huge, seen) = self.huge_of(start, order)?;
        let is_allocated = seen.is_allocated()
            || order < HUGE_ORDER && seen.is_split() && {
                // SAFETY: as above.
                let bitmap = unsafe { self.bitmaps.at(huge) };
                bitmap.all_set(Pages {
                    at: page_of(start),
                    count: 1 << order,
                })
            };
        is_allocated.then(|| seen.mobility())
    }

    /// What the huge frame that begins at `start` was taken for, if it is allocated as one and not isolated.
    #[inline]
    pub(crate) fn allocated_huge(&self, start: Frame) -> Option<Mobility> {
        let (_, seen) = self.huge_of(start, HUGE_ORDER)?;
        seen.is_allocated().then(|| seen.mobility())
    }
}

/// Marks the branch that calls it as unlikely.
#[cold]
#[inline]
fn rare() {}
