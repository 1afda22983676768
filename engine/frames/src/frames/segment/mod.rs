//! A segment: contiguous frames of one node and zone, and the three tables that say what is
//! free in it. The only code that changes giant and huge words.
//!
//! # The protocol
//!
//! *Take from the parent down, give back from the child up.* To take a huge frame, a CPU first
//! lowers the giant frame's count, which reserves one, and then changes the huge frame's
//! word; to give it back, it changes the word first and then raises the count. So there are
//! never fewer free words than reservations, and a giant frame merges in the one step that
//! makes its counts complete. Pages of a split huge frame need no reservation: their bits
//! decide.
//!
//! *A level is written when its parent is split*, by the one CPU that moved the parent to
//! `Opening`. Requests pass such a frame by. A call that gives back a part of exactly that
//! frame waits until it is open: at most 512 words are being written.
//!
//! *A word follows its bitmap.* After a change of bits the call looks at the huge word, and
//! after a change of the word at the bits, both in one order: at least one of two calls sees
//! what the other did, and makes the word say what the bitmap says ([`reconcile`]).
//!
//! The parts of a huge frame that lie outside the segment are set in its bitmap for ever, so
//! a frame that crosses the segment's end never merges.
//!
//! | file | what it is |
//! |---|---|
//! | [`table`] | tables in uninitialised memory (unsafe code) |
//! | [`window`] | frames whose words are known to be written, for a CPU's fast path |
//! | [`calls`] | calls in flight that may give something back |
//! | [`open`] | writing a level |
//! | [`take`], [`give`] | the two primitives |
//! | [`reconcile`] | counts and bounds after bits changed |
//! | [`content`] | what free huge frames hold |
//! | [`isolate`] | huge frames of which nothing can be taken |
//! | [`offline`] | huge frames out of use |
//! | [`pinned`] | frames that can't be freed |
//! | [`init`], [`initial_zeros`] | the first words: free, reserved, or a border; memory that is zero from the start |
//! | [`statistics`], [`validate`] | what is free; whether every count equals what it counts |

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

pub(crate) mod calls;
mod content;
pub(crate) mod give;
pub(crate) mod init;
pub(crate) mod initial_zeros;
pub(crate) mod isolate;
pub(crate) mod occupancy;
#[cfg(feature = "hotplug")]
mod offline;
mod open;
pub(crate) mod pinned;
mod reconcile;
pub(crate) mod statistics;
pub(crate) mod table;
pub(crate) mod take;
pub(crate) mod validate;
pub(crate) mod window;

use core::ops::Range;

use super::word::geometry::{
    Block, GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, unit, units,
};
use super::word::{Bitmap, Change, Content, Giant, GiantState, Huge, HugeState, steps};
use crate::addr::{Frame, FrameRange};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause, recheck_u32, recheck_u64};
use calls::Calls;
use pinned::Pinned;
use table::Table;

/// Frames of one node and zone with their tables.
#[derive(Debug)]
pub(crate) struct Segment<'m> {
    /// What it covers.
    pub(crate) frames: FrameRange,
    /// Those of the machine that can't be freed.
    pinned: &'m Pinned<'m>,
    giants: Table<'m, AtomicU64>,
    huges: Table<'m, AtomicU32>,
    /// One a huge frame.
    bitmaps: Table<'m, Bitmap>,
    pub(crate) calls: Calls,
}

/// Index of a giant frame in the segment's table.
pub(crate) type GiantIndex = usize;
/// Index of a huge frame in the segment's tables.
pub(crate) type HugeIndex = usize;

impl<'m> Segment<'m> {
    /// Number of giant words a segment over `frames` needs.
    pub(crate) const fn giants_for(frames: FrameRange) -> u64 {
        units(frames, GIANT_ORDER)
    }

    /// Number of huge words a segment over `frames` needs, and of bitmaps.
    pub(crate) const fn huges_for(frames: FrameRange) -> u64 {
        units(frames, HUGE_ORDER)
    }

    /// A segment over tables of the right length, nothing written yet: see [`init`].
    pub(crate) fn new(
        frames: FrameRange,
        pinned: &'m Pinned<'m>,
        giants: Table<'m, AtomicU64>,
        huges: Table<'m, AtomicU32>,
        bitmaps: Table<'m, Bitmap>,
    ) -> Self {
        debug_assert_eq!(giants.len() as u64, Self::giants_for(frames));
        debug_assert_eq!(huges.len() as u64, Self::huges_for(frames));
        debug_assert_eq!(huges.len(), bitmaps.len());
        Self {
            frames,
            pinned,
            giants,
            huges,
            bitmaps,
            calls: Calls::new(),
        }
    }

    // ---- Where things are ------------------------------------------------

