//! A segment: one contiguous run of frames of one node and one zone, and the
//! three tables that say what is free in it.
//!
//! # The protocol
//!
//! *Take from the parent down, give back from the child up.* To allocate, a
//! CPU first lowers the parent's count, which promises it that much, and then
//! looks for the bits; to free, it first clears the bits and then raises the
//! count. So there are never fewer clear bits than promises, a count is never
//! raised to "everything" while somebody still holds a part, and merging needs
//! no lock.
//!
//! *A level is written when its parent is split*, by the one CPU that moved
//! the parent to `Splitting`. A giant frame is published as split before any
//! of its huge frames is, so that whoever finds pages also finds the counts.
//! Nobody waits for a splitter except who must free, claim or look into
//! exactly that frame.
//!
//! The parts of a huge frame that lie outside the segment are set in its
//! bitmap for ever, so a frame that crosses the segment's end never merges.
//!
//! This file holds the words; how a level is opened is in [`super::split`], how counts change
//! in [`super::promise`], and what is done with all that in [`super::allocate`],
//! [`super::claim`], [`super::free`], [`super::bulk`] and [`super::isolate`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use core::ops::Range;

use super::geometry::{Block, GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, unit, units};
use super::request::Mobility;
use super::row::Row;
use super::table::Table;
use super::word::{Change, Giant, GiantState, Huge, HugeState};
use crate::addr::{Frame, FrameRange};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Frames of one node and zone with their tables.
#[derive(Debug)]
pub(crate) struct Segment<'m> {
    /// What it covers.
    pub(crate) frames: FrameRange,
    pub(super) giants: Table<'m, AtomicU64>,
    pub(super) huges: Table<'m, AtomicU32>,
    rows: Table<'m, Row>,
    /// Huge frame that last served a request of each mobility: where the next search begins.
    pub(super) near: [AtomicU32; 2],
}

/// A block was not in the state an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongState;

/// Index of a giant frame in the segment's table.
pub(super) type GiantIndex = usize;
/// Index of a huge frame in the segment's tables.
pub(super) type HugeIndex = usize;

impl<'m> Segment<'m> {
    /// Number of giant words a segment over `frames` needs.
    pub(crate) fn giants_for(frames: FrameRange) -> u64 {
        units(frames, GIANT_ORDER)
    }

    /// Number of huge words, and of bitmaps, a segment over `frames` needs.
    pub(crate) fn huges_for(frames: FrameRange) -> u64 {
        units(frames, HUGE_ORDER)
    }

    /// A segment over tables of the right length, nothing written yet: see [`super::start`].
    pub(crate) fn new(
        frames: FrameRange,
        giants: Table<'m, AtomicU64>,
        huges: Table<'m, AtomicU32>,
        rows: Table<'m, Row>,
    ) -> Self {
        debug_assert_eq!(giants.len() as u64, Self::giants_for(frames));
        debug_assert_eq!(huges.len() as u64, Self::huges_for(frames));
        debug_assert_eq!(huges.len(), rows.len());
        Self {
            frames,
            giants,
            huges,
            rows,
            // From both ends, so that they meet as late as possible.
            near: [
                AtomicU32::new(0),
                AtomicU32::new(Self::huges_for(frames).saturating_sub(1) as u32),
            ],
        }
    }

    // ---- Where things are ------------------------------------------------

    /// Number of giant frames the segment touches.
    pub(crate) fn giant_count(&self) -> usize {
        self.giants.len()
    }

    /// All frames of giant frame `giant`, also those outside the segment.
    pub(crate) fn giant_frames(&self, giant: GiantIndex) -> FrameRange {
        unit(
            (self.frames.start().get() >> GIANT_ORDER) + giant as u64,
            GIANT_ORDER,
        )
    }

    /// All frames of huge frame `huge`, also those outside the segment.
    pub(crate) fn huge_frames(&self, huge: HugeIndex) -> FrameRange {
        unit(
            (self.frames.start().get() >> HUGE_ORDER) + huge as u64,
            HUGE_ORDER,
        )
    }

