//! Giving back: [`Segment::give`], a block; [`Segment::give_part`], or frames of one huge frame;
//! [`Segment::give_huge`] and [`Segment::give_pages`], for many at a time.

use super::window::Window;
use super::{GiantIndex, HugeIndex, Segment, page_of};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::bitmap::{Given, NotSet};
use crate::frames::word::geometry::{
    Block, GIANT_FRAMES, HUGE_FRAMES, HUGE_ORDER, LARGEST_PAGES, Pages,
};
use crate::frames::word::{Content, GiantState, Huge, HugeState, Mobility, steps};
use crate::sync::pause;

/// Frames were not given back, or not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: Why,
    /// Frames that were given back before that was seen: none, unless another CPU gives back
    /// the same frames at the same moment.
    pub(crate) given_frames: u64,
}

/// Why frames can't be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Some are free.
    NotAllocated,
    /// Some are reserved for ever.
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
    pub(crate) fn give(&self, block: Block) -> Result<(), Refused> {
        let giant = self.giant_of(block.start);
        if block.order == HUGE_ORDER && self.giant(giant).is_split() {
            let huge = self.huge_of(block.start);
            if self.give_counted_huge(giant, huge) {
                return Ok(());
            }
        }
        self.give_any(block.range())
    }

    /// Gives back `part`, a block or frames of one huge frame, likewise.
    // Always: most parts are given back by what is here, all others by a call.
    #[inline(always)]
    pub(crate) fn give_part(&self, part: FrameRange) -> Result<(), Refused> {
        let giant = self.giant_of(part.start());
        if self.giant(giant).is_split() {
            let huge = self.huge_of(part.start());
            if part.count() < HUGE_FRAMES.into() {
                let word = self.huge(huge);
                if word.has_bitmap() {
                    if word.is_pinned() && self.is_pinned(part) {
                        return Err(refused(Why::Reserved));
                    }
                    return self.give_bits_of(giant, huge, Pages::of(part));
                }
                if word.is_allocated() && self.give_first(huge, word, part) {
                    return Ok(());
                }
            } else if part.count() == HUGE_FRAMES.into() && self.give_counted_huge(giant, huge) {
                return Ok(());
            }
        }
        self.give_any(part)
    }

    /// Gives back a huge frame of a split giant frame; `false` as [`Self::give_huge`].
    #[inline]
    fn give_counted_huge(&self, giant: GiantIndex, huge: HugeIndex) -> bool {
        let is_given = self.give_huge(huge);
        if is_given {
            self.raise_free(giant, 1);
        }
        is_given
    }

    /// Gives back a part, whatever it is part of.
    #[inline(never)]
    fn give_any(&self, part: FrameRange) -> Result<(), Refused> {
        self.give_as(part, Content::Unknown)
    }

    /// Gives back a block that holds this: that is kept of whole huge frames.
    #[cold]
    pub(crate) fn give_with(&self, block: Block, content: Content) -> Result<(), Refused> {
        self.give_as(block.range(), content)
    }

    // Always: most of what is given back holds anything.
    #[inline(always)]
    fn give_as(&self, part: FrameRange, content: Content) -> Result<(), Refused> {
        let giant = self.giant_of(part.start());
        let is_giant = part.count() == GIANT_FRAMES;
        loop {
            let word = self.giant(giant);
            match word.state() {
                GiantState::Free => return Err(refused(Why::NotAllocated)),
                GiantState::Opening => pause(),
                GiantState::Split if part.count() < HUGE_FRAMES.into() => {
                    if let Some(answer) = self.try_give_pages(giant, part) {
                        return answer;
                    }
                }
                GiantState::Split if is_giant && word.free() > 0 => {
                    return Err(refused(Why::NotAllocated));
                }
                GiantState::Split => return self.give_huges(giant, part, content),
                GiantState::Allocated if self.is_pinned(part) => {
                    return Err(refused(Why::Reserved));
                }
                GiantState::Allocated if is_giant => {
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
    fn try_give_pages(&self, giant: GiantIndex, part: FrameRange) -> Option<Result<(), Refused>> {
        let huge = self.huge_of(part.start());
        let word = self.huge(huge);
        if word.is_pinned() && self.is_pinned(part) {
            return Some(Err(refused(Why::Reserved)));
        }
        match word.state() {
            HugeState::Free => Some(Err(refused(Why::NotAllocated))),
            HugeState::Opening => {
                pause();
                None
            }
            HugeState::Allocated => self.give_first(huge, word, part).then_some(Ok(())),
            HugeState::Split => Some(self.give_bits(giant, huge, Pages::of(part))),
        }
    }

    /// Gives back the first pages of a huge frame that is allocated as one; whether it still was.
    fn give_first(&self, huge: HugeIndex, word: Huge, part: FrameRange) -> bool {
        self.open_allocated_huge(huge, word, Pages::of(part))
    }

    /// Clears the bits of pages of a split huge frame.
    #[inline(never)]
    fn give_bits(&self, giant: GiantIndex, huge: HugeIndex, pages: Pages) -> Result<(), Refused> {
        self.give_bits_of(giant, huge, pages)
    }

    /// [`Self::give_bits`] as a part of its caller.
    #[inline(always)]
    fn give_bits_of(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        pages: Pages,
    ) -> Result<(), Refused> {
        match self.bitmap(huge).give(pages) {
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
        // How large a block it is now part of matters only where the bounds are not the highest, and there only if it
        // is larger than the lower of the two.
        let of_giant = self.giant_bound(giant, word.mobility());
        let bound = word.max_order().min(of_giant);
        if bound < LARGEST_PAGES {
            let order = given.max_order_from(bound);
            if order > bound || !word.is_partial() {
                self.raise_bounds(giant, huge, word, order);
            }
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
    fn give_huges(
        &self,
        giant: GiantIndex,
        part: FrameRange,
        content: Content,
    ) -> Result<(), Refused> {
        // Look first, so that an error leaves everything as it was.
        self.check_huges(part)?;
        let (mut counted, mut given_frames) = (0, 0);
        // Stops early only if another CPU gives back the same frames at this moment.
        let mut huges = self.huges_touched(part);
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
                    self.give_bits(giant, huge, Pages::ALL)?;
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
        steps::give_huge(self.huges.at(huge))
    }

    /// Gives back a page of a split huge frame in a window of this segment; `false` if it has to
    /// take the way of any block.
    #[inline]
    pub(crate) fn give_page(&self, window: &Window<'_>, page: Frame) -> bool {
        let Some(bitmap) = window.split(page, 0) else {
            return false;
        };
        let (at, count) = (page_of(page), 1);
        let given = bitmap.give(Pages { at, count });
        if let Ok(given) = given {
            self.after_give(self.giant_of(page), self.huge_of(page), given);
        }
        given.is_ok()
    }

    /// Gives back a block, smaller than a huge frame, of one that is split, in such a window; `false` likewise.
    #[inline]
    pub(crate) fn give_small(&self, window: &Window<'_>, block: Block) -> bool {
        let Block { start, order } = block;
        window.split(start, order).is_some() && {
            let (giant, huge) = (self.giant_of(start), self.huge_of(start));
            self.give_bits(giant, huge, Pages::of(block.range()))
                .is_ok()
        }
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

    /// Whether a part below a split giant frame can be given back, as far as the words say.
    fn check_huges(&self, part: FrameRange) -> Result<(), Refused> {
        for huge in self.huges_touched(part) {
            let word = self.opened_huge(huge);
            if word.is_pinned() && self.is_pinned(part) {
                return Err(refused(Why::Reserved));
            }
            let pages = Pages::of(part.intersect(self.huge_frames(huge)));
            if !self.is_all_allocated(huge, word, pages) {
                return Err(refused(Why::NotAllocated));
            }
        }
        Ok(())
    }

    /// Whether all of `pages`, of a huge frame found as `word`, is allocated.
    #[inline(always)]
    fn is_all_allocated(&self, huge: HugeIndex, word: Huge, pages: Pages) -> bool {
        match word.state() {
            HugeState::Allocated => true,
            HugeState::Split => self.bitmap(huge).all_set(pages),
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
        let pages = Pages::of(block.range());
        (!is_out && self.is_all_allocated(huge, word, pages)).then_some(word.mobility())
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
