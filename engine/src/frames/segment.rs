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
//! the parent to `Splitting`, and published by the store that ends that state.
//! Nobody waits for a splitter except who must free, claim or look into
//! exactly that frame.
//!
//! The parts of a huge frame that lie outside the segment are set in its
//! bitmap for ever, so a frame that crosses the segment's end never merges.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::geometry::{
    Block, GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, HUGES, unit, units,
};
use super::row::{Conflict, Row};
use super::table::Table;
use super::word::{Giant, GiantState, Huge, HugeState};
use crate::addr::{Frame, FrameRange};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Frames of one node and zone with their tables.
#[derive(Debug)]
pub(crate) struct Segment<'m> {
    /// What it covers.
    pub(crate) frames: FrameRange,
    giants: Table<'m, AtomicU64>,
    huges: Table<'m, AtomicU32>,
    rows: Table<'m, Row>,
    /// Giant frame that last served a request: where the next one looks first.
    hint: AtomicU32,
}

/// What a search through a segment came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// A block; it is the caller's.
    Found(Frame),
    /// There is none.
    Nothing,
    /// None was found, but other CPUs changed what was looked at meanwhile: worth another look.
    Busy,
}

impl Search {
    const fn or_busy(found: Option<Frame>) -> Self {
        match found {
            Some(frame) => Self::Found(frame),
            None => Self::Busy,
        }
    }
}

/// A block was not in the state an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongState;

/// Index of a giant frame in the segment's table.
type GiantIndex = usize;
/// Index of a huge frame in the segment's tables.
type HugeIndex = usize;

