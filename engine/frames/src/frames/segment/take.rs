//! Taking: [`Segment::take`], of one huge frame; [`Segment::take_huges`] and
//! [`Segment::take_giant`], more than one; [`Segment::take_at`], whatever a given block needs.

use super::calls::Call;
use super::{GiantIndex, HugeIndex, Segment};
use crate::addr::Frame;
use crate::frames::word::bitmap::{NoBlock, TakenAt};
use crate::frames::word::geometry::{BITMAP_WORDS, Block, GIANT_ORDER, HUGE_ORDER, Pages};
use crate::frames::word::steps::{self, Take};
use crate::frames::word::{Change, Giant, GiantState, Huge, HugeState, Mobility, Purpose};
use crate::sync::pause;

/// What is wanted of a huge frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// These pages.
    At(Pages),
    /// The first so many pages of any block of this order.
    Any(u8, u32),
    /// So many single pages, or fewer.
    UpTo(u32),
}

/// What was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// First frame; of 64 pages where single ones were wanted.
    pub(crate) start: Frame,
    /// Those of the 64 pages that were taken; 1 for others.
    pub(crate) bits: u64,
    /// They were the last of a huge frame that its giant frame still counts as partial, for this
    /// mobility: to be settled by [`Segment::count_emptied`].
    pub(crate) emptied: Option<Mobility>,
}

impl Taken {
    /// Frames from this one on, with nothing left to settle.
    const fn settled(start: Frame) -> Self {
        Self {
            start,
            bits: 1,
            emptied: None,
        }
    }
}

/// Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It was seen allocated, or not there.
    Nothing,
    /// Another CPU changed it meanwhile: worth another look.
    Changed,
}

/// How often to try to take a given block while other CPUs change it.
const TRIES: u32 = 64;

