//! Giving back: [`Segment::give`], a block; [`Segment::give_huge`] and
//! [`Segment::give_pages`], for many at a time.

use super::open::Pages;
use super::window::Window;
use super::{GiantIndex, HugeIndex, Segment, page_of};
use crate::addr::Frame;
use crate::frames::word::bitmap::{Given, NotSet};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, LARGEST_PAGES};
use crate::frames::word::{Content, GiantState, Huge, HugeState, Mobility};
use crate::sync::pause;

/// A block was not given back, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: Why,
    /// Frames that were given back before that was seen: none, unless another CPU gives back
    /// the same frames at the same moment.
    pub(crate) given_frames: u64,
}

/// Why a block can't be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Some of it is free.
    NotAllocated,
    /// Some of it is reserved for ever.
    Reserved,
}

/// Nothing was given back.
const fn refused(why: Why) -> Refused {
    Refused {
        why,
        given_frames: 0,
    }
}

impl Segment<'_> {
    /// Gives back `block`, which must lie inside the segment and be allocated, by itself, as a
    /// part of a larger block or as several smaller ones.
    #[inline]
    pub(crate) fn give(&self, block: Block) -> Result<(), Refused> {
        let giant = self.giant_of(block.start);
        if block.order < HUGE_ORDER && self.giant(giant).is_split() {
            let huge = self.huge_of(block.start);
            let word = self.huge(huge);
            if word.has_bitmap() {
                if word.is_pinned() && self.is_pinned(block.range()) {
                    return Err(refused(Why::Reserved));
                }
                return self.give_block_of(giant, huge, block);
            }
            if word.is_allocated() && self.give_first(huge, word, block) {
                return Ok(());
            }
        }
        if block.order == HUGE_ORDER && self.giant(giant).is_split() {
            let huge = self.huge_of(block.start);
            if self.give_huge(huge) {
                self.raise_free(giant, 1);
                return Ok(());
            }
        }
        self.give_any(block)
    }

    /// Gives back a block, whatever it is part of.
    #[inline(never)]
    fn give_any(&self, block: Block) -> Result<(), Refused> {
        self.give_as(block, Content::Unknown)
    }

    /// Gives back a block that holds this: that is kept of whole huge frames.
    #[cold]
    pub(crate) fn give_with(&self, block: Block, content: Content) -> Result<(), Refused> {
        self.give_as(block, content)
    }

    // Always: most blocks hold anything.
    #[inline(always)]
    fn give_as(&self, block: Block, content: Content) -> Result<(), Refused> {
        let giant = self.giant_of(block.start);
        loop {
            let word = self.giant(giant);
            match word.state() {
                GiantState::Free => return Err(refused(Why::NotAllocated)),
                GiantState::Opening => pause(),
                GiantState::Split if block.order < HUGE_ORDER => {
                    if let Some(answer) = self.try_give_pages(giant, block) {
                        return answer;
                    }
                }
                GiantState::Split if block.order == GIANT_ORDER && word.free() > 0 => {
                    return Err(refused(Why::NotAllocated));
                }
                GiantState::Split => return self.give_huges(giant, block, content),
                GiantState::Allocated if self.is_pinned(block.range()) => {
                    return Err(refused(Why::Reserved));
                }
                GiantState::Allocated if block.order == GIANT_ORDER => {
                    if self.swap_giant(giant, word, word.freed(content)) {
                        return Ok(());
                    }
                }
                // The next look finds it split.
                GiantState::Allocated => drop(self.open_giant(giant, word)),
            }
        }
    }

    /// Gives back pages of a split giant frame; `None` to look again.
    fn try_give_pages(&self, giant: GiantIndex, block: Block) -> Option<Result<(), Refused>> {
        let huge = self.huge_of(block.start);
        let word = self.huge(huge);
        if word.is_pinned() && self.is_pinned(block.range()) {
            return Some(Err(refused(Why::Reserved)));
        }
        match word.state() {
            HugeState::Free => Some(Err(refused(Why::NotAllocated))),
            HugeState::Opening => {
                pause();
                None
            }
            HugeState::Allocated => self.give_first(huge, word, block).then_some(Ok(())),
            HugeState::Split => Some(self.give_block(giant, huge, block)),
        }
    }

    /// Gives back the first pages of a huge frame that is allocated as one; whether it still was.
    fn give_first(&self, huge: HugeIndex, word: Huge, block: Block) -> bool {
        let pages = Pages {
            at: block.page_in_huge(),
            count: 1 << block.order,
        };
        self.open_allocated_huge(huge, word, pages, block.order)
    }

    /// Clears the bits of pages of a split huge frame.
    #[inline(never)]
    fn give_block(&self, giant: GiantIndex, huge: HugeIndex, block: Block) -> Result<(), Refused> {
        self.give_block_of(giant, huge, block)
    }

    /// [`Self::give_block`] as a part of its caller.
    #[inline(always)]
    fn give_block_of(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        block: Block,
    ) -> Result<(), Refused> {
        match self.bitmap(huge).give(block.page_in_huge(), block.order) {
            Ok(given) => {
                self.after_give(giant, huge, given);
                Ok(())
            }
            Err(NotSet { given }) => {
                if given > 0 {
                    self.reconcile(huge);
                }
                Err(Refused {
                    why: Why::NotAllocated,
                    given_frames: given.into(),
                })
            }
        }
    }

    /// What follows from pages that became free.
    #[inline(always)]
    pub(super) fn after_give(&self, giant: GiantIndex, huge: HugeIndex, given: Given) {
        let word = self.recheck_huge(huge);
        // How large a block it is now part of matters only where the bounds are not the highest.
        let covers_all = word.covers(LARGEST_PAGES);
        if !covers_all || !self.giant_covers(giant, word.mobility()) {
            self.raise_bounds(giant, huge, word, given.max_order());
        }
        if given.is_word_empty() && self.bitmap(huge).is_empty() {
            self.reconcile(huge);
        }
    }

    fn raise_bounds(&self, giant: GiantIndex, huge: HugeIndex, word: Huge, order: u8) {
        if word.covers(order) {
            self.raise_giant_bound(giant, word.mobility(), order);
        } else {
            self.raise_bound(giant, huge, order);
        }
    }

    /// Gives back whole huge frames of a split giant frame.
    fn give_huges(&self, giant: GiantIndex, block: Block, content: Content) -> Result<(), Refused> {
        // Look first, so that an error leaves everything as it was.
        self.check_huges(block)?;
        let (mut counted, mut given_frames) = (0, 0);
        // Stops early only if another CPU gives back the same frames at this moment.
        let mut huges = self.huges_of(block);
        let done = huges.try_for_each(|huge| {
            let given = self.give_whole(giant, huge, content)?;
            given_frames += u64::from(HUGE_FRAMES);
            counted += u32::from(given == Counted::Later);
            Ok(())
        });
        if counted > 0 {
            self.raise_free_of(giant, counted, content);
        }
        done.map_err(
            |Refused {
                 why,
                 given_frames: more,
             }| Refused {
                why,
                given_frames: given_frames + more,
            },
        )
    }

    /// Gives back all of a huge frame, allocated as one or page by page.
    fn give_whole(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        content: Content,
    ) -> Result<Counted, Refused> {
        loop {
            let word = self.opened_huge(huge);
            match word.state() {
                // It may have gone offline since the look before.
                HugeState::Allocated
                    if cfg!(feature = "hotplug")
                        && word.is_pinned()
                        && self.is_pinned(self.huge_frames(huge)) =>
                {
                    return Err(refused(Why::Reserved));
                }
                HugeState::Allocated => {
                    // It may be about to be isolated: then once more.
                    let free = Huge::FREE.with_isolated(word.is_isolated());
                    let free = free.with_content(content);
                    if self.swap_huge(huge, word, free) {
                        return Ok(if word.is_isolated() {
                            Counted::Not
                        } else {
                            Counted::Later
                        });
                    }
                }
                HugeState::Split => {
                    let block = Block {
                        start: Frame::new(self.huge_start(huge)),
                        order: HUGE_ORDER,
                    };
                    self.give_block(giant, huge, block)?;
                    return Ok(Counted::Not);
                }
                HugeState::Free | HugeState::Opening => return Err(refused(Why::NotAllocated)),
            }
        }
    }

    /// The huge frame's word once no CPU is opening it.
    pub(super) fn opened_huge(&self, huge: HugeIndex) -> Huge {
        loop {
            let word = self.huge(huge);
            if word.state() != HugeState::Opening {
                return word;
            }
            pause();
        }
    }

    // ---- Many at a time ----------------------------------------------------

    /// Gives back a huge frame of a giant frame that was opened, and leaves the count to the
    /// caller ([`Segment::count_huges`]). `false` if it is anything but allocated as one, or
    /// some of it is pinned.
    #[inline]
    pub(crate) fn give_huge(&self, huge: HugeIndex) -> bool {
        let word = self.huge(huge);
        word.is_allocated() && self.swap_huge(huge, word, Huge::FREE)
    }

    /// Gives back a page of a split huge frame in a window of this segment; `false` if it has to
    /// take the way of any block.
    #[inline]
    pub(crate) fn give_page(&self, window: &Window<'_>, page: Frame) -> bool {
        let Some(bitmap) = window.split(page) else {
            return false;
        };
        let given = bitmap.give(page_of(page), 0);
        if let Ok(given) = given {
            self.after_give(self.giant_of(page), self.huge_of(page), given);
        }
        given.is_ok()
    }

    /// Counts huge frames of a giant frame that were given back.
    #[inline]
    pub(crate) fn count_huges(&self, giant: GiantIndex, count: u32) {
        self.raise_free(giant, count);
    }

    /// Gives back pages of one word of a huge frame's bitmap, those whose bits are
    /// set. Which of them were refused.
    pub(crate) fn give_pages(&self, huge: HugeIndex, index: usize, bits: u64) -> u64 {
        let giant = self.giant_of_huge(huge);
        let (mut left, mut refused) = (bits, 0);
        while left != 0 {
            // Only below a giant frame that is split is the huge frame's word written.
            let word = self.giant(giant).is_split().then(|| self.huge(huge));
            if word.is_some_and(|word| word.is_split() && !word.is_pinned()) {
                let (given, what) = self.bitmap(huge).give_some(index, left);
                if given != 0 {
                    self.after_give(giant, huge, what);
                }
                return refused | left & !given;
            }
            // It opens with one page; the others follow.
            let page = index as u64 * 64 + u64::from(left.trailing_zeros());
            let start = Frame::new(self.huge_start(huge) + page);
            let rest = left & (left - 1);
            if self.give(Block { start, order: 0 }).is_err() {
                refused |= left & !rest;
            }
            left = rest;
        }
        refused
    }

    // ---- Look ----------------------------------------------------------------

    /// Whether all of `block`, which lies inside the segment, can be given back, as far as the words
    /// say. What a CPU caches can't be told from what is allocated.
    #[cfg(feature = "content")]
    pub(crate) fn check_give(&self, block: Block) -> Result<(), Refused> {
        let giant = self.giant_of(block.start);
        loop {
            let word = self.giant(giant);
            return match word.state() {
                GiantState::Opening => {
                    pause();
                    continue;
                }
                GiantState::Free => Err(refused(Why::NotAllocated)),
                GiantState::Allocated if self.is_pinned(block.range()) => {
                    Err(refused(Why::Reserved))
                }
                GiantState::Allocated => Ok(()),
                GiantState::Split => self.check_huges(block),
            };
        }
    }

    /// Whether a block below a split giant frame can be given back, as far as the words say.
    fn check_huges(&self, block: Block) -> Result<(), Refused> {
        let first = self.huge_of(block.start);
        let order = block.order.min(HUGE_ORDER);
        for huge in first..first + block.huges().max(1) as usize {
            let word = self.opened_huge(huge);
            if word.is_pinned() && self.is_pinned(block.range()) {
                return Err(refused(Why::Reserved));
            }
            let part = Block {
                start: block.start.max(Frame::new(self.huge_start(huge))),
                order,
            };
            if !self.is_all_allocated(huge, word, part) {
                return Err(refused(Why::NotAllocated));
            }
        }
        Ok(())
    }

    /// Whether all of `block`, of a huge frame found as `word`, is allocated.
    #[inline(always)]
    fn is_all_allocated(&self, huge: HugeIndex, word: Huge, block: Block) -> bool {
        match word.state() {
            HugeState::Allocated => true,
            HugeState::Split => self.bitmap(huge).all_set(block.page_in_huge(), block.order),
            HugeState::Free | HugeState::Opening => false,
        }
    }

    /// What the huge frame of an aligned block of `order`, a huge frame at most, was taken
    /// for, if the block lies in the segment and all of it is allocated below an opened giant
    /// frame, neither isolated nor reserved for ever. `None` does not say that some of it is
    /// free.
    pub(crate) fn allocated_block(&self, start: Frame, order: u8) -> Option<Mobility> {
        let block = Block { start, order };
        if !self.frames.covers(block.range()) {
            return None;
        }
        if !self.giant(self.giant_of(start)).is_opened() {
            return None;
        }
        let huge = self.huge_of(start);
        let word = self.huge(huge);
        let is_out = word.is_isolated() || word.is_pinned() && self.is_pinned(block.range());
        (!is_out && self.is_all_allocated(huge, word, block)).then_some(word.mobility())
    }
}

/// Whether a huge frame that was given back is in its giant frame's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// The caller counts it.
    Later,
    /// It was counted already, or is isolated.
    Not,
}