    /// Number of giant frames the segment touches.
    pub(crate) fn giant_count(&self) -> usize {
        self.giants.len()
    }

    /// Number of huge frames the segment touches.
    pub(crate) fn huge_count(&self) -> usize {
        self.huges.len()
    }

    /// All frames of giant frame `giant`, also those outside the segment.
    pub(crate) fn giant_frames(&self, giant: GiantIndex) -> FrameRange {
        let first = self.frames.start().get() >> GIANT_ORDER;
        unit(first + giant as u64, GIANT_ORDER)
    }

    /// All frames of huge frame `huge`, also those outside the segment.
    pub(crate) fn huge_frames(&self, huge: HugeIndex) -> FrameRange {
        let first = self.frames.start().get() >> HUGE_ORDER;
        unit(first + huge as u64, HUGE_ORDER)
    }

    /// First frame of huge frame `huge`, also if it lies outside the segment.
    #[inline]
    pub(crate) fn huge_start(&self, huge: HugeIndex) -> u64 {
        ((self.frames.start().get() >> HUGE_ORDER) + huge as u64) << HUGE_ORDER
    }

    #[inline]
    pub(crate) fn giant_of(&self, frame: Frame) -> GiantIndex {
        ((frame.get() >> GIANT_ORDER) - (self.frames.start().get() >> GIANT_ORDER)) as usize
    }

    /// The giant frame of a huge frame.
    #[inline]
    pub(crate) fn giant_of_huge(&self, huge: HugeIndex) -> GiantIndex {
        self.giant_of(Frame::new(self.huge_start(huge)))
    }

    #[inline]
    pub(crate) fn huge_of(&self, frame: Frame) -> HugeIndex {
        ((frame.get() >> HUGE_ORDER) - (self.frames.start().get() >> HUGE_ORDER)) as usize
    }

    /// The huge frames of giant frame `giant` that the segment touches.
    #[inline]
    pub(crate) fn huges_in(&self, giant: GiantIndex) -> Range<HugeIndex> {
        // Huge frames from the start of the segment's first giant frame to that of its first
        // huge frame.
        let skipped = ((self.frames.start().get() % GIANT_FRAMES) >> HUGE_ORDER) as usize;
        let huges = (GIANT_FRAMES >> HUGE_ORDER) as usize;
        let first = (giant * huges).saturating_sub(skipped);
        let end = (giant + 1) * huges - skipped;
        first..end.min(self.huge_count())
    }

    /// The huge frames of `block`, one or more whole ones.
    pub(crate) fn huges_of(&self, block: Block) -> Range<HugeIndex> {
        let first = self.huge_of(block.start);
        first..first + block.huges() as usize
    }

    /// Whether giant frame `giant` lies wholly inside the segment.
    pub(crate) fn has_all_of_giant(&self, giant: GiantIndex) -> bool {
        self.frames.covers(self.giant_frames(giant))
    }

    /// The list of frames that can't be freed.
    pub(crate) fn pinned(&self) -> &'m Pinned<'m> {
        self.pinned
    }

    /// Whether some of `range` can't be freed.
    pub(crate) fn is_pinned(&self, range: FrameRange) -> bool {
        self.first_pinned(range).is_some()
    }

    /// The first frame of `range` that can't be freed.
    pub(crate) fn first_pinned(&self, range: FrameRange) -> Option<Frame> {
        self.pinned.first_in(range)
    }

    /// Frames that are free, or may be freed.
    pub(crate) fn managed_frames(&self) -> u64 {
        self.frames.count() - self.pinned.frames_in(self.frames)
    }

    // ---- Words -----------------------------------------------------------

    /// The word of a giant frame.
    #[inline]
    pub(crate) fn giant(&self, giant: GiantIndex) -> Giant {
        steps::giant(self.giants.at(giant))
    }

    /// The word of a huge frame.
    #[inline]
    pub(crate) fn huge(&self, huge: HugeIndex) -> Huge {
        Huge::of_bits(self.huges.at(huge).load(Ordering::Acquire))
    }

    /// The first huge frame of `range` with a word that fits.
    #[inline]
    pub(crate) fn find_huge(
        &self,
        range: Range<HugeIndex>,
        fits: impl Fn(Huge) -> bool,
    ) -> Option<HugeIndex> {
        let start = range.start;
        let mut words = self.huges.each(range);
        let at = words.position(|word| fits(Huge::of_bits(word.load(Ordering::Acquire))))?;
        Some(start + at)
    }

    /// A huge frame's word after a change of another one.
    #[inline]
    fn recheck_huge(&self, huge: HugeIndex) -> Huge {
        Huge::of_bits(recheck_u32(self.huges.at(huge)))
    }

