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
//! This file holds the words and how they change; what is done with them is in
//! [`super::allocate`], [`super::claim`] and [`super::free`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use core::ops::Range;

use super::geometry::{
    Block, GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, HUGES, unit, units,
};
use super::request::Mobility;
use super::row::Row;
use super::table::Table;
use super::word::{Change, Giant, GiantState, Huge, HugeState, LARGEST_RUN};
use crate::addr::{Frame, FrameRange};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, fence_after_rmw, pause};

/// Frames of one node and zone with their tables.
#[derive(Debug)]
pub(crate) struct Segment<'m> {
    /// What it covers.
    pub(crate) frames: FrameRange,
    giants: Table<'m, AtomicU64>,
    huges: Table<'m, AtomicU32>,
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

/// Pages taken off a huge frame's count, for the holder to find or give back.
#[derive(Debug)]
#[must_use = "a promise is kept or given back"]
pub(super) struct Promise {
    count: u32,
    /// It was all there was, and `partial` still counts the huge frame as one of these.
    emptied: Option<Mobility>,
}

/// Pages of a huge frame that is split for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    pub(super) at: u32,
    pub(super) count: u32,
    /// They are taken and the rest is free, or the other way round.
    pub(super) taken: bool,
}

impl Pages {
    pub(super) const fn of(block: Block, taken: bool) -> Self {
        Self {
            at: block.page_in_huge(),
            count: block.frames() as u32,
            taken,
        }
    }
}