impl Segment<'_> {
    /// Takes a part of a huge frame whose giant frame is split.
    #[inline]
    pub(crate) fn take(
        &self,
        huge: HugeIndex,
        purpose: Purpose<'_>,
        part: Part,
    ) -> Result<Taken, Miss> {
        let seen = self.huge(huge);
        match seen.state() {
            _ if seen.is_isolated() => Err(Miss::Nothing),
            HugeState::Split if seen.is_partial() => match part {
                Part::Any(order, count) => {
                    let start = self.take_pages(huge, order, count)?;
                    Ok(Taken::settled(start))
                }
                part => self.take_of_split(huge, part),
            },
            HugeState::Free => self.take_of_free(huge, seen, purpose, part),
            HugeState::Opening => Err(Miss::Changed),
            HugeState::Split | HugeState::Allocated => Err(Miss::Nothing),
        }
    }

    /// Takes a part of a huge frame, and updates what the giant frame counts.
    #[inline]
    pub(crate) fn take_one(
        &self,
        huge: HugeIndex,
        purpose: Purpose<'_>,
        part: Part,
    ) -> Result<Frame, Miss> {
        let taken = self.take(huge, purpose, part)?;
        Ok(self.settled(huge, taken))
    }

    /// Takes the first `count` pages of any block of `order` of a split huge frame, and updates likewise.
    #[inline]
    pub(crate) fn take_pages(&self, huge: HugeIndex, order: u8, count: u32) -> Result<Frame, Miss> {
        let taken = self.take_of_split(huge, Part::Any(order, count))?;
        Ok(self.settled(huge, taken))
    }

    /// Takes any page of a split huge frame, and updates likewise.
    // Always: what most requests do.
    #[inline(always)]
    pub(crate) fn take_page(&self, huge: HugeIndex) -> Result<Frame, Miss> {
        let taken = self.bitmap(huge).take_page();
        let taken = taken.map_err(|NoBlock { .. }| Miss::Nothing)?;
        let taken = self.unless_isolated(huge, taken, 1, 1)?;
        Ok(self.settled(huge, taken))
    }

    /// The start of what was taken, once the giant frame's count is settled.
    #[inline]
    fn settled(&self, huge: HugeIndex, taken: Taken) -> Frame {
        if let Some(mobility) = taken.emptied {
            self.count_one_emptied(huge, mobility);
        }
        taken.start
    }

    /// Settles how many huge frames of a mobility lost their last page.
    pub(crate) fn count_emptied(&self, giant: GiantIndex, mobility: Mobility, count: i32) {
        if count > 0 {
            self.adjust_giant(giant, Change::partial(mobility, -count));
        }
    }

    /// Settles that a huge frame did.
    #[inline(never)]
    fn count_one_emptied(&self, huge: HugeIndex, mobility: Mobility) {
        self.count_emptied(self.giant_of_huge(huge), mobility, 1);
    }

    /// Takes pages of a split huge frame.
    // Always: with the part known, most of it is known at compile time.
    #[inline(always)]
    fn take_of_split(&self, huge: HugeIndex, part: Part) -> Result<Taken, Miss> {
        let bitmap = self.bitmap(huge);
        let (taken, bits, count) = match part {
            Part::Whole => return Err(Miss::Nothing),
            Part::UpTo(most) => {
                let words = 0..BITMAP_WORDS;
                let mut words =
                    words.map(|index| (index as u32 * 64, bitmap.take_some(index, most)));
                let found = words.find(|(_, (bits, _))| *bits != 0);
                let (at, (bits, filled)) = found.ok_or(Miss::Nothing)?;
                let undone = false;
                (TakenAt { at, filled, undone }, bits, 1)
            }
            Part::Any(order, count) => {
                let call = (count > 64).then(|| self.calls.begin());
                let taken = bitmap.take_any(order, count);
                (self.row(huge, call, taken)?, 1, count)
            }
            Part::At(pages) => {
                let call = (!pages.is_in_one_word()).then(|| self.calls.begin());
                let taken = bitmap.take_at(pages);
                (self.row(huge, call, taken)?, 1, pages.count)
            }
        };
        self.unless_isolated(huge, taken, bits, count)
    }

    /// All pages of one word are taken, some of them by this call: perhaps the last of the huge frame. For which mobility
    /// its giant frame counts it still then, for the caller to settle.
    #[inline(never)]
    fn note_filled(&self, huge: HugeIndex) -> Option<Mobility> {
        if self.bitmap(huge).is_full() {
            self.note_full(huge)
        } else {
            None
        }
    }

    /// What was taken of a split huge frame; given back if it is isolated since this call looked at it.
    #[inline(always)]
    fn unless_isolated(
        &self,
        huge: HugeIndex,
        TakenAt { at, filled, .. }: TakenAt,
        bits: u64,
        count: u32,
    ) -> Result<Taken, Miss> {
        if self.recheck_huge(huge).is_isolated() {
            self.undo_pages(huge, at, count, bits);
            return Err(Miss::Changed);
        }
        let emptied = if filled { self.note_filled(huge) } else { None };
        let start = Frame::new(self.huge_start(huge) + u64::from(at));
        Ok(Taken {
            start,
            bits,
            emptied,
        })
    }

    /// Pages in a row that were taken, or not, those of several words counted as in flight.
    #[inline]
    fn row(
        &self,
        huge: HugeIndex,
        call: Option<Call<'_>>,
        taken: Result<TakenAt, NoBlock>,
    ) -> Result<TakenAt, Miss> {
        let Some(mut call) = call else {
            return taken.map_err(|NoBlock { .. }| Miss::Nothing);
        };
        let (Ok(TakenAt { undone, .. }) | Err(NoBlock { undone })) = taken;
        if undone {
            call.undo();
            self.reconcile(huge);
        }
        taken.map_err(|_| if undone { Miss::Changed } else { Miss::Nothing })
    }

    /// Gives back pages of a huge frame that is isolated since this call looked at it.
    #[cold]
    fn undo_pages(&self, huge: HugeIndex, at: u32, count: u32, bits: u64) {
        let bitmap = self.bitmap(huge);
        let is_given = if bits == 1 {
            bitmap.give(Pages { at, count }).is_ok()
        } else {
            bitmap.give_some((at / 64) as usize, bits).0 != 0
        };
        if is_given {
            self.reconcile(huge);
        }
    }

    /// Takes a free huge frame, found as `seen`, or opens it and takes pages of it.
    fn take_of_free(
        &self,
        huge: HugeIndex,
        seen: Huge,
        purpose: Purpose<'_>,
        part: Part,
    ) -> Result<Taken, Miss> {
        let first = self.huge_start(huge);
        let pages = match part {
            Part::Whole => {
                self.take_free_huge(huge, seen, purpose)?;
                return Ok(Taken::settled(Frame::new(first)));
            }
            Part::At(pages) => pages,
            Part::Any(_, count) => Pages { at: 0, count },
            Part::UpTo(most) => Pages {
                at: 0,
                count: most.min(64),
            },
        };
        if !self.open_free_huge(huge, seen, purpose.mobility, pages) {
            return Err(Miss::Changed);
        }
        if let Some(known) = purpose.known {
            known.note_all(seen.content());
        }
        let bits = match part {
            Part::UpTo(_) => !0 >> (64 - pages.count),
            _ => 1,
        };
        let start = Frame::new(first + u64::from(pages.at));
        Ok(Taken {
            start,
            bits,
            emptied: None,
        })
    }

    /// Takes a free huge frame, found as `seen`: the giant frame's count first, then the
    /// word. Where another CPU was faster, the count hid another huge frame for a moment.
    #[inline]
    pub(crate) fn take_free_huge(
        &self,
        huge: HugeIndex,
        seen: Huge,
        purpose: Purpose<'_>,
    ) -> Result<(), Miss> {
        if seen.content().is_known() {
            return self.take_known_huge(huge, seen, purpose);
        }
        let giant = self.giant_of_huge(huge);
        let mut call = self.calls.begin();
        let (count, word) = (self.giants.at(giant), self.huges.at(huge));
        match steps::take_huge(count, word, seen, Huge::allocated(purpose.mobility)) {
            Take::Taken => return Ok(()),
            Take::Refused => {}
            Take::Undone => call.undo(),
        }
        Err(Miss::Changed)
    }

    /// Takes a free huge frame of known content: both counts first, then the word.
    #[cold]
    fn take_known_huge(
        &self,
        huge: HugeIndex,
        seen: Huge,
        purpose: Purpose<'_>,
    ) -> Result<(), Miss> {
        let giant = self.giant_of_huge(huge);
        let content = seen.content();
        let mut call = self.calls.begin();
        let lower = Change::free(-1).and_known(content, -1);
        if self.try_adjust_giant(giant, lower).is_err() {
            return Err(Miss::Changed);
        }
        let allocated = Huge::allocated(purpose.mobility);
        if self.swap_huge(huge, seen, allocated) {
            if let Some(known) = purpose.known {
                known.note_all(content);
            }
            return Ok(());
        }
        self.adjust_giant(giant, lower.reverse());
        call.undo();
        Err(Miss::Changed)
    }

    /// Takes up to `most` of `huges`, all of one split giant frame, that are free as a whole:
    /// one reservation for all of them. Only those of unknown content, or any.
    pub(crate) fn take_free_huges(
        &self,
        giant: GiantIndex,
        huges: impl Iterator<Item = HugeIndex>,
        most: u32,
        mobility: Mobility,
        any_content: bool,
        mut put: impl FnMut(HugeIndex),
    ) {
        let mut call = self.calls.begin();
        let mut left = self.giant(giant).free().min(most);
        if left == 0 || !self.lower_free(giant, left) {
            return;
        }
        let allocated = Huge::allocated(mobility);
        for huge in huges {
            let seen = self.huge(huge);
            let is_taken = if seen.is_free_unknown() {
                self.swap_huge(huge, seen, allocated)
            } else {
                any_content && seen.is_free() && self.take_known(giant, huge, seen, allocated)
            };
            if is_taken {
                put(huge);
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
        // Other CPUs took what this one passed, and left their own behind it.
        self.raise_free(giant, left);
        call.undo();
    }

    /// Takes a free huge frame of known content that is reserved already, but not as such.
    #[cold]
    fn take_known(&self, giant: GiantIndex, huge: HugeIndex, seen: Huge, to: Huge) -> bool {
        let content = seen.content();
        let one = |count| Change::free(0).and_known(content, count);
        if self.try_adjust_giant(giant, one(-1)).is_err() {
            return false;
        }
        let is_taken = self.swap_huge(huge, seen, to);
        if !is_taken {
            self.adjust_giant(giant, one(1));
        }
        is_taken
    }

    /// Takes a block of more than one huge frame of a split giant frame.
    pub(crate) fn take_huges(&self, block: Block, purpose: Purpose<'_>) -> Result<(), Miss> {
        if !self.frames.covers(block.range()) {
            return Err(Miss::Nothing);
        }
        let huges = self.huges_of(block);
        let mut reserve = Change::free(0);
        for huge in huges.clone() {
            let seen = self.huge(huge);
            if !seen.is_free() {
                return Err(Miss::Nothing);
            }
            reserve = reserve.and_free(-1).and_known(seen.content(), -1);
        }
        let giant = self.giant_of(block.start);
        let mut call = self.calls.begin();
        if self.try_adjust_giant(giant, reserve).is_err() {
            return Err(Miss::Changed);
        }
        // What the words say that are taken; then the same is reserved.
        let mut taken = Change::free(0);
        for huge in huges.clone() {
            // Opening, not allocated, until all are taken: nothing of it can be freed yet.
            let seen = self.huge(huge);
            let is_mine =
                seen.is_free() && self.swap_huge(huge, seen, seen.with_state(HugeState::Opening));
            if is_mine {
                taken = taken.and_free(-1).and_known(seen.content(), -1);
            }
            let is_last = huge + 1 == huges.end;
            if !is_mine || is_last && taken != reserve {
                let end = if is_mine { huge + 1 } else { huge };
                for mine in huges.start..end {
                    let before = self.huge(mine).with_state(HugeState::Free);
                    self.publish_huge(mine, before);
                }
                self.adjust_giant(giant, reserve.reverse());
                call.undo();
                return Err(Miss::Changed);
            }
        }
        if let Some(known) = purpose.known {
            self.note_huges(block, known);
        }
        self.store_huges(huges, Huge::allocated(purpose.mobility));
        Ok(())
    }

    /// Takes giant frame `giant`, found free as `word`.
    pub(crate) fn take_giant(&self, giant: GiantIndex, word: Giant, purpose: Purpose<'_>) -> bool {
        let is_taken = self.swap_giant(giant, word, word.taken(purpose.mobility));
        if is_taken && let Some(known) = purpose.known {
            match word.content() {
                Some(content) => known.note_all(content),
                None => self.note_huges(
                    Block {
                        start: self.giant_frames(giant).start(),
                        order: GIANT_ORDER,
                    },
                    known,
                ),
            }
        }
        is_taken
    }

    /// Opens giant frame `giant`, found free as `word`, to take a part of it. If that part is
    /// not taken, it merges again.
    pub(crate) fn take_below<T>(
        &self,
        giant: GiantIndex,
        word: Giant,
        take: impl FnOnce() -> Result<T, Miss>,
    ) -> Result<T, Miss> {
        if !self.open_giant(giant, word) {
            return Err(Miss::Changed);
        }
        let taken = take();
        if taken.is_err() {
            self.merge_if_complete(giant);
        }
        taken
    }

    /// Takes exactly `block`, which must lie inside the segment. Refused if some of it was seen
    /// allocated, isolated, or held by a call in flight.
    pub(crate) fn take_at<'k>(
        &self,
        block: Block,
        purpose: impl Into<Purpose<'k>>,
    ) -> Result<(), Miss> {
        let purpose = purpose.into();
        for _ in 0..TRIES {
            match self.try_at(block, purpose) {
                Err(Miss::Changed) => pause(),
                answer => return answer,
            }
        }
        Err(Miss::Changed)
    }

    fn try_at(&self, block: Block, purpose: Purpose<'_>) -> Result<(), Miss> {
        let giant = self.giant_of(block.start);
        let word = self.giant(giant);
        match word.state() {
            GiantState::Allocated => Err(Miss::Nothing),
            GiantState::Opening => Err(Miss::Changed),
            GiantState::Free if block.order == GIANT_ORDER => {
                let taken = self.take_giant(giant, word, purpose);
                if taken { Ok(()) } else { Err(Miss::Changed) }
            }
            GiantState::Free => self.take_below(giant, word, || self.take_part_at(block, purpose)),
            GiantState::Split => self.take_part_at(block, purpose),
        }
    }

    /// A given block of a split giant frame.
    fn take_part_at(&self, block: Block, purpose: Purpose<'_>) -> Result<(), Miss> {
        let huge = self.huge_of(block.start);
        match block.order {
            GIANT_ORDER => Err(Miss::Nothing),
            HUGE_ORDER => self.take_one(huge, purpose, Part::Whole).map(drop),
            order if order > HUGE_ORDER => self.take_huges(block, purpose),
            _ => {
                let part = Part::At(Pages::of(block.range()));
                self.take_one(huge, purpose, part).map(drop)
            }
        }
    }
}