/// How many giant frames to pass in search of a split one before a whole one is split.
const SPLIT_SEARCH: usize = 64;

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
            hint: AtomicU32::new(0),
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

    fn giant_of(&self, frame: Frame) -> GiantIndex {
        ((frame.get() >> GIANT_ORDER) - (self.frames.start().get() >> GIANT_ORDER)) as usize
    }

    fn huge_of(&self, frame: Frame) -> HugeIndex {
        ((frame.get() >> HUGE_ORDER) - (self.frames.start().get() >> HUGE_ORDER)) as usize
    }

    /// The huge frames of giant frame `giant` that the segment touches.
    pub(crate) fn huges_in(&self, giant: GiantIndex) -> core::ops::Range<HugeIndex> {
        let inside = self.giant_frames(giant).intersect(self.frames);
        let first = self.huge_of(inside.start());
        first..first + units(inside, HUGE_ORDER) as usize
    }

    pub(crate) fn giant(&self, giant: GiantIndex) -> Giant {
        Giant::unpack(self.giants.at(giant).load(Ordering::Acquire))
    }

    pub(crate) fn huge(&self, huge: HugeIndex) -> Huge {
        Huge::unpack(self.huges.at(huge).load(Ordering::Acquire))
    }

    pub(crate) fn row(&self, huge: HugeIndex) -> &Row {
        self.rows.at(huge)
    }

    // ---- Words -----------------------------------------------------------

    pub(crate) fn publish_giant(&self, giant: GiantIndex, word: Giant) {
        // Release: what was written below comes before; pairs with `giant()`.
        self.giants.at(giant).store(word.pack(), Ordering::Release);
    }

    pub(crate) fn publish_huge(&self, huge: HugeIndex, word: Huge) {
        self.huges.at(huge).store(word.pack(), Ordering::Release);
    }

    fn swap_giant(&self, giant: GiantIndex, from: Giant, to: Giant) -> bool {
        let (from, to) = (from.pack(), to.pack());
        let word = self.giants.at(giant);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn swap_huge(&self, huge: HugeIndex, from: Huge, to: Huge) -> bool {
        let (from, to) = (from.pack(), to.pack());
        let word = self.huges.at(huge);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Moves the counts of a split giant frame; `false` if they do not allow it.
    fn move_giant(&self, giant: GiantIndex, free: i32, partial: i32) -> bool {
        self.giants
            .at(giant)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Giant::unpack(bits).moved(free, partial).map(Giant::pack)
            })
            .is_ok()
    }

    /// Raises or lowers the counts for something the caller owns below, which
    /// keeps the giant frame split: it can't fail.
    fn settle_giant(&self, giant: GiantIndex, free: i32, partial: i32) {
        let moved = self.move_giant(giant, free, partial);
        debug_assert!(moved, "counts of giant {giant} lost: {free} {partial}");
    }

    /// Takes `count` pages off the count of a huge frame, for the caller to find.
    fn promise_pages(&self, giant: GiantIndex, huge: HugeIndex, count: u32) -> bool {
        let taken = self
            .huges
            .at(huge)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Huge::unpack(bits).promised(count).map(Huge::pack)
            });
        if taken.is_ok_and(|old| Huge::unpack(old).free == count) {
            self.settle_giant(giant, 0, -1);
        }
        taken.is_ok()
    }

    /// Raises the count of a split huge frame by pages whose bits are clear
    /// again, and merges it if those were the last.
    fn return_pages(&self, giant: GiantIndex, huge: HugeIndex, count: u32) {
        // `partial` is raised before the count and lowered after it.
        let mut raised = 0;
        let mut old = self.huge(huge);
        let new = loop {
            if old.free == 0 && raised == 0 {
                self.settle_giant(giant, 0, 1);
                raised = 1;
            }
            let new = old.freed(count);
            if self.swap_huge(huge, old, new) {
                break new;
            }
            old = self.huge(huge);
        };
        let merged = new == Huge::FREE;
        let should_be = i32::from(!merged) - i32::from(old.free > 0);
        if merged || should_be != raised {
            self.settle_giant(giant, i32::from(merged), should_be - raised);
        }
    }

    // ---- Splitting -------------------------------------------------------

    /// Opens a huge frame the caller owns (`Splitting`): its pages become
    /// `!taken` but for those of `block`.
    fn split_huge(&self, huge: HugeIndex, block: Block, taken: bool) {
        let count = block.frames() as u32;
        self.row(huge).fill(!taken, block.page_in_huge(), count);
        let free = if taken { HUGE_FRAMES - count } else { count };
        self.publish_huge(huge, Huge::split(free));
    }

    /// Opens giant frame `giant`, found `from`, so that all of it stays as it
    /// is but `block`, which changes sides. `false` if another CPU was faster.
    fn split_giant(&self, giant: GiantIndex, from: Giant, block: Block) -> bool {
        if !self.swap_giant(giant, from, Giant::SPLITTING) {
            return false;
        }
        let taken = from == Giant::WHOLE;
        let (rest, inside) = if taken {
            (Huge::FREE, Huge::ALLOCATED)
        } else {
            (Huge::ALLOCATED, Huge::FREE)
        };
        let first = self.huge_of(block.start);
        for huge in self.huges_in(giant) {
            let within = huge >= first && huge < first + block.huges() as usize;
            self.publish_huge(huge, if within { inside } else { rest });
        }
        let mut partial = 0;
        let mut changed = block.huges();
        if changed == 0 {
            self.split_huge(first, block, taken);
            (changed, partial) = (u32::from(taken), 1);
        }
        let free = if taken { HUGES - changed } else { changed };
        self.publish_giant(giant, Giant::split(free, partial));
        true
    }

    // ---- Allocate --------------------------------------------------------

    /// Takes any block of `order`.
    pub(crate) fn allocate(&self, order: u8) -> Search {
        let giants = self.giants.len();
        let hint = self.hint.load(Ordering::Relaxed) as usize % giants.max(1);
        let mut whole = None;
        let mut nothing = Search::Nothing;
        for (passed, giant) in (hint..giants).chain(0..hint).enumerate() {
            if passed >= SPLIT_SEARCH && whole.is_some() {
                break;
            }
            let word = self.giant(giant);
            let search = match word.state {
                GiantState::Splitting => Search::Busy,
                GiantState::Allocated => Search::Nothing,
                GiantState::Whole if order == GIANT_ORDER => {
                    let start = self.giant_frames(giant).start();
                    let taken = self.swap_giant(giant, Giant::WHOLE, Giant::ALLOCATED);
                    Search::or_busy(taken.then_some(start))
                }
                GiantState::Whole => {
                    whole = whole.or(Some(giant));
                    Search::Nothing
                }
                GiantState::Split if order < HUGE_ORDER => self.allocate_pages(giant, word, order),
                GiantState::Split if order < GIANT_ORDER => self.allocate_huges(giant, word, order),
                GiantState::Split => Search::Nothing,
            };
            match search {
                Search::Found(_) => {
                    self.remember(giant, hint);
                    return search;
                }
                Search::Busy => nothing = Search::Busy,
                Search::Nothing => {}
            }
        }
        let Some(whole) = whole else { return nothing };
        // Split the first whole one; if others were faster, look again at all.
        let start = self.giant_frames(whole).start();
        let split = self.split_giant(whole, Giant::WHOLE, Block { start, order });
        if split {
            self.remember(whole, hint);
        }
        Search::or_busy(split.then_some(start))
    }

    fn remember(&self, giant: GiantIndex, hint: GiantIndex) {
        if giant != hint {
            self.hint.store(giant as u32, Ordering::Relaxed);
        }
    }

    /// A block below [`HUGE_ORDER`]: from a huge frame that is split already, else from a free one.
    fn allocate_pages(&self, giant: GiantIndex, word: Giant, order: u8) -> Search {
        let mut nothing = Search::Nothing;
        let mut seen_partial = 0;
        if word.partial > 0 {
            for huge in self.huges_in(giant) {
                let seen = self.huge(huge);
                seen_partial += u32::from(seen.is_partial());
                if seen.state != HugeState::Split || seen.free < 1 << order {
                    continue;
                }
                match self.allocate_in_huge(giant, huge, order) {
                    Search::Nothing => {}
                    Search::Busy => nothing = Search::Busy,
                    found @ Search::Found(_) => return found,
                }
            }
        }
        // Fewer than counted: one is being split, filled or merged just now.
        if seen_partial < word.partial {
            nothing = Search::Busy;
        }
        if word.free == 0 {
            return nothing;
        }
        // One free huge frame less, one partial one more.
        if !self.move_giant(giant, -1, 1) {
            return Search::Busy;
        }
        let huge = self.find_promised_huge(giant, Huge::SPLITTING);
        let start = self.huge_frames(huge).start();
        self.split_huge(huge, Block { start, order }, true);
        Search::Found(start)
    }

    /// A block from a split huge frame.
    fn allocate_in_huge(&self, giant: GiantIndex, huge: HugeIndex, order: u8) -> Search {
        if !self.promise_pages(giant, huge, 1 << order) {
            return Search::Busy;
        }
        loop {
            if let Some(at) = self.row(huge).claim_any(order) {
                let start = self.huge_frames(huge).start().get();
                return Search::Found(Frame::new(start + u64::from(at)));
            }
            if order > 0 {
                // So many pages are free, but not side by side.
                self.return_pages(giant, huge, 1 << order);
                return Search::Nothing;
            }
            // The promised page is there: another CPU took the one seen and left its own.
            pause();
        }
    }

    /// Finds the free huge frame this CPU was promised and moves it to `to`.
    fn find_promised_huge(&self, giant: GiantIndex, to: Huge) -> HugeIndex {
        loop {
            for huge in self.huges_in(giant) {
                if self.huge(huge) == Huge::FREE && self.swap_huge(huge, Huge::FREE, to) {
                    return huge;
                }
            }
            pause();
        }
    }

    /// A block of one or more whole huge frames, below [`GIANT_ORDER`].
    fn allocate_huges(&self, giant: GiantIndex, word: Giant, order: u8) -> Search {
        let block = Block {
            start: self.giant_frames(giant).start(),
            order,
        };
        let count = block.huges() as i32;
        if word.free < block.huges() {
            return Search::Nothing;
        }
        if !self.move_giant(giant, -count, 0) {
            return Search::Busy;
        }
        if count == 1 {
            let huge = self.find_promised_huge(giant, Huge::ALLOCATED);
            return Search::Found(self.huge_frames(huge).start());
        }
        let found = block
            .siblings_in_giant()
            .find(|&block| self.claim_huges(block).is_ok());
        match found {
            Some(block) => Search::Found(block.start),
            None => {
                self.settle_giant(giant, count, 0);
                Search::Nothing
            }
        }
    }

    /// Moves all huge frames of a promised block from free to allocated, or none.
    fn claim_huges(&self, block: Block) -> Result<(), WrongState> {
        if !self.frames.covers(block.range()) {
            return Err(WrongState);
        }
        let first = self.huge_of(block.start);
        let huges = first..first + block.huges() as usize;
        if huges.clone().any(|huge| self.huge(huge) != Huge::FREE) {
            return Err(WrongState);
        }
        for huge in huges {
            if !self.swap_huge(huge, Huge::FREE, Huge::ALLOCATED) {
                for undo in first..huge {
                    self.publish_huge(undo, Huge::FREE);
                }
                return Err(WrongState);
            }
        }
        Ok(())
    }

    // ---- Claim a given block ---------------------------------------------

    /// Takes exactly `block`, which must lie inside the segment.
    pub(crate) fn claim(&self, block: Block) -> Result<(), WrongState> {
        let giant = self.giant_of(block.start);
        loop {
            let word = self.giant(giant);
            match word.state {
                GiantState::Allocated => return Err(WrongState),
                GiantState::Splitting => pause(),
                GiantState::Whole if block.order == GIANT_ORDER => {
                    if self.swap_giant(giant, word, Giant::ALLOCATED) {
                        return Ok(());
                    }
                }
                GiantState::Whole => {
                    if self.split_giant(giant, word, block) {
                        return Ok(());
                    }
                }
                GiantState::Split if block.order < HUGE_ORDER => {
                    if let Some(answer) = self.claim_pages(giant, block) {
                        return answer;
                    }
                }
                GiantState::Split => {
                    let count = block.huges() as i32;
                    if !self.move_giant(giant, -count, 0) {
                        if self.giant(giant).state == GiantState::Split {
                            return Err(WrongState);
                        }
                        continue; // merged meanwhile
                    }
                    let claimed = self.claim_huges(block);
                    if claimed.is_err() {
                        self.settle_giant(giant, count, 0);
                    }
                    return claimed;
                }
            }
        }
    }

    /// Takes pages of a split giant frame; `None` to look again.
    fn claim_pages(&self, giant: GiantIndex, block: Block) -> Option<Result<(), WrongState>> {
        let huge = self.huge_of(block.start);
        let count = block.frames() as u32;
        match self.huge(huge).state {
            HugeState::Allocated => Some(Err(WrongState)),
            HugeState::Splitting => {
                pause();
                None
            }
            HugeState::Free => {
                if !self.move_giant(giant, -1, 1) {
                    // Either all free huge frames are promised, this one too: whoever
                    // holds the promise takes it; or the giant frame merged.
                    let split = self.giant(giant).state == GiantState::Split;
                    return (split && self.huge(huge) == Huge::FREE).then_some(Err(WrongState));
                }
                if !self.swap_huge(huge, Huge::FREE, Huge::SPLITTING) {
                    self.settle_giant(giant, 1, -1);
                    return None;
                }
                self.split_huge(huge, block, true);
                Some(Ok(()))
            }
            HugeState::Split => {
                if !self.promise_pages(giant, huge, count) {
                    let split = self.huge(huge).state == HugeState::Split;
                    return split.then_some(Err(WrongState));
                }
                let claimed = self.row(huge).claim(block.page_in_huge(), block.order);
                if claimed.is_err() {
                    self.return_pages(giant, huge, count);
                }
                Some(claimed.map_err(|_| WrongState))
            }
        }
    }

    // ---- Free ------------------------------------------------------------

    /// Gives back `block`, which must lie inside the segment and be allocated,
    /// by itself, as a part of a larger block or as several smaller ones.
    pub(crate) fn free(&self, block: Block) -> Result<(), WrongState> {
        let giant = self.giant_of(block.start);
        loop {
            let word = self.giant(giant);
            match word.state {
                GiantState::Whole => return Err(WrongState),
                GiantState::Splitting => pause(),
                GiantState::Allocated if block.order == GIANT_ORDER => {
                    if self.swap_giant(giant, word, Giant::WHOLE) {
                        return Ok(());
                    }
                }
                GiantState::Allocated => {
                    if self.split_giant(giant, word, block) {
                        return Ok(());
                    }
                }
                GiantState::Split if block.order < HUGE_ORDER => {
                    if let Some(answer) = self.free_pages(giant, block) {
                        return answer;
                    }
                }
                GiantState::Split => return self.free_huges(giant, block),
            }
        }
    }

    /// Gives back pages of a split giant frame; `None` to look again.
    fn free_pages(&self, giant: GiantIndex, block: Block) -> Option<Result<(), WrongState>> {
        let huge = self.huge_of(block.start);
        match self.huge(huge).state {
            HugeState::Free => Some(Err(WrongState)),
            HugeState::Splitting => {
                pause();
                None
            }
            HugeState::Allocated => {
                if !self.swap_huge(huge, Huge::ALLOCATED, Huge::SPLITTING) {
                    return None;
                }
                self.settle_giant(giant, 0, 1);
                self.split_huge(huge, block, false);
                Some(Ok(()))
            }
            HugeState::Split => {
                let released = self.row(huge).release(block.page_in_huge(), block.order);
                let pages = match released {
                    Ok(()) => block.frames() as u32,
                    Err(Conflict { released }) => released,
                };
                if pages > 0 {
                    self.return_pages(giant, huge, pages);
                }
                Some(released.map_err(|_| WrongState))
            }
        }
    }

    /// Gives back whole huge frames of a split giant frame.
    fn free_huges(&self, giant: GiantIndex, block: Block) -> Result<(), WrongState> {
        let first = self.huge_of(block.start);
        let huges = first..first + block.huges() as usize;
        // Look first, so that an error leaves everything as it was.
        if !huges.clone().all(|huge| self.is_all_allocated(huge)) {
            return Err(WrongState);
        }
        let mut freed = 0;
        for huge in huges {
            if !self.free_whole_huge(huge) {
                break; // another CPU frees the same frames at this moment
            }
            freed += 1;
        }
        if freed > 0 {
            self.settle_giant(giant, freed, 0);
        }
        if freed == block.huges() as i32 {
            Ok(())
        } else {
            Err(WrongState)
        }
    }

    fn free_whole_huge(&self, huge: HugeIndex) -> bool {
        self.swap_huge(huge, Huge::ALLOCATED, Huge::FREE)
            || (self.is_all_allocated(huge) && self.swap_huge(huge, Huge::FULL, Huge::FREE))
    }

    /// Whether every page of the huge frame is allocated and none promised.
    fn is_all_allocated(&self, huge: HugeIndex) -> bool {
        match self.huge(huge) {
            Huge {
                state: HugeState::Allocated,
                ..
            } => true,
            // Nothing free and no bit clear: nothing promised either.
            Huge::FULL => self.row(huge).is_full(),
            _ => false,
        }
    }

    // ---- Look ------------------------------------------------------------

    /// Whether `frame`, inside the segment, is allocated (or was never free).
    pub(crate) fn is_allocated(&self, frame: Frame) -> bool {
        let giant = self.giant_of(frame);
        loop {
            match self.giant(giant).state {
                GiantState::Whole => return false,
                GiantState::Allocated => return true,
                GiantState::Splitting => pause(),
                GiantState::Split => {
                    let huge = self.huge_of(frame);
                    match self.huge(huge).state {
                        HugeState::Free => return false,
                        HugeState::Allocated => return true,
                        HugeState::Splitting => pause(),
                        HugeState::Split => {
                            let page = frame.get() % u64::from(HUGE_FRAMES);
                            return self.row(huge).is_set(page as u32);
                        }
                    }
                }
            }
        }
    }

    /// Whether giant frame `giant` lies wholly inside the segment.
    pub(crate) fn has_all_of_giant(&self, giant: GiantIndex) -> bool {
        self.giant_frames(giant).intersect(self.frames).count() == GIANT_FRAMES
    }
}
