//! What is known of the content of free pages, below a split huge frame.
//!
//! *Marked before they are given back, unmarked after they are taken.* A huge frame whose word
//! says what its marks stand for says so until it merges, so a call that took pages and finds that
//! word clears their marks, and a call that finds another has none to clear.
//!
//! *Marked and allocated is a worker's.* The huge word counts the blocks of pages that workers have,
//! and calls that free pages look at the marks only where it counts some.

use super::{HugeIndex, Segment};
use crate::frames::word::geometry::{Block, HUGE_ORDER};
use crate::frames::word::{Content, Huge, HugeState, Known};
#[cfg(feature = "content")]
use crate::{
    frames::segment::GiantIndex,
    frames::word::{GiantState, geometry::GIANT_ORDER},
    sync::pause,
};

impl Segment<'_> {
    /// Pages were taken, or given back in vain, of a huge frame with this word: those of a block,
    /// or those of 64 whose bits are set. Their marks are cleared.
    pub(super) fn unmark(
        &self,
        huge: HugeIndex,
        word: Huge,
        at: u32,
        order: u8,
        bits: u64,
        known: Option<&Known>,
    ) {
        let note = |index, marked| {
            if let Some(known) = known {
                known.note_bits(index, marked, word.content);
            }
        };
        let marks = self.marks(huge);
        if bits == 1 {
            marks.clear_block(at, order, note);
        } else {
            let index = (at / 64) as usize;
            note(index, marks.clear_some(index, bits));
        }
    }

    /// Marks pages of a split huge frame that the caller is about to give back, if its marks stand
    /// for this content or for none yet. Whether it did.
    pub(super) fn mark(&self, huge: HugeIndex, at: u32, order: u8, content: Content) -> bool {
        loop {
            let seen = self.settled_huge(huge);
            // Only of a block that can be given back.
            let may_mark = seen.state == HugeState::Split && self.bitmap(huge).all_set(at, order);
            if !may_mark || seen.content.is_known() && seen.content != content {
                return false;
            }
            if seen.content == content {
                break;
            }
            // Before the word says that they are written. Marks that another CPU has set since it
            // did may be lost.
            self.marks(huge).clear();
            if self.swap_huge(huge, seen, seen.with_content(content)) {
                break;
            }
        }
        self.marks(huge).set_block(at, order);
        true
    }

    /// Of a split huge frame: how many of its free pages hold what.
    pub(super) fn marked_pages(&self, huge: HugeIndex, word: Huge) -> (Content, u32) {
        if word.content.is_known() {
            (word.content, self.marks(huge).count_free(self.bitmap(huge)))
        } else {
            (Content::Unknown, 0)
        }
    }

    // ---- What workers have ---------------------------------------------------

    /// Whether a worker has some of a block of pages, of a split huge frame found as `word`.
    #[inline]
    pub(super) fn is_any_borrowed(&self, huge: HugeIndex, word: Huge, block: Block) -> bool {
        word.borrows() > 0
            && !self
                .marks(huge)
                .is_all(block.page_in_huge(), block.order, false)
    }

    /// Those of the 64 pages around `page`, of a split huge frame found as `word`, that are allocated
    /// and no worker's.
    pub(crate) fn owned_pages(&self, huge: HugeIndex, word: Huge, page: u32) -> u64 {
        let allocated = self.bitmap(huge).word_at(page);
        if word.borrows() == 0 {
            return allocated;
        }
        allocated & !self.marks(huge).word((page / 64) as usize)
    }

    /// Marks a block that a worker has taken, so that no other call can free any of it, as long as
    /// it makes this of it; or takes the mark off. Another call may isolate it meanwhile, or have
    /// freed what was not its own just before.
    #[cfg(feature = "content")]
    pub(crate) fn set_borrowed(&self, block: Block, by: Option<Content>) {
        match block.order {
            GIANT_ORDER if self.set_borrowed_giant(self.giant_of(block.start), by.is_some()) => {}
            HUGE_ORDER.. => {
                let content = by.map_or(Content::Unknown, |_| Content::Reported);
                for huge in self.huges_of(block) {
                    self.change_huge(huge, HugeState::Allocated, |word| {
                        word.with_content(content)
                    });
                }
            }
            _ => self.set_borrowed_pages(block, by),
        }
    }

    /// The same for a giant frame; `false` if it is opened: then its huge frames are marked.
    #[cfg(feature = "content")]
    fn set_borrowed_giant(&self, giant: GiantIndex, is_borrowed: bool) -> bool {
        loop {
            let word = self.giant(giant);
            let marked = if is_borrowed {
                word.borrowed()
            } else {
                word.unborrowed()
            };
            match word.state {
                GiantState::Opening => pause(),
                GiantState::Split => return false,
                GiantState::Allocated if self.swap_giant(giant, word, marked) => return true,
                GiantState::Allocated => {}
                // It was freed by a call that did not have it.
                GiantState::Free => return true,
            }
        }
    }

    /// The same for pages: allocated and marked.
    #[cfg(feature = "content")]
    fn set_borrowed_pages(&self, block: Block, by: Option<Content>) {
        let (huge, at) = (self.huge_of(block.start), block.page_in_huge());
        let marks = self.marks(huge);
        let Some(content) = by else {
            // No page is free and marked that is not known to hold it.
            marks.clear_block(at, block.order, |_, _| {});
            self.change_huge(huge, HugeState::Split, |word| word.borrowed(false));
            return;
        };
        // Marks have to stand for something.
        let content = if content.is_known() {
            content
        } else {
            Content::Zero
        };
        let is_ours = self.change_huge(huge, HugeState::Split, |word| {
            if word.content.is_known() {
                return word.borrowed(true);
            }
            // As in `mark`.
            marks.clear();
            word.borrowed(true).with_content(content)
        });
        if is_ours {
            marks.set_block(at, block.order);
        }
    }

    /// Changes a huge frame's word; `false` if it is not in this state.
    #[cfg(feature = "content")]
    fn change_huge(
        &self,
        huge: HugeIndex,
        state: HugeState,
        change: impl Fn(Huge) -> Huge,
    ) -> bool {
        loop {
            let word = self.settled_huge(huge);
            if word.state != state {
                return false;
            }
            if self.swap_huge(huge, word, change(word)) {
                return true;
            }
        }
    }

    /// What is believed of a frame; nothing of one that is allocated.
    #[cfg(all(test, loom))]
    pub(crate) fn content_of(&self, frame: crate::addr::Frame) -> Content {
        let giant = self.giant(self.giant_of(frame));
        let word = |huge| self.huge(huge);
        let (huge, page) = (self.huge_of(frame), super::page_of(frame));
        match (giant.state, giant.content()) {
            (GiantState::Free, Some(content)) => content,
            (GiantState::Free | GiantState::Split, _) => match word(huge).state {
                HugeState::Split if word(huge).content.is_known() => {
                    let free = !self.bitmap(huge).word_at(page);
                    let marks = self.marks(huge).word((page / 64) as usize) & free;
                    Content::of_bits((marks >> (page % 64) & 1) as u32 * word(huge).content as u32)
                }
                HugeState::Split => Content::Unknown,
                _ => word(huge).content,
            },
            (GiantState::Allocated | GiantState::Opening, _) => Content::Unknown,
        }
    }

    /// Whether the content of some free huge frame of a block is seen to be known.
    pub(crate) fn may_be_known(&self, block: Block) -> bool {
        let mut huges = self.huges_of(block);
        self.frames.covers(block.range()) && huges.any(|huge| self.huge(huge).content.is_known())
    }

    /// Notes what each huge frame of a block holds, one or more whole ones that are the caller's
    /// and whose words say so still.
    pub(super) fn note_huges(&self, block: Block, known: &Known) {
        let first = block.page_in_giant() >> HUGE_ORDER;
        for (unit, huge) in (first as usize..).zip(self.huges_of(block)) {
            known.note(unit, self.huge(huge).content);
        }
    }
}
