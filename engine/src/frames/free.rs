//! Giving blocks back: [`Segment::free`].

use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::request::Mobility;
use super::row::Conflict;
use super::segment::{GiantIndex, HugeIndex, Segment, WrongState};
use super::split::Pages;
use super::word::{Change, Giant, GiantState, Huge, HugeState, LARGEST_RUN};
use crate::sync::pause;

impl Segment<'_> {
    /// Gives back `block`, which must lie inside the segment and be allocated,
    /// by itself, as a part of a larger block or as several smaller ones.
    #[inline]
    pub(crate) fn free(&self, block: Block) -> Result<(), WrongState> {
        let giant = self.giant_of(block.start);
        if block.order < HUGE_ORDER && Giant::is_split_in(self.giant_bits(giant)) {
            let huge = self.huge_of(block.start);
            if Huge::is_split_in(self.huge_bits(huge)) {
                return self.release(giant, huge, block.page_in_huge(), block.order);
            }
        }
        self.free_into(giant, block)
    }

    /// The same for a block that is not pages of a split huge frame.
    #[inline(never)]
    fn free_into(&self, giant: GiantIndex, block: Block) -> Result<(), WrongState> {
        loop {
            let word = self.giant(giant);
            match word.state {
                GiantState::Whole => return Err(WrongState),
                GiantState::Splitting => pause(),
                GiantState::Allocated if block.order == GIANT_ORDER => {
                    if self.swap_giant(giant, word, word.turned(GiantState::Whole)) {
                        return Ok(());
                    }
                }
                GiantState::Allocated => {
                    if self.split_giant(giant, word, block, Mobility::Unmovable) {
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
        let word = self.huge(huge);
        match word.state {
            HugeState::Free => Some(Err(WrongState)),
            HugeState::Splitting => {
                pause();
                None
            }
            HugeState::Allocated => {
                let mobility = word.mobility;
                if word.isolated {
                    if !self.swap_huge(huge, word, Huge::SPLITTING) {
                        return None;
                    }
                    let word = self.write_row(huge, mobility, Pages::of(block, false));
                    self.publish_huge(huge, word.with_isolated(true));
                    return Some(Ok(()));
                }
                // Partial before anything of it is free.
                (self.change_giant(giant, Change::partial(mobility, 1))).ok()?;
                if !self.swap_huge(huge, word, Huge::SPLITTING) {
                    self.settle_giant(giant, Change::partial(mobility, -1));
                    return None;
                }
                self.split_huge(huge, mobility, Pages::of(block, false));
                Some(Ok(()))
            }
            HugeState::Split => Some(self.release(giant, huge, block.page_in_huge(), block.order)),
        }
    }

    /// Clears the bits of pages of a split huge frame, then raises its count.
    #[inline]
    fn release(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        at: u32,
        order: u8,
    ) -> Result<(), WrongState> {
        let released = self.row(huge).release(at, order);
        let (pages, run) = match released {
            Ok(run) => (1 << order, run),
            Err(Conflict { released }) => (released, LARGEST_RUN),
        };
        if pages > 0 {
            self.return_pages(giant, huge, pages, run);
        }
        released.map(drop).map_err(|_| WrongState)
    }

    /// Gives back whole huge frames of a split giant frame.
    fn free_huges(&self, giant: GiantIndex, block: Block) -> Result<(), WrongState> {
        // Look first, so that an error leaves everything as it was.
        if !self.huges_of(block).all(|huge| self.is_all_allocated(huge)) {
            return Err(WrongState);
        }
        let mut freed = 0;
        // Stops early only if another CPU frees the same frames at this moment.
        let done = self.huges_of(block).try_for_each(|huge| {
            loop {
                let word = self.settled_huge(huge);
                if word.state != HugeState::Allocated {
                    break;
                }
                // It may be about to be isolated: then once more.
                if self.swap_huge(huge, word, Huge::FREE.with_isolated(word.isolated)) {
                    freed += i32::from(!word.isolated);
                    return Ok(());
                }
            }
            if !self.is_all_allocated(huge) {
                return Err(WrongState);
            }
            // Allocated page by page, so given back page by page.
            self.release(giant, huge, 0, HUGE_ORDER)
        });
        if freed > 0 {
            self.settle_giant(giant, Change::free(freed));
        }
        done
    }

    /// Whether every page of the huge frame is allocated and none promised.
    fn is_all_allocated(&self, huge: HugeIndex) -> bool {
        let word = self.settled_huge(huge);
        word.state == HugeState::Allocated || word.is_full() && self.row(huge).count_free() == 0
    }
}
