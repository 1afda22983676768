//! Writing a level when its parent is split: giant to huge frames, huge frame to pages.
//!
//! One CPU moves the parent to `Splitting`, writes the level below, and publishes it.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::geometry::{Block, HUGE_FRAMES, HUGE_ORDER, HUGES};
use super::request::Mobility;
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::word::{Giant, GiantState, Huge};
use crate::sync::{Ordering, fence};

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

impl Segment<'_> {
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
}
