//! Taking exactly one given block: [`Segment::claim`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "counts inside one giant frame"
)]

use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::request::Mobility;
use super::segment::{GiantIndex, Segment, WrongState};
use super::split::Pages;
use super::word::{Change, GiantState, Huge, HugeState};
use crate::sync::pause;

/// A look at a block, when it is not yet clear whether it can be had.
type Look = Option<Result<(), WrongState>>;

/// Who claims a given block does not say whether it can be moved.
const UNKNOWN: Mobility = Mobility::Unmovable;

/// Somebody is at it: look again.
const AGAIN: Look = None;

impl Segment<'_> {
    /// Takes exactly `block`, which must lie inside the segment. It is refused
    /// only if some of it was seen allocated; what is merely promised to a call
    /// in flight is waited for.
    pub(crate) fn claim(&self, block: Block) -> Result<(), WrongState> {
        self.claim_for(block, UNKNOWN)
    }

    /// As [`Segment::claim`], for content of this mobility.
    pub(crate) fn claim_for(&self, block: Block, mobility: Mobility) -> Result<(), WrongState> {
        let giant = self.giant_of(block.start);
        loop {
            let word = self.giant(giant);
            let look = match word.state {
                GiantState::Allocated => return Err(WrongState),
                GiantState::Splitting => AGAIN,
                GiantState::Whole if block.order == GIANT_ORDER => self
                    .swap_giant(giant, word, word.turned(GiantState::Allocated))
                    .then_some(Ok(())),
                GiantState::Whole => self
                    .split_giant(giant, word, block, mobility)
                    .then_some(Ok(())),
                GiantState::Split if block.order < HUGE_ORDER => {
                    self.look_at_pages(giant, block, mobility)
                }
                GiantState::Split => self.look_at_huges(giant, block, mobility),
            };
            match look {
                Some(answer) => return answer,
                AGAIN => pause(),
            }
        }
    }

    /// Whole huge frames of a split giant frame.
    fn look_at_huges(&self, giant: GiantIndex, block: Block, mobility: Mobility) -> Look {
        let in_use = |huge| {
            let word = self.huge(huge);
            match word.state {
                _ if word.isolated => true,
                HugeState::Allocated => true,
                // All clear: a call in flight is about to give its pages back.
                HugeState::Split => self.row(huge).any_set(0, HUGE_ORDER),
                HugeState::Free | HugeState::Splitting => false,
            }
        };
        if self.huges_of(block).any(in_use) {
            return Some(Err(WrongState));
        }
        let count = block.huges() as i32;
        if self
            .change_giant(giant, Change::free(-count).and_busy(1))
            .is_err()
        {
            return AGAIN;
        }
        let claimed = self.claim_huges(block, mobility);
        let back = if claimed.is_ok() { 0 } else { count };
        self.settle_giant(giant, Change::free(back).and_busy(-1));
        claimed.is_ok().then_some(Ok(()))
    }

    /// Pages of a split giant frame.
    fn look_at_pages(&self, giant: GiantIndex, block: Block, mobility: Mobility) -> Look {
        let huge = self.huge_of(block.start);
        let word = self.huge(huge);
        match word.state {
            _ if word.isolated => Some(Err(WrongState)),
            HugeState::Allocated => Some(Err(WrongState)),
            HugeState::Splitting => AGAIN,
            HugeState::Free => {
                if self
                    .change_giant(giant, Change::split(mobility).and_busy(1))
                    .is_err()
                {
                    return AGAIN;
                }
                let mine = self.swap_huge(huge, Huge::FREE, Huge::SPLITTING);
                if mine {
                    self.split_huge(huge, mobility, Pages::of(block, true));
                }
                let back = if mine {
                    Change::busy(-1)
                } else {
                    Change::free(1).and_partial(mobility, -1).and_busy(-1)
                };
                self.settle_giant(giant, back);
                mine.then_some(Ok(()))
            }
            HugeState::Split => {
                let (row, at) = (self.row(huge), block.page_in_huge());
                // A bit is set only while its page is allocated (or, for a moment, while
                // a block of several words is tried), whatever the huge frame has
                // become since: its row is all clear when it merges.
                if row.any_set(at, block.order) {
                    return Some(Err(WrongState));
                }
                if self.change_giant(giant, Change::busy(1)).is_err() {
                    return AGAIN;
                }
                let Ok(promise) = self.promise_pages(huge, block.frames() as u32) else {
                    self.settle_giant(giant, Change::busy(-1));
                    return AGAIN;
                };
                let look = match row.claim(at, block.order) {
                    Ok(()) => {
                        self.keep_promise(giant, promise);
                        Some(Ok(()))
                    }
                    Err(conflict) => {
                        self.give_back(giant, huge, promise, conflict.released);
                        AGAIN
                    }
                };
                self.settle_giant(giant, Change::busy(-1));
                look
            }
        }
    }
}
