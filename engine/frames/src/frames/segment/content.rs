//! What free huge frames hold.
//!
//! *Known of whole huge frames only.* The word of a free one says it; of one that is split, nothing
//! is known.

use super::{HugeIndex, Segment};
use crate::frames::word::Known;
use crate::frames::word::geometry::{Block, HUGE_ORDER};
#[cfg(all(test, firstlight_loom))]
use crate::frames::word::{Content, GiantState};

impl Segment<'_> {
    /// Whether the content of some free huge frame of a block is seen to be known.
    pub(crate) fn may_be_known(&self, block: Block) -> bool {
        let is_known = |huge: HugeIndex| self.huge(huge).content().is_known();
        self.frames.covers(block.range()) && self.huges_of(block).any(is_known)
    }

    /// Notes what each huge frame of a block holds, one or more whole ones that are the caller's
    /// and whose words say so still.
    pub(super) fn note_huges(&self, block: Block, known: &Known) {
        let first = block.page_in_giant() >> HUGE_ORDER;
        for (unit, huge) in (first as usize..).zip(self.huges_of(block)) {
            known.note(unit, self.huge(huge).content());
        }
    }

    /// What is believed of a frame; nothing of one that is allocated.
    #[cfg(all(test, firstlight_loom))]
    pub(crate) fn content_of(&self, frame: crate::addr::Frame) -> Content {
        let giant = self.giant(self.giant_of(frame));
        match (giant.state(), giant.content()) {
            (GiantState::Free, Some(content)) => content,
            (GiantState::Free | GiantState::Split, _) => self.huge(self.huge_of(frame)).content(),
            (GiantState::Allocated | GiantState::Opening, _) => Content::Unknown,
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use crate::addr::Frame;
    use crate::frames::tests::kit::{first, frames, segments};
    use crate::frames::word::Content;
    use crate::frames::word::geometry::HUGE_FRAMES;
    use crate::node::ZoneKind;

    #[test]
    fn a_block_may_be_known_where_some_of_it_is_and_all_lies_inside() {
        let extent = frames(0, 4 * u64::from(HUGE_FRAMES));
        let segments = segments(&[(extent, 0, ZoneKind::Normal)], &[]);
        let segment = first(&segments);
        let start = segment.take_any(HUGE_ORDER).unwrap();
        let block = |start: u64, order| Block {
            start: Frame::new(start),
            order,
        };
        let taken = block(start.get(), HUGE_ORDER);
        assert!(!segment.may_be_known(taken));
        segment.give_with(taken, Content::Zero).unwrap();
        assert!(segment.may_be_known(taken));
        assert!(segment.may_be_known(block(0, HUGE_ORDER + 2)));
        assert!(!segment.may_be_known(block(0, HUGE_ORDER + 3)));
    }
}
