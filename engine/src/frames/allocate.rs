//! Taking any block of an order from a segment: [`Segment::allocate`].
//!
//! Where there is a choice, a block of pages comes from a huge frame that is split
//! for the same mobility already, then from a free one, and from one that is split
//! for the other mobility only when there is nothing else: [`Segment::allocate_mixed`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use core::ops::Range;

use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER, HUGES};
use super::request::Mobility;
use super::segment::{GiantIndex, HugeIndex, Segment, WrongState};
use super::split::Pages;
use super::word::{Change, Giant, GiantState, Huge, HugeState};
use crate::addr::Frame;
use crate::sync::{Ordering, pause};

/// What a segment is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) order: u8,
    pub(crate) mobility: Mobility,
}

/// What a search through a segment came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// A block; it is the caller's.
    Found(Frame),
    /// None was seen.
    Nothing,
    /// None was seen, but other CPUs changed what was looked at meanwhile: worth another look.
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

/// What a search saw on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// One number made of all giant words that are not used up: another number means that
    /// something became free or was used up meanwhile.
    pub(crate) words: u64,
    /// Pages of the other mobility are free.
    pub(crate) mixed: bool,
}

impl Seen {
    /// Adds a giant word. What a change adds depends on all of the word and on its
    /// position, so that changes in several words do not cancel out.
    #[inline]
    fn add(&mut self, giant: GiantIndex, bits: u64) {
        let key = (giant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = bits.wrapping_add(key);
        // No two words give the same x * (2x + 1): it is odd times x, plus x * x * 2.
        let mixed = mixed.wrapping_mul(mixed.wrapping_mul(2).wrapping_add(1));
        self.words = self.words.wrapping_add(mixed);
    }
}

/// How many giant frames to pass in search of a fitting huge frame that is split
/// before another one is split.
const SPLIT_SEARCH: usize = 64;

/// All of `range` once: from `from` on to the end, then from the start; or the
/// other way round.
pub(super) fn around(range: Range<usize>, from: usize, down: bool) -> impl Iterator<Item = usize> {
    let Range { start, end } = range;
    let highest = end.max(start + 1) - 1;
    let (step, last, first) = if down {
        (1usize.wrapping_neg(), start, highest)
    } else {
        (1, highest, start)
    };
    let mut next = from.clamp(start, highest);
    (start..end).map(move |_| {
        let at = next;
        next = if at == last {
            first
        } else {
            at.wrapping_add(step)
        };
        at
    })
}

/// Unmovable blocks are looked for upwards, movable ones downwards.
const fn is_down(mobility: Mobility) -> bool {
    matches!(mobility, Mobility::Movable)
}

impl Segment<'_> {
    /// Takes any block that is wanted, near where the last one was.
    pub(crate) fn allocate(&self, want: Want, seen: &mut Seen) -> Search {
        let near = &self.near[want.mobility as usize];
        let from = near.load(Ordering::Relaxed) as usize;
        let (search, saw) = self.search(want, from, *seen);
        *seen = saw;
        if let Search::Found(frame) = search {
            let huge = self.huge_of(frame);
            if huge != from {
                near.store(huge as u32, Ordering::Relaxed);
            }
        }
        search
    }

    /// Also says what was seen; it was `seen` so far. (By value: kept in memory it would
    /// take longer than all the rest.)
    fn search(&self, want: Want, from: HugeIndex, mut seen: Seen) -> (Search, Seen) {
        let Want { order, mobility } = want;
        let (mut open, mut whole) = (None, None);
        let mut nothing = Search::Nothing;
        for (passed, giant) in self.giants_around(from, mobility).enumerate() {
            if passed >= SPLIT_SEARCH && (open.is_some() || whole.is_some()) {
                break;
            }
            let bits = self.giant_bits(giant);
            if Giant::is_used_up_in(bits) {
                continue;
            }
            seen.add(giant, bits);
            let word = Giant::unpack(bits);
            let search = match word.state {
                GiantState::Splitting => Search::Busy,
                GiantState::Allocated => Search::Nothing,
                GiantState::Whole if order == GIANT_ORDER => {
                    let start = self.giant_frames(giant).start();
                    let taken = self.swap_giant(giant, word, word.turned(GiantState::Allocated));
                    Search::or_busy(taken.then_some(start))
                }
                GiantState::Whole => {
                    whole = whole.or(Some((giant, word)));
                    Search::Nothing
                }
                GiantState::Split if order < HUGE_ORDER => {
                    if word.free > 0 {
                        open = open.or(Some(giant));
                    }
                    seen.mixed |= word.may_have_run(order, mobility.other());
                    self.allocate_pages(giant, word, want, from)
                }
                GiantState::Split if order < GIANT_ORDER => {
                    self.allocate_huges(giant, word, want, from)
                }
                // Whole as soon as calls in flight have said that they are done.
                GiantState::Split if word.free == HUGES => Search::Busy,
                GiantState::Split => Search::Nothing,
            };
            match search {
                Search::Found(_) => return (search, seen),
                Search::Busy => nothing = Search::Busy,
                Search::Nothing => {}
            }
        }
        // If others were faster, look again at all.
        let search = match (open, whole) {
            (Some(giant), _) => Search::or_busy(self.open_huge(giant, want, from)),
            (None, Some((giant, word))) => {
                let start = self.giant_frames(giant).start();
                let split = self.split_giant(giant, word, Block { start, order }, mobility);
                Search::or_busy(split.then_some(start))
            }
            (None, None) => nothing,
        };
        (search, seen)
    }

