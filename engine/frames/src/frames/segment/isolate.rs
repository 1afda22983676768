//! Huge frames of which nothing can be taken.
//!
//! The mark is a bit in the word of the huge frame; the counts of its giant frame leave it
//! out, so that no search comes near it, and allocation pays nothing. A call that took pages
//! sees the mark when it looks at the word afterwards, and gives them back.

use core::ops::Range;

use super::take::Miss;
use super::{GiantIndex, HugeIndex, Segment};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::Pages;
use crate::frames::word::{Change, GiantState, Huge, HugeState, Mobility};
use crate::sync::pause;

/// The huge frame is isolated already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlreadyIsolated;

impl Segment<'_> {
    /// From now on nothing of the huge frame can be taken.
    pub(crate) fn isolate(&self, huge: HugeIndex) -> Result<(), AlreadyIsolated> {
        let giant = self.giant_of_huge(huge);
        loop {
            let word = self.giant(giant);
            let done = match word.state() {
                GiantState::Opening => false,
                GiantState::Free => self
                    .take_below(giant, word, || {
                        let marked = self.mark_isolated(giant, huge, self.huge(huge));
                        if marked { Ok(()) } else { Err(Miss::Changed) }
                    })
                    .is_ok(),
                // The next look finds it split.
                GiantState::Allocated => {
                    self.open_giant(giant, word);
                    false
                }
                GiantState::Split => {
                    let seen = self.opened_huge(huge);
                    if seen.is_isolated() {
                        return Err(AlreadyIsolated);
                    }
                    self.mark_isolated(giant, huge, seen)
                }
            };
            if done {
                return Ok(());
            }
            pause();
        }
    }

    /// Marks a huge frame, found as `seen`, of a split giant frame; `false` if it changed.
    fn mark_isolated(&self, giant: GiantIndex, huge: HugeIndex, seen: Huge) -> bool {
        let isolated = seen.with_isolated(true);
        match seen.state() {
            _ if seen.is_isolated() => false,
            HugeState::Opening => false,
            HugeState::Free => {
                // Out of the count first, as if it were taken.
                let mut call = self.calls.begin();
                let taken = Change::free(-1).and_known(seen.content(), -1);
                if self.try_adjust_giant(giant, taken).is_err() {
                    return false;
                }
                let mine = self.swap_huge(huge, seen, isolated);
                if !mine {
                    self.raise_free_of(giant, 1, seen.content());
                    call.undo();
                }
                mine
            }
            HugeState::Split | HugeState::Allocated => {
                let mine = self.swap_huge(huge, seen, isolated);
                if mine && seen.is_counted() {
                    self.adjust_giant(giant, Change::partial(seen.mobility(), -1));
                }
                mine
            }
        }
    }

    /// What is free of an isolated huge frame can be taken again; nothing, if another call has ended
    /// that.
    pub(crate) fn end_isolation(&self, huge: HugeIndex) {
        let giant = self.giant_of_huge(huge);
        loop {
            let seen = self.opened_huge(huge);
            if !seen.is_isolated() {
                return;
            }
            let now = seen.with_isolated(false);
            let count = Change::partial(now.mobility(), 1);
            // Partial before it can be taken.
            if now.is_counted() {
                self.adjust_giant(giant, count);
            }
            if self.swap_huge(huge, seen, now) {
                if now.is_free() {
                    self.raise_free_of(giant, 1, now.content());
                } else {
                    self.raise_giant_bound(giant, now.mobility(), now.max_order());
                }
                return;
            }
            if now.is_counted() {
                self.adjust_giant(giant, Change::partial(now.mobility(), -1));
            }
            pause();
        }
    }

    /// Makes an isolated huge frame of which nothing was in use allocated; `false` if a page
    /// of it was taken by a call that has not given it back yet.
    pub(crate) fn take_isolated(&self, huge: HugeIndex) -> bool {
        let seen = self.opened_huge(huge);
        match seen.state() {
            HugeState::Free => {
                let taken = Huge::allocated(Mobility::Unmovable).with_isolated(true);
                self.swap_huge(huge, seen, taken)
            }
            HugeState::Split => {
                // It crosses the end of the segment.
                let inside = self.huge_frames(huge).intersect(self.frames);
                let bitmap = self.bitmap(huge);
                let is_taken = bitmap.take_at(Pages::of(inside)).is_ok();
                self.reconcile(huge);
                is_taken
            }
            HugeState::Allocated | HugeState::Opening => false,
        }
    }

    /// The first frame of an isolated huge frame that is allocated or reserved.
    pub(crate) fn first_in_use(&self, huge: HugeIndex) -> Option<Frame> {
        let inside = self.huge_frames(huge).intersect(self.frames);
        let mut all = (inside.start().get()..inside.end().get()).map(Frame::new);
        all.find(|&frame| self.is_allocated(frame))
    }

    /// How many frames of an isolated huge frame are allocated or reserved.
    pub(crate) fn in_use(&self, huge: HugeIndex) -> u64 {
        let inside = self.huge_frames(huge).intersect(self.frames).count();
        let word = self.opened_huge(huge);
        match word.state() {
            HugeState::Free => 0,
            HugeState::Split => inside - u64::from(self.bitmap(huge).count_free()),
            HugeState::Allocated | HugeState::Opening => inside,
        }
    }

    /// The huge frames that `range`, not empty and inside the segment, touches.
    pub(crate) fn huges_touched(&self, range: FrameRange) -> Range<HugeIndex> {
        let last = Frame::new(range.end().get() - 1);
        self.huge_of(range.start())..self.huge_of(last) + 1
    }
}
