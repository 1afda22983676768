//! Opening a level: writing what is below a giant or a huge frame that was one block.
//!
//! The frame is the CPU's alone from the moment it moved it to `Opening`.

use super::{GiantIndex, HugeIndex, Segment};
use crate::frames::word::geometry::{HUGE_FRAMES, HUGES, Pages};
use crate::frames::word::{Change, Content, Giant, GiantState, Huge, HugeState, Mobility, steps};

impl Segment<'_> {
    /// Opens giant frame `giant`, found as one block `from`, so that all of it stays as it is;
    /// `false` if another CPU was faster.
    pub(super) fn open_giant(&self, giant: GiantIndex, from: Giant) -> bool {
        let at = self.giants.at(giant);
        if !steps::begin_opening(at, from) {
            return false;
        }
        let huges = self.huges_in(giant);
        let is_free = from.state() == GiantState::Free;
        if !is_free {
            let pinned = self.is_pinned(self.giant_frames(giant));
            let word = Huge::allocated(from.mobility()).with_pinned(pinned);
            self.store_huges(huges, word);
        } else if from.is_unwritten() {
            match from.content() {
                None | Some(Content::Unknown) => self.store_huges(huges, Huge::FREE),
                Some(content) => self.store_huges(huges, Huge::FREE.with_content(content)),
            }
        }
        steps::end_opening(at, from, if is_free { HUGES } else { 0 });
        if !is_free {
            self.merge_if_complete(giant);
        }
        true
    }

    /// Opens a free huge frame, found as `from`, for pages of `mobility`, with `pages` of it
    /// taken; `false` if another CPU was faster.
    pub(super) fn open_free_huge(
        &self,
        huge: HugeIndex,
        from: Huge,
        mobility: Mobility,
        pages: Pages,
    ) -> bool {
        let giant = self.giant_of_huge(huge);
        let mut call = self.calls.begin();
        // Partial before it is.
        let open = Change::open(mobility).and_known(from.content(), -1);
        if self.try_adjust_giant(giant, open).is_err() {
            return false;
        }
        if !self.swap_huge(huge, from, from.with_state(HugeState::Opening)) {
            let back = Change::not_opened(mobility).and_known(from.content(), 1);
            self.adjust_giant(giant, back);
            call.undo();
            return false;
        }
        self.bitmap(huge).write(true, pages);
        debug_assert!(pages.count < HUGE_FRAMES);
        let word = Huge::split(mobility, true);
        self.publish_huge(huge, word);
        self.raise_giant_bound(giant, mobility, word.max_order());
        self.recheck_opened(huge);
        true
    }

    /// Calls that saw the huge frame split before it merged may have taken its last pages while
    /// it was opened again; or freed, a second time, those that it was opened for.
    fn recheck_opened(&self, huge: HugeIndex) {
        let bitmap = self.bitmap(huge);
        if bitmap.is_full() || bitmap.is_empty() {
            self.reconcile(huge);
        }
    }

    /// Opens an allocated huge frame, found as `from`, with `pages` of it free; `false` if another
    /// CPU was faster.
    pub(super) fn open_allocated_huge(&self, huge: HugeIndex, from: Huge, pages: Pages) -> bool {
        let (giant, mobility) = (self.giant_of_huge(huge), from.mobility());
        let is_counted = !from.is_isolated();
        if is_counted
            && self
                .try_adjust_giant(giant, Change::partial(mobility, 1))
                .is_err()
        {
            return false;
        }
        let opening = from.with_state(HugeState::Opening);
        if !self.swap_huge(huge, from, opening) {
            if is_counted {
                self.adjust_giant(giant, Change::partial(mobility, -1));
            }
            return false;
        }
        self.bitmap(huge).write(false, pages);
        // No block of them is larger.
        let order = pages.count.ilog2() as u8;
        let word = opening.with_state(HugeState::Split).partial_from(order);
        self.publish_huge(huge, word);
        if is_counted {
            self.raise_giant_bound(giant, mobility, order);
        }
        self.recheck_opened(huge);
        true
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::super::GiantIndex;
    use crate::frames::range::contiguous;
    use crate::frames::request::ZoneChoice;
    use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
    use crate::frames::tests::kit::{first, frames, segments, want};
    use crate::frames::word::geometry::{GIANT_FRAMES, GIANT_ORDER, HUGE_ORDER};
    use crate::frames::word::{Giant, Mobility};
    use crate::node::{NodeId, ZoneKind};

    /// Whoever looks for memory gives up at last, also if the rest is being opened by a CPU that was
    /// stopped for good.
    #[test]
    #[cfg_attr(miri, ignore = "four million passes, of plain loads")]
    fn a_request_ends_beside_a_cpu_that_stopped_while_it_opened_a_giant_frame() {
        let all = frames(0, GIANT_FRAMES);
        let segments = segments(&[(all, 0, ZoneKind::Normal)], &[]);
        let only: GiantIndex = 0;
        let segment = first(&segments);
        let opening = Giant::FREE.opening();
        assert!(segment.swap_giant(only, segment.giant(only), opening));
        let (nodes, zones) = (
            core::iter::once(NodeId(0)),
            ZoneChoice::up_to(ZoneKind::Normal),
        );
        for order in [0, HUGE_ORDER, GIANT_ORDER] {
            let found = segments.allocate(nodes.clone(), zones, want(order), None);
            assert_eq!(found, None);
        }
        let row = RangeRequest {
            frames: 3,
            align_frames: 1,
            mobility: Mobility::Unmovable,
            content: ContentRequest::Any,
        };
        assert_eq!(
            contiguous::allocate_on(&segments, nodes, row, zones, None),
            None
        );
        // It goes on.
        assert!(segment.swap_giant(only, opening, Giant::FREE));
        let nodes = core::iter::once(NodeId(0));
        assert!(segments.allocate(nodes, zones, want(0), None).is_some());
    }
}
