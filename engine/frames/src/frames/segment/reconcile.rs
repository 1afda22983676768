//! Counts and bounds after bits changed: [`Segment::reconcile`] makes a huge frame's word say
//! what its bitmap says.
//!
//! Bounds say an order that no free block of pages exceeds. What is given back raises them, of
//! the huge word first, then of the giant word. To lower one: lower it, then look, then raise
//! it to what is there. A call that lowers is counted as in flight meanwhile.

use super::{GiantIndex, HugeIndex, Segment};
use crate::frames::word::geometry::LARGEST_PAGES;
use crate::frames::word::{Change, Huge, HugeState, Mobility, steps};

impl Segment<'_> {
    /// Makes the word of a split huge frame agree with its bitmap: partial, free as a
    /// whole, or neither, and no bound that is too low. Each further round follows a change by
    /// another CPU.
    #[inline(never)]
    pub(super) fn reconcile(&self, huge: HugeIndex) {
        let giant = self.giant_of_huge(huge);
        loop {
            let seen = self.recheck_huge(huge);
            if seen.state() != HugeState::Split {
                // The CPU that is merging it looks at the bitmap afterwards.
                return;
            }
            let bitmap = self.bitmap(huge);
            if seen.is_partial() && bitmap.is_empty() {
                if self.merge_huge(giant, huge, seen) {
                    return;
                }
                continue;
            }
            match bitmap.max_order() {
                None if seen.is_partial() => {
                    if self.swap_full(huge, seen) && !seen.is_isolated() {
                        self.adjust_giant(giant, Change::partial(seen.mobility(), -1));
                    }
                }
                None => return,
                Some(order) if !seen.is_partial() => self.make_partial(giant, huge, seen, order),
                Some(order) => {
                    if seen.max_order() < order
                        && !self.swap_huge(huge, seen, seen.bounded_from(order))
                    {
                        continue;
                    }
                    return self.raise_giant_bound(giant, seen.mobility(), order);
                }
            }
        }
    }

    /// A huge frame, found full as `seen`, has a free block of `order`: counted first.
    fn make_partial(&self, giant: GiantIndex, huge: HugeIndex, seen: Huge, order: u8) {
        let is_counted = !seen.is_isolated();
        // An error: the huge frame merged meanwhile, and its giant frame with it.
        if is_counted
            && self
                .try_adjust_giant(giant, Change::partial(seen.mobility(), 1))
                .is_err()
        {
            return;
        }
        if self.swap_huge(huge, seen, seen.partial_from(order)) {
            self.raise_giant_bound(giant, seen.mobility(), order);
        } else if is_counted {
            self.adjust_giant(giant, Change::partial(seen.mobility(), -1));
        }
    }

    /// A huge frame, found as `seen` with every page free, becomes free as a whole; `false` if
    /// a page was taken meanwhile.
    fn merge_huge(&self, giant: GiantIndex, huge: HugeIndex, seen: Huge) -> bool {
        // What is taken for a moment is hidden from searches.
        let mut call = self.calls.begin();
        if !self.swap_huge(huge, seen, seen.with_state(HugeState::Opening)) {
            return false;
        }
        if !self.bitmap(huge).take_all() {
            // What became free meanwhile found the word opening, and left it to this call.
            self.publish_huge(huge, seen);
            call.undo();
            return false;
        }
        self.publish_huge(huge, Huge::FREE.with_isolated(seen.is_isolated()));
        if !seen.is_isolated() {
            self.adjust_giant(giant, Change::not_opened(seen.mobility()));
        }
        true
    }

    // ---- Bounds ------------------------------------------------------------

    /// Pages became free in a huge frame, as part of a block of `order` at most.
    #[inline(never)]
    pub(super) fn raise_bound(&self, giant: GiantIndex, huge: HugeIndex, order: u8) {
        let seen = self.recheck_huge(huge);
        if seen.state() != HugeState::Split {
            // The CPU that is merging it looks at the bitmap afterwards.
            return;
        }
        if !seen.is_partial() {
            self.make_partial(giant, huge, seen, order);
        } else if self.swap_huge(huge, seen, seen.bounded_from(order)) {
            return self.raise_giant_bound(giant, seen.mobility(), order);
        }
        // Another CPU changed the word, or changed the bitmap before: the page may be taken again.
        if !self.recheck_huge(huge).covers(order) || self.bitmap(huge).is_full() {
            self.reconcile(huge);
        }
    }

    /// All pages of a huge frame were seen taken, by a call that took one of them. For which
    /// mobility its giant frame counts it still, for the caller to settle.
    #[inline(never)]
    pub(super) fn note_full(&self, huge: HugeIndex) -> Option<Mobility> {
        let seen = self.recheck_huge(huge);
        let is_mine = seen.is_partial() && self.swap_full(huge, seen);
        if !is_mine || !self.bitmap(huge).is_full() {
            self.reconcile(huge);
        }
        (is_mine && !seen.is_isolated()).then_some(seen.mobility())
    }

    /// A huge frame, found partial as `seen`, is used up; `false` if its word is another one.
    #[inline]
    fn swap_full(&self, huge: HugeIndex, seen: Huge) -> bool {
        self.swap_huge(huge, seen, seen.full())
    }

    /// After a huge word changed: its giant frame has a block of `order`.
    #[inline]
    pub(super) fn raise_giant_bound(&self, giant: GiantIndex, mobility: Mobility, order: u8) {
        if self.giant_bound(giant, mobility) < order {
            self.write_giant_bound(giant, mobility, order);
        }
    }

    #[inline(never)]
    fn write_giant_bound(&self, giant: GiantIndex, mobility: Mobility, order: u8) {
        steps::raise_bound(self.giants.at(giant), mobility, order);
    }

    /// A giant frame's bound, after a huge word below it changed or was seen.
    #[inline]
    pub(super) fn giant_bound(&self, giant: GiantIndex, mobility: Mobility) -> u8 {
        self.recheck_giant(giant).max_order(mobility)
    }

    /// A search for a block of `order` found none in a huge frame: its bound is lower, unless
    /// one became free meanwhile.
    #[cold]
    pub(crate) fn lower_bound(&self, huge: HugeIndex, order: u8) {
        let mut call = self.calls.begin();
        let seen = self.huge(huge);
        let max_order = self.bitmap(huge).max_order();
        if max_order.is_some_and(|max_order| max_order >= order) {
            return;
        }
        let lower = seen.bounded_to(max_order.unwrap_or(0));
        if seen.state() == HugeState::Split && self.swap_huge(huge, seen, lower) {
            self.reconcile(huge);
            if self.huge(huge).max_order() > lower.max_order() {
                call.undo();
            }
        }
    }

    /// A search found that none of a giant frame's huge frames may have a block of `order`: its bound is lower, unless one
    /// became free meanwhile.
    #[cold]
    pub(crate) fn lower_giant_bound(&self, giant: GiantIndex, mobility: Mobility, order: u8) {
        let mut call = self.calls.begin();
        let at_most = order.saturating_sub(1);
        steps::lower_bound(self.giants.at(giant), mobility, at_most);
        let (mut max_order, mut counted) = (0, 0);
        for huge in self.huges_in(giant) {
            let word = self.recheck_huge(huge);
            if word.is_counted_for(mobility) {
                max_order = max_order.max(word.max_order());
                counted += 1;
            }
        }
        // Fewer than the giant frame counts: one is being opened or merged just now.
        let word = self.recheck_giant(giant);
        if counted < word.partial(mobility) {
            max_order = LARGEST_PAGES;
        }
        if max_order > at_most {
            self.raise_giant_bound(giant, mobility, max_order);
            call.undo();
        }
    }
}