    #[inline]
    pub(super) fn giant_of(&self, frame: Frame) -> GiantIndex {
        ((frame.get() >> GIANT_ORDER) - (self.frames.start().get() >> GIANT_ORDER)) as usize
    }

    #[inline]
    pub(super) fn huge_of(&self, frame: Frame) -> HugeIndex {
        ((frame.get() >> HUGE_ORDER) - (self.frames.start().get() >> HUGE_ORDER)) as usize
    }

    /// The huge frames of giant frame `giant` that the segment touches.
    pub(crate) fn huges_in(&self, giant: GiantIndex) -> Range<HugeIndex> {
        let inside = self.giant_frames(giant).intersect(self.frames);
        let first = self.huge_of(inside.start());
        first..first + units(inside, HUGE_ORDER) as usize
    }

    /// The huge frames of `block`, one or more whole ones.
    pub(super) fn huges_of(&self, block: Block) -> Range<HugeIndex> {
        let first = self.huge_of(block.start);
        first..first + block.huges() as usize
    }

    /// Whether giant frame `giant` lies wholly inside the segment.
    pub(crate) fn has_all_of_giant(&self, giant: GiantIndex) -> bool {
        self.giant_frames(giant).intersect(self.frames).count() == GIANT_FRAMES
    }

    // ---- Words -----------------------------------------------------------

    #[inline]
    pub(crate) fn giant(&self, giant: GiantIndex) -> Giant {
        Giant::unpack(self.giant_bits(giant))
    }