    /// A giant frame's word after a change of another one.
    #[inline]
    fn recheck_giant(&self, giant: GiantIndex) -> Giant {
        Giant::of_bits(recheck_u64(self.giants.at(giant)))
    }

    #[inline]
    pub(crate) fn bitmap(&self, huge: HugeIndex) -> &'m Bitmap {
        self.bitmaps.at(huge)
    }

    /// Prefetches the words of a page that is going to be given back.
    #[inline]
    pub(crate) fn prefetch(&self, page: Frame) {
        if self.frames.contains(page) {
            let huge = self.huge_of(page);
            self.huges.prefetch(huge);
            self.bitmaps.prefetch(huge);
        }
    }

    /// Stores the same word for all of `giants`.
    fn store_giants(&self, giants: Range<GiantIndex>, word: Giant) {
        let bits = word.bits();
        // Release: what was written below comes before; pairs with `giant_bits`.
        self.giants
            .each(giants)
            .for_each(|word| word.store(bits, Ordering::Release));
    }

    /// Stores the same word for all of `huges`.
    fn store_huges(&self, huges: Range<HugeIndex>, word: Huge) {
        let words = self.huges.each(huges);
        words.for_each(|at| steps::write_huge(at, word));
    }

    /// Ends the opening of a huge frame.
    fn publish_huge(&self, huge: HugeIndex, word: Huge) {
        // Not a store: it may be followed by a recheck.
        self.huges.at(huge).swap(word.bits(), Ordering::SeqCst);
    }

    fn swap_giant(&self, giant: GiantIndex, from: Giant, to: Giant) -> bool {
        steps::swap_giant(self.giants.at(giant), from, to)
    }

    #[inline]
    fn swap_huge(&self, huge: HugeIndex, from: Huge, to: Huge) -> bool {
        steps::swap_huge(self.huges.at(huge), from, to)
    }

    /// Changes the counts of a split giant frame, or says which word did not allow it.
    fn try_adjust_giant(&self, giant: GiantIndex, by: Change) -> Result<(), Giant> {
        steps::adjust(self.giants.at(giant), by)
    }

    /// Reserves `count` free huge frames of a split giant frame; whether it had so many.
    #[inline]
    fn lower_free(&self, giant: GiantIndex, count: u32) -> bool {
        steps::lower_free(self.giants.at(giant), count)
    }

    /// Changes the counts for something the caller holds below, which keeps the giant frame
    /// from merging. (It may be opening still, for the moment.)
    fn adjust_giant(&self, giant: GiantIndex, by: Change) {
        loop {
            match self.try_adjust_giant(giant, by) {
                Ok(()) => return,
                Err(word) if word.state() == GiantState::Opening => pause(),
                Err(word) => panic!("giant frame {giant}: {word:?} can't change {by:?}"),
            }
        }
    }

    /// Raises the count of free huge frames in one step that never fails, and merges.
    #[inline]
    fn raise_free(&self, giant: GiantIndex, count: u32) {
        steps::raise_free(self.giants.at(giant), count);
    }

    /// Raises the count of free huge frames, and of known ones, for huge frames with this content.
    pub(crate) fn raise_free_of(&self, giant: GiantIndex, count: u32, content: Content) {
        if content.is_known() {
            let count = count.cast_signed();
            self.adjust_giant(giant, Change::free(count).and_known(content, count));
        } else {
            self.raise_free(giant, count);
        }
    }

    /// Makes a giant frame free as one block if all below is.
    fn merge_if_complete(&self, giant: GiantIndex) {
        steps::merge_if_complete(self.giants.at(giant));
    }

    // ---- Look ------------------------------------------------------------

    /// Whether `frame`, inside the segment, can't be freed.
    pub(crate) fn is_reserved(&self, frame: Frame) -> bool {
        let frame = FrameRange::new(frame.get(), frame.get() + 1);
        self.is_pinned(frame.unwrap_or_default())
    }

    /// Whether `frame`, inside the segment, is allocated (or was never free).
    pub(crate) fn is_allocated(&self, frame: Frame) -> bool {
        loop {
            match self.giant(self.giant_of(frame)).state() {
                GiantState::Free => return false,
                GiantState::Allocated => return true,
                GiantState::Opening => pause(),
                GiantState::Split => {
                    let huge = self.huge_of(frame);
                    return match self.huge(huge).state() {
                        HugeState::Free => false,
                        HugeState::Split => self.bitmap(huge).is_set(page_of(frame)),
                        HugeState::Allocated | HugeState::Opening => true,
                    };
                }
            }
        }
    }
}

/// Position of a page in its huge frame.
#[inline]
pub(crate) fn page_of(frame: Frame) -> u32 {
    (frame.get() % u64::from(HUGE_FRAMES)) as u32
}
