//! Taking any block of an order from a segment: [`Segment::allocate`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::segment::{GiantIndex, HugeIndex, Segment, WrongState};
use super::word::{Change, Giant, GiantState, Huge, HugeState};
use crate::addr::Frame;
use crate::sync::{Ordering, pause};

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

/// How many giant frames to pass in search of a split one before a whole one is split.
const SPLIT_SEARCH: usize = 64;

impl Segment<'_> {
    /// Takes any block of `order`, near where the last one was.
    pub(crate) fn allocate(&self, order: u8) -> Search {
        let giants = self.giant_count();
        let hint = self.hint.load(Ordering::Relaxed) as usize;
        let first = self
            .giant_of(self.huge_frames(hint).start())
            .min(giants - 1);
        let mut whole = None;
        let mut nothing = Search::Nothing;
        for (passed, giant) in (first..giants).chain(0..first).enumerate() {
            if passed >= SPLIT_SEARCH && whole.is_some() {
                break;
            }
            let word = self.giant(giant);
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
                    self.allocate_pages(giant, word, order, hint)
                }
                GiantState::Split if order < GIANT_ORDER => {
                    self.allocate_huges(giant, word, order, hint)
                }
                GiantState::Split => Search::Nothing,
            };
            match search {
                Search::Found(frame) => {
                    self.remember(frame, hint);
                    return search;
                }
                Search::Busy => nothing = Search::Busy,
                Search::Nothing => {}
            }
        }
        let Some((giant, word)) = whole else {
            return nothing;
        };
        // Split the first whole one; if others were faster, look again at all.
        let start = self.giant_frames(giant).start();
        let split = self.split_giant(giant, word, Block { start, order });
        if split {
            self.remember(start, hint);
        }
        Search::or_busy(split.then_some(start))
    }

    fn remember(&self, frame: Frame, hint: HugeIndex) {
        let huge = self.huge_of(frame);
        if huge != hint {
            self.hint.store(huge as u32, Ordering::Relaxed);
        }
    }

    /// The huge frames of a giant frame from `hint` on, once round.
    fn huges_from(&self, giant: GiantIndex, hint: HugeIndex) -> impl Iterator<Item = HugeIndex> {
        let huges = self.huges_in(giant);
        let from = hint.clamp(huges.start, huges.end);
        (from..huges.end).chain(huges.start..from)
    }

    /// A block below [`HUGE_ORDER`]: from a huge frame that is split already, else from a free one.
    fn allocate_pages(&self, giant: GiantIndex, word: Giant, order: u8, hint: HugeIndex) -> Search {
        let mut nothing = Search::Nothing;
        let mut seen_partial = 0;
        if word.partial > 0 {
            for huge in self.huges_from(giant, hint) {
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
        // Fewer than counted: one is being split, filled, emptied or merged just now.
        if seen_partial < word.partial || word.busy > 0 || self.giant(giant).busy > 0 {
            nothing = Search::Busy;
        }
        if word.free == 0 {
            return nothing;
        }
        // One free huge frame less, one partial one more.
        if self.change_giant(giant, Change::by(-1, 1, 0)).is_err() {
            return Search::Busy;
        }
        let huge = self.find_promised_huge(giant, Huge::SPLITTING, hint);
        let start = self.huge_frames(huge).start();
        self.split_huge(huge, Block { start, order }, true);
        Search::Found(start)
    }

    /// A block from a split huge frame.
    fn allocate_in_huge(&self, giant: GiantIndex, huge: HugeIndex, order: u8) -> Search {
        // One page that is promised is found; several may have to go back, and
        // so are asked for only if they are seen side by side.
        if order == 0 {
            return self.allocate_promised(giant, huge, order);
        }
        if !self.row(huge).has_run(order) {
            return Search::Nothing;
        }
        if self.change_giant(giant, Change::by(0, 0, 1)).is_err() {
            return Search::Busy;
        }
        let found = self.allocate_promised(giant, huge, order);
        self.settle_giant(giant, Change::by(0, 0, -1));
        found
    }

    /// Promises itself the pages of a block, then finds them.
    fn allocate_promised(&self, giant: GiantIndex, huge: HugeIndex, order: u8) -> Search {
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

    /// Finds the free huge frame this CPU was promised and moves it to `to`.
    fn find_promised_huge(&self, giant: GiantIndex, to: Huge, hint: HugeIndex) -> HugeIndex {
        loop {
            for huge in self.huges_from(giant, hint) {
                if self.huge(huge) == Huge::FREE && self.swap_huge(huge, Huge::FREE, to) {
                    return huge;
                }
            }
            pause();
        }
    }

    /// A block of one or more whole huge frames, below [`GIANT_ORDER`].
    fn allocate_huges(&self, giant: GiantIndex, word: Giant, order: u8, hint: HugeIndex) -> Search {
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
            return match self.change_giant(giant, Change::by(-1, 0, 0)) {
                Ok(()) => {
                    let huge = self.find_promised_huge(giant, Huge::ALLOCATED, hint);
                    Search::Found(self.huge_frames(huge).start())
                }
                Err(_) => Search::Busy,
            };
        }
        if self.change_giant(giant, Change::by(-count, 0, 1)).is_err() {
            return Search::Busy;
        }
        let found = block
            .siblings_in_giant()
            .find(|&block| self.claim_huges(block).is_ok());
        match found {
            Some(block) => {
                self.settle_giant(giant, Change::by(0, 0, -1));
                Search::Found(block.start)
            }
            None => {
                self.settle_giant(giant, Change::by(count, 0, -1));
                Search::Nothing
            }
        }
    }

    /// Moves all huge frames of a promised block from free to allocated, or none.
    pub(super) fn claim_huges(&self, block: Block) -> Result<(), WrongState> {
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
        self.publish_huges(huges, Huge::ALLOCATED);
        Ok(())
    }
}