    /// The bits of a giant frame's word.
    #[inline]
    pub(super) fn giant_bits(&self, giant: GiantIndex) -> u64 {
        self.giants.at(giant).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn huge(&self, huge: HugeIndex) -> Huge {
        Huge::unpack(self.huge_bits(huge))
    }

    /// The bits of a huge frame's word.
    #[inline]
    pub(super) fn huge_bits(&self, huge: HugeIndex) -> u32 {
        self.huges.at(huge).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn row(&self, huge: HugeIndex) -> &Row {
        self.rows.at(huge)
    }

    /// Asks the processor for the words of a page that is going to be given back.
    #[inline]
    pub(super) fn prefetch(&self, page: Frame) {
        if self.frames.contains(page) {
            let huge = self.huge_of(page);
            self.huges.prefetch(huge);
            self.rows.prefetch(huge);
        }
    }

    pub(crate) fn publish_giant(&self, giant: GiantIndex, word: Giant) {
        self.publish_giants(giant..giant + 1, word);
    }

    /// Stores the same word for all of `giants`.
    pub(crate) fn publish_giants(&self, giants: Range<GiantIndex>, word: Giant) {
        let bits = word.pack();
        // Release: what was written below comes before; pairs with `giant()`.
        self.giants
            .each(giants)
            .for_each(|word| word.store(bits, Ordering::Release));
    }

    pub(crate) fn publish_huge(&self, huge: HugeIndex, word: Huge) {
        self.publish_huges(huge..huge + 1, word);
    }

    /// Stores the same word for all of `huges`.
    pub(crate) fn publish_huges(&self, huges: Range<HugeIndex>, word: Huge) {
        let bits = word.pack();
        // Release: what was written below comes before; pairs with `huge()`.
        self.huges
            .each(huges)
            .for_each(|word| word.store(bits, Ordering::Release));
    }

    pub(super) fn swap_giant(&self, giant: GiantIndex, from: Giant, to: Giant) -> bool {
        let (from, to) = (from.pack(), to.pack());
        let word = self.giants.at(giant);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(super) fn swap_huge(&self, huge: HugeIndex, from: Huge, to: Huge) -> bool {
        let (from, to) = (from.pack(), to.pack());
        let word = self.huges.at(huge);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Changes the counts of a split giant frame, or says which word did not allow it.
    pub(super) fn change_giant(&self, giant: GiantIndex, by: Change) -> Result<(), Giant> {
        self.giants
            .at(giant)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Giant::unpack(bits).changed(by).map(Giant::pack)
            })
            .map(drop)
            .map_err(Giant::unpack)
    }

    /// Changes the counts for something the caller owns below, which keeps the
    /// giant frame split. (Only after a frame was freed twice and given out again
    /// in between can it be splitting, for the moment.)
    pub(super) fn settle_giant(&self, giant: GiantIndex, by: Change) {
        let mut changed = self.change_giant(giant, by);
        while let Err(Giant {
            state: GiantState::Splitting,
            ..
        }) = changed
        {
            pause();
            changed = self.change_giant(giant, by);
        }
        assert!(
            changed.is_ok(),
            "giant frame {giant}: {changed:?} can't change {by:?}"
        );
    }

    // ---- Look ------------------------------------------------------------

    /// The huge frame's word once nobody is splitting or claiming it.
    pub(super) fn settled_huge(&self, huge: HugeIndex) -> Huge {
        loop {
            let word = self.huge(huge);
            if word.state != HugeState::Splitting {
                return word;
            }
            pause();
        }
    }

    /// What the huge frame of `page` was taken for, if the page lies in the segment and is
    /// allocated below a split giant frame. `None` does not say that it is free.
    #[inline]
    pub(super) fn allocated_page(&self, page: Frame) -> Option<Mobility> {
        let huge = self.huge_below_split(page)?;
        let bits = self.huge_bits(huge);
        let at = (page.get() % u64::from(HUGE_FRAMES)) as u32;
        (Huge::is_allocated_in(bits) || Huge::is_split_in(bits) && self.row(huge).is_set(at))
            .then(|| Huge::mobility_in(bits))
    }

    /// What the huge frame of an aligned block of `order`, a huge frame at most, was taken
    /// for, if the block lies in the segment and all of it is allocated below a split giant
    /// frame. `None` does not say that some of it is free.
    #[inline]
    pub(super) fn allocated_block(&self, start: Frame, order: u8) -> Option<Mobility> {
        let huge = self.huge_below_split(start)?;
        let bits = self.huge_bits(huge);
        let at = (start.get() % u64::from(HUGE_FRAMES)) as u32;
        // Pages beyond the end are set too. (No overflow: it is in the same huge frame.)
        if !self
            .frames
            .contains(Frame::new(start.get() + ((1 << order) - 1)))
        {
            return None;
        }
        let is_allocated = Huge::is_allocated_in(bits)
            || order < HUGE_ORDER && Huge::is_split_in(bits) && self.row(huge).all_set(at, order);
        is_allocated.then(|| Huge::mobility_in(bits))
    }

    /// The huge frame of a frame that lies in the segment, below a split giant frame.
    #[inline]
    fn huge_below_split(&self, frame: Frame) -> Option<HugeIndex> {
        if !self.frames.contains(frame) {
            return None;
        }
        let bits = self.giant_bits(self.giant_of(frame));
        Giant::is_split_in(bits).then(|| self.huge_of(frame))
    }

    /// Whether `frame`, inside the segment, is allocated (or was never free).
    pub(crate) fn is_allocated(&self, frame: Frame) -> bool {
        loop {
            match self.giant(self.giant_of(frame)).state {
                GiantState::Whole => return false,
                GiantState::Allocated => return true,
                GiantState::Splitting => pause(),
                GiantState::Split => {
                    let huge = self.huge_of(frame);
                    return match self.settled_huge(huge).state {
                        HugeState::Free => false,
                        HugeState::Split => self
                            .row(huge)
                            .is_set((frame.get() % u64::from(HUGE_FRAMES)) as u32),
                        HugeState::Allocated | HugeState::Splitting => true,
                    };
                }
            }
        }
    }
}