    /// Takes a block of pages from a huge frame that is split for the other mobility.
    pub(crate) fn allocate_mixed(&self, want: Want) -> Search {
        let from = self.near[want.mobility.other() as usize].load(Ordering::Relaxed) as usize;
        let other = Want {
            mobility: want.mobility.other(),
            ..want
        };
        let mut nothing = Search::Nothing;
        for giant in self.giants_around(from, other.mobility) {
            let word = self.giant(giant);
            if word.state != GiantState::Split {
                continue;
            }
            match self.allocate_pages(giant, word, other, from) {
                Search::Nothing => {}
                Search::Busy => nothing = Search::Busy,
                found @ Search::Found(_) => return found,
            }
        }
        nothing
    }

    /// All giant frames, from the one of huge frame `from` on.
    pub(super) fn giants_around(
        &self,
        from: HugeIndex,
        mobility: Mobility,
    ) -> impl Iterator<Item = GiantIndex> {
        let first = self.giant_of(self.huge_frames(from).start());
        around(0..self.giant_count(), first, is_down(mobility))
    }

    /// All huge frames of a giant frame, from `from` on.
    pub(super) fn huges_around(
        &self,
        giant: GiantIndex,
        from: HugeIndex,
        mobility: Mobility,
    ) -> impl Iterator<Item = HugeIndex> {
        around(self.huges_in(giant), from, is_down(mobility))
    }

    /// A block below [`HUGE_ORDER`] from a huge frame that is split for its mobility.
    fn allocate_pages(
        &self,
        giant: GiantIndex,
        word: Giant,
        want: Want,
        from: HugeIndex,
    ) -> Search {
        let Want { order, mobility } = want;
        let counted = word.partial[mobility as usize];
        let mut nothing = Search::Nothing;
        let mut passed = 0;
        if word.may_have_run(order, mobility) {
            // One page that is promised is found; several may have to go back.
            let may_give_back = order > 0;
            if may_give_back && self.change_giant(giant, Change::busy(1)).is_err() {
                return Search::Busy;
            }
            for huge in self.huges_around(giant, from, mobility) {
                let bits = self.huge_bits(huge);
                if !Huge::is_partial_in(bits, mobility) {
                    continue;
                }
                passed += 1;
                if !Huge::unpack(bits).may_have_run(order) {
                    continue;
                }
                match self.allocate_in_huge(giant, huge, order) {
                    Search::Nothing => self.measure_run(giant, huge),
                    Search::Busy => nothing = Search::Busy,
                    found @ Search::Found(_) => {
                        if may_give_back {
                            self.settle_giant(giant, Change::busy(-1));
                        }
                        return found;
                    }
                }
                // Those that had a page were as many as there are. A larger block may lie
                // in one that is left, where others became partial and full meanwhile.
                if order == 0 && passed == counted {
                    break;
                }
            }
            if may_give_back {
                self.measure_giant_run(giant);
                self.settle_giant(giant, Change::busy(-1));
            }
            // Fewer than counted: one is being split, filled, emptied or merged just now.
            if passed < counted {
                nothing = Search::Busy;
            }
        }
        if word.busy > 0 || (counted > 0 && self.giant(giant).busy > 0) {
            nothing = Search::Busy;
        }
        nothing
    }