impl Promise {
    pub(super) const fn count(&self) -> u32 {
        self.count
    }
}

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
        Huge::unpack(self.huges.at(huge).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn row(&self, huge: HugeIndex) -> &Row {
        self.rows.at(huge)
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

    // ---- Promises of pages -------------------------------------------------

    /// Takes `count` pages off the count of a huge frame, for the caller to
    /// find; or says which word did not allow it.
    pub(super) fn promise_pages(&self, huge: HugeIndex, count: u32) -> Result<Promise, Huge> {
        self.huges
            .at(huge)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Huge::unpack(bits).promised(count).map(Huge::pack)
            })
            .map(|old| {
                let old = Huge::unpack(old);
                Promise {
                    count,
                    emptied: (old.free == count).then_some(old.mobility),
                }
            })
            .map_err(Huge::unpack)
    }

    /// Takes as many pages off the count of a huge frame as it has, `most` at most.
    pub(super) fn promise_up_to(&self, huge: HugeIndex, most: u32) -> Option<Promise> {
        let count = |word: Huge| word.free.min(most);
        let old = (self.huges.at(huge)).fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            let word = Huge::unpack(bits);
            (count(word) > 0)
                .then(|| word.promised(count(word)).map(Huge::pack))
                .flatten()
        });
        let old = Huge::unpack(old.ok()?);
        Some(Promise {
            count: count(old),
            emptied: (old.free == count(old)).then_some(old.mobility),
        })
    }

    /// The promised pages were found. Only now, because up to here they might
    /// have had to go back: others must not take the huge frame for used up.
    pub(super) fn keep_promise(&self, giant: GiantIndex, promise: Promise) {
        if let Some(mobility) = promise.emptied {
            self.settle_giant(giant, Change::partial(mobility, -1));
        }
    }

    /// The promised pages were not found, or not so that they can be used;
    /// `released` of them are free already.
    pub(super) fn give_back(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        promise: Promise,
        released: u32,
    ) {
        let Promise { count, emptied } = promise;
        if count > released {
            // The blocks there were are there again: their bound was lowered with the count.
            self.raise_pages(giant, huge, count - released, LARGEST_RUN, emptied);
        } else {
            self.keep_promise(giant, promise);
        }
    }

    /// Raises the count of a split huge frame by pages whose bits are clear again,
    /// and which are now part of blocks of order `run` at most.
    pub(super) fn return_pages(&self, giant: GiantIndex, huge: HugeIndex, count: u32, run: u8) {
        self.raise_pages(giant, huge, count, run, None);
    }

    /// Raises the count of a split huge frame and merges it if those were the
    /// last. `raised` if the caller has counted it as partial already.
    ///
    /// The huge frame is split as long as nobody frees what is not his. If it is
    /// not, the pages were freed twice and belong to whatever it is now.
    fn raise_pages(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        count: u32,
        run: u8,
        mut raised: Option<Mobility>,
    ) {
        let lower = |raised: Option<Mobility>| {
            if let Some(mobility) = raised {
                self.settle_giant(giant, Change::partial(mobility, -1));
            }
        };
        let mut old = self.settled_huge(huge);
        let new = loop {
            if old.state != HugeState::Split {
                // Believe it only if it is the latest value.
                if self.swap_huge(huge, old, old) {
                    return lower(raised);
                }
                old = self.settled_huge(huge);
                continue;
            }
            if old.isolated || raised.is_some_and(|mobility| mobility != old.mobility) {
                lower(raised.take());
            }
            // `partial` is raised before the count and lowered after it.
            if old.free == 0 && raised.is_none() && !old.isolated {
                self.settle_giant(giant, Change::partial(old.mobility, 1));
                raised = Some(old.mobility);
            }
            let new = old.freed(count, run);
            if self.swap_huge(huge, old, new) {
                break new;
            }
            old = self.settled_huge(huge);
        };
        if old.isolated {
            return;
        }
        let merged = new == Huge::FREE;
        let should_be = i32::from(!merged) - i32::from(old.free > 0);
        let is = i32::from(raised.is_some());
        if merged || should_be != is {
            let by = Change::free(i32::from(merged)).and_partial(old.mobility, should_be - is);
            self.settle_giant(giant, by);
        }
        if !merged && new.run > 0 {
            fence_after_rmw();
            self.raise_giant_run(giant, new.mobility, new.run);
        }
    }

    // ---- Bounds on the blocks of pages -------------------------------------
    //
    // To lower a bound: lower it first, then look, then raise it to what is there.
    // What is freed from the first step on raises it by itself. Whoever lowers is
    // counted in `busy` meanwhile, so that nobody believes a bound that is too low.

    /// After pages became free below: their blocks may be of order `run`. A fence
    /// must lie between the change of the huge word and this.
    pub(super) fn raise_giant_run(&self, giant: GiantIndex, mobility: Mobility, run: u8) {
        let index = mobility as usize;
        if self.giant(giant).run[index] < run {
            let mut least = [0; 2];
            least[index] = run;
            self.change_giant_run(giant, |word| word.with_run_from(least));
        }
    }

    fn change_giant_run(&self, giant: GiantIndex, change: impl Fn(Giant) -> Giant) {
        let update = |bits| {
            let word = Giant::unpack(bits);
            (word.state == GiantState::Split).then(|| change(word).pack())
        };
        // An error means that it is one block, which has no bound.
        let _ = (self.giants.at(giant)).fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    /// Finds out how large a block a split huge frame has. The caller is counted in `busy`.
    pub(super) fn measure_run(&self, huge: HugeIndex) {
        let change = |change: &dyn Fn(Huge) -> Huge| {
            let update = |bits| {
                let word = Huge::unpack(bits);
                word.is_partial().then(|| change(word).pack())
            };
            let _ = (self.huges.at(huge)).fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        };
        change(&|word| word.with_run(0));
        let run = self.row(huge).largest_run();
        change(&|word| word.with_run(word.run.max(run)));
    }

    /// Finds out how large a block the split huge frames of `giant` have. The caller
    /// is counted in `busy`.
    pub(super) fn measure_giant_run(&self, giant: GiantIndex) {
        self.change_giant_run(giant, |word| Giant {
            run: [0; 2],
            ..word
        });
        fence_after_rmw();
        let (mut run, mut seen) = ([0; 2], [0; 2]);
        for huge in self.huges_in(giant) {
            let word = self.huge(huge);
            if word.is_partial() {
                let index = word.mobility as usize;
                run[index] = word.run.max(run[index]);
                seen[index] += 1;
            }
        }
        self.change_giant_run(giant, |word| {
            // Fewer than counted: one is being split just now.
            let bound = |index: usize| {
                if seen[index] < word.partial[index] {
                    LARGEST_RUN
                } else {
                    run[index]
                }
            };
            word.with_run_from([bound(0), bound(1)])
        });
    }

    // ---- Splitting -------------------------------------------------------

    /// Opens a huge frame the caller owns (`Splitting`) and that is counted as
    /// partial: `count` pages from `at` on become `taken` or free, the rest the opposite.
    pub(super) fn split_huge(&self, huge: HugeIndex, mobility: Mobility, pages: Pages) {
        let word = self.write_row(huge, mobility, pages);
        self.publish_huge(huge, word);
        if word.run > 0 {
            fence(Ordering::SeqCst);
            let giant = self.giant_of(self.huge_frames(huge).start());
            self.raise_giant_run(giant, mobility, word.run);
        }
    }

    /// Writes the bitmap of a huge frame the caller owns, and says what its word is then.
    pub(super) fn write_row(&self, huge: HugeIndex, mobility: Mobility, pages: Pages) -> Huge {
        let Pages { at, count, taken } = pages;
        self.row(huge).fill(!taken, at, count);
        let free = if taken { HUGE_FRAMES - count } else { count };
        Huge::split(mobility, free)
    }

    /// Opens giant frame `giant`, found `from`, so that all of it stays as it
    /// is but `block`, which changes sides. `false` if another CPU was faster.
    pub(super) fn split_giant(
        &self,
        giant: GiantIndex,
        from: Giant,
        block: Block,
        mobility: Mobility,
    ) -> bool {
        if !self.swap_giant(giant, from, Giant::SPLITTING) {
            return false;
        }
        let taken = from.state == GiantState::Whole;
        let (rest, inside) = if taken {
            (Huge::FREE, Huge::allocated(mobility))
        } else {
            (Huge::allocated(mobility), Huge::FREE)
        };
        let huge = self.huge_of(block.start);
        let changed = huge..huge + block.huges().max(1) as usize;
        if !taken || !from.is_written_below() {
            let all = self.huges_in(giant);
            self.publish_huges(all.start..changed.start, rest);
            self.publish_huges(changed.end..all.end, rest);
        }
        if block.order >= HUGE_ORDER {
            self.publish_huges(changed, inside);
            let free = if taken {
                HUGES - block.huges()
            } else {
                block.huges()
            };
            self.publish_giant(giant, Giant::split(free, [0; 2]));
        } else {
            self.publish_huge(huge, Huge::SPLITTING);
            let mut partial = [0; 2];
            partial[mobility as usize] = 1;
            self.publish_giant(
                giant,
                Giant::split(if taken { HUGES - 1 } else { 0 }, partial),
            );
            self.split_huge(huge, mobility, Pages::of(block, taken));
        }
        true
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
        let bits = self.huges.at(huge).load(Ordering::Acquire);
        let at = (page.get() % u64::from(HUGE_FRAMES)) as u32;
        (Huge::is_allocated_in(bits) || Huge::is_split_in(bits) && self.row(huge).is_set(at))
            .then(|| Huge::mobility_in(bits))
    }

    /// What a huge frame was taken for, if it lies in the segment and is allocated as one
    /// below a split giant frame. `None` does not say that it is free.
    #[inline]
    pub(super) fn allocated_huge(&self, start: Frame) -> Option<Mobility> {
        let bits = (self.huges.at(self.huge_below_split(start)?)).load(Ordering::Acquire);
        Huge::is_allocated_in(bits).then(|| Huge::mobility_in(bits))
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
