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