    /// A block from a split huge frame.
    fn allocate_in_huge(&self, giant: GiantIndex, huge: HugeIndex, order: u8) -> Search {
        // Several pages are asked for only if they are seen side by side.
        if order > 0 && !self.row(huge).has_run(order) {
            return Search::Nothing;
        }
        let Ok(promise) = self.promise_pages(huge, 1 << order) else {
            return Search::Busy;
        };
        loop {
            match self.row(huge).claim_any(order) {
                Ok(at) => {
                    self.keep_promise(giant, promise);
                    let start = self.huge_frames(huge).start().get();
                    return Search::Found(Frame::new(start + u64::from(at)));
                }
                // So many pages are free, but not side by side.
                Err(conflict) if order > 0 => {
                    self.give_back(giant, huge, promise, conflict.released);
                    return Search::Nothing;
                }
                // The promised page is there: another CPU took the one seen and left its own.
                Err(_) => pause(),
            }
        }
    }

    /// Splits a free huge frame of a split giant frame and takes its first block.
    fn open_huge(&self, giant: GiantIndex, want: Want, from: HugeIndex) -> Option<Frame> {
        let Want { order, mobility } = want;
        self.change_giant(giant, Change::split(mobility)).ok()?;
        let huge = self.find_promised_huge(giant, Huge::SPLITTING, from, mobility);
        let start = self.huge_frames(huge).start();
        self.split_huge(huge, mobility, Pages::of(Block { start, order }, true));
        Some(start)
    }

    /// Finds the free huge frame this CPU was promised and moves it to `to`.
    pub(super) fn find_promised_huge(
        &self,
        giant: GiantIndex,
        to: Huge,
        from: HugeIndex,
        mobility: Mobility,
    ) -> HugeIndex {
        loop {
            for huge in self.huges_around(giant, from, mobility) {
                if self.huge_bits(huge) == Huge::FREE.pack() && self.swap_huge(huge, Huge::FREE, to)
                {
                    return huge;
                }
            }
            pause();
        }
    }

    /// A block of one or more whole huge frames, below [`GIANT_ORDER`].
    fn allocate_huges(
        &self,
        giant: GiantIndex,
        word: Giant,
        want: Want,
        from: HugeIndex,
    ) -> Search {
        let Want { order, mobility } = want;
        let block = Block {
            start: self.giant_frames(giant).start(),
            order,
        };
        let count = block.huges() as i32;
        if word.free < block.huges() {
            return if word.busy > 0 {
                Search::Busy
            } else {
                Search::Nothing
            };
        }
        if count == 1 {
            return match self.change_giant(giant, Change::free(-1)) {
                Ok(()) => {
                    let to = Huge::allocated(mobility);
                    let huge = self.find_promised_huge(giant, to, from, mobility);
                    Search::Found(self.huge_frames(huge).start())
                }
                Err(_) => Search::Busy,
            };
        }
        if (self.change_giant(giant, Change::free(-count).and_busy(1))).is_err() {
            return Search::Busy;
        }
        let found = block
            .siblings_in_giant()
            .find(|&block| self.claim_huges(block, mobility).is_ok());
        match found {
            Some(block) => {
                self.settle_giant(giant, Change::busy(-1));
                Search::Found(block.start)
            }
            None => {
                self.settle_giant(giant, Change::free(count).and_busy(-1));
                // What another call tries it may give back.
                let is_tried = |huge| self.huge(huge).state == HugeState::Splitting;
                if self.huges_in(giant).any(is_tried) {
                    Search::Busy
                } else {
                    Search::Nothing
                }
            }
        }
    }

    /// Moves all huge frames of a promised block from free to allocated, or none.
    pub(super) fn claim_huges(&self, block: Block, mobility: Mobility) -> Result<(), WrongState> {
        if !self.frames.covers(block.range()) {
            return Err(WrongState);
        }
        let huges = self.huges_of(block);
        if huges.clone().any(|huge| self.huge(huge) != Huge::FREE) {
            return Err(WrongState);
        }
        for huge in huges.clone() {
            // Splitting, not allocated, until all are taken: nobody can free it yet.
            if !self.swap_huge(huge, Huge::FREE, Huge::SPLITTING) {
                self.publish_huges(huges.start..huge, Huge::FREE);
                return Err(WrongState);
            }
        }
        self.publish_huges(huges, Huge::allocated(mobility));
        Ok(())
    }
}
