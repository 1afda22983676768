//! The word of a huge frame: [`Huge`].
//!
//! | bits | what |
//! |---|---|
//! | 0-2 | state |
//! | 3 | mobility it was taken or split for |
//! | 4-7 | bound on the order of its free blocks of pages |
//! | 8 | partial: some of its pages are free; of an allocated one: it is offline |
//! | 9 | isolated |
//! | 10 | pinned: some of its pages are reserved for ever |
//! | 11-12 | content of a free one |
//! | 13-31 | unused |

#![expect(
    clippy::cast_possible_truncation,
    reason = "masks and numbers of fields that all lie in the lower half"
)]

use core::fmt;

use super::content::{Content, IS_KEPT};
use super::field::Field;
use super::geometry::LARGEST_PAGES;
use super::mobility::Mobility;

const STATE: Field = Field::new(0, 3);
const MOBILITY: Field = STATE.then(1);
const ORDER: Field = MOBILITY.then(4);
const PARTIAL: Field = ORDER.then(1);
const ISOLATED: Field = PARTIAL.then(1);
const PINNED: Field = ISOLATED.then(1);
const CONTENT: Field = PINNED.then(2 * IS_KEPT as u32);

const _: () = {
    assert!(ORDER.most() >= LARGEST_PAGES as u32 && MOBILITY.most() >= 1);
    assert!(!IS_KEPT || CONTENT.most() >= Content::Reported as u32);
    assert!(CONTENT.mask() <= u32::MAX as u64);
};

/// What a huge frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeState {
    /// Free as one block.
    Free = 1,
    /// One CPU is writing the bitmap, or taking the huge frame together with others.
    Opening = 2,
    /// The bitmap holds.
    Split = 3,
    /// Allocated as one block (or a part of a larger one).
    Allocated = 4,
}

/// State of a huge frame: the bits in memory, never zero.
///
/// Which pages of a split one are free, its bitmap alone says. `partial` and `max_order`
/// guide searches: with no call in flight `partial` says whether any page is free,
/// and no free block is of a higher order than `max_order`. While it is isolated nothing of
/// it can be taken, and the giant frame's counts leave it out.
///
/// `content` is what a free one holds; nothing is known of pages of one that is split.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Huge(u32);

impl fmt::Debug for Huge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Huge({:#06x})", self.0)
    }
}

impl Huge {
    pub(crate) const FREE: Self = Self(HugeState::Free as u32);

    /// The word with these bits.
    #[inline]
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Its bits.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    const fn with(self, field: Field, number: u32) -> Self {
        Self(field.set(self.0 as u64, number) as u32)
    }

    const fn get(self, field: Field) -> u32 {
        field.get(self.0 as u64)
    }

    /// Whether it is in this state, and has no bit of `others`.
    #[inline]
    const fn is_only(self, state: HugeState, others: u64) -> bool {
        self.0 as u64 & (STATE.mask() | others) == state as u64
    }

    /// Allocated as one block.
    pub(crate) const fn allocated(mobility: Mobility) -> Self {
        Self(HugeState::Allocated as u32).with(MOBILITY, mobility as u32)
    }

    /// Split, with free pages that may form a block of any order; or with none.
    pub(crate) const fn split(mobility: Mobility, partial: bool) -> Self {
        let split = Self(HugeState::Split as u32).with(MOBILITY, mobility as u32);
        if partial {
            split.partial_from(LARGEST_PAGES)
        } else {
            split
        }
    }

    /// In another state.
    pub(crate) const fn with_state(self, state: HugeState) -> Self {
        self.with(STATE, state as u32)
    }

    /// Isolated or not.
    pub(crate) const fn with_isolated(self, isolated: bool) -> Self {
        self.with(ISOLATED, isolated as u32)
    }

    /// With some pages reserved for ever or none.
    pub(crate) const fn with_pinned(self, pinned: bool) -> Self {
        self.with(PINNED, pinned as u32)
    }

    /// With this content.
    pub(crate) const fn with_content(self, content: Content) -> Self {
        self.with(CONTENT, if IS_KEPT { content as u32 } else { 0 })
    }

    /// Out of use as a whole: it can be neither freed nor allocated.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn out_of_use(is_offline: bool) -> Self {
        let allocated = Self::allocated(Mobility::Unmovable).with_pinned(true);
        allocated.with(PARTIAL, is_offline as u32)
    }

    // ---- What it says ------------------------------------------------------

    /// What the huge frame is.
    #[inline]
    pub(crate) const fn state(self) -> HugeState {
        match self.get(STATE) {
            1 => HugeState::Free,
            2 => HugeState::Opening,
            3 => HugeState::Split,
            _ => HugeState::Allocated,
        }
    }

    /// What it was taken or split for.
    #[inline]
    pub(crate) const fn mobility(self) -> Mobility {
        Mobility::of_content(self.get(MOBILITY) != 0)
    }

    /// The bound on the free blocks of a split one.
    #[inline]
    pub(crate) const fn max_order(self) -> u8 {
        self.get(ORDER) as u8
    }

    /// Whether nothing of it can be taken.
    #[inline]
    pub(crate) const fn is_isolated(self) -> bool {
        self.get(ISOLATED) != 0
    }

    /// Whether its bitmap says what is free: it is split, isolated or not.
    #[inline]
    pub(crate) const fn has_bitmap(self) -> bool {
        self.is_only(HugeState::Split, 0)
    }

    /// Whether some of its pages are reserved for ever.
    #[inline]
    pub(crate) const fn is_pinned(self) -> bool {
        self.get(PINNED) != 0
    }

    /// What a free one holds.
    #[inline]
    pub(crate) const fn content(self) -> Content {
        Content::of_bits(self.get(CONTENT))
    }

    /// Whether it is out of use, and not absent.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn is_offline(self) -> bool {
        matches!(self.state(), HugeState::Allocated) && self.get(PARTIAL) != 0
    }

    /// Whether it can be taken as a whole.
    #[inline]
    pub(crate) const fn is_free(self) -> bool {
        self.is_only(HugeState::Free, ISOLATED.mask())
    }

    /// Whether it can be taken as a whole, and nothing is known of its content.
    #[inline]
    pub(crate) const fn is_free_unknown(self) -> bool {
        self.is_only(HugeState::Free, ISOLATED.mask() | CONTENT.mask())
    }

    /// Whether it is allocated as one, not isolated, and nothing of it is pinned.
    #[inline]
    pub(crate) const fn is_allocated(self) -> bool {
        self.is_only(HugeState::Allocated, ISOLATED.mask() | PINNED.mask())
    }

    /// Whether it is split and not isolated.
    #[inline]
    pub(crate) const fn is_split(self) -> bool {
        self.is_only(HugeState::Split, ISOLATED.mask())
    }

    /// Whether it is split and some of its pages are free.
    #[inline]
    pub(crate) const fn is_partial(self) -> bool {
        const SPLIT: u64 = HugeState::Split as u64 | PARTIAL.mask();
        self.0 as u64 & (STATE.mask() | PARTIAL.mask()) == SPLIT
    }

    /// Whether its giant frame counts it as partly free.
    #[inline]
    pub(crate) const fn is_counted(self) -> bool {
        self.is_partial() && !self.is_isolated()
    }

    /// Whether its giant frame counts it as partly free for this mobility.
    #[inline]
    pub(crate) const fn is_counted_for(self, mobility: Mobility) -> bool {
        const KIND: u64 = STATE.mask() | MOBILITY.mask() | PARTIAL.mask() | ISOLATED.mask();
        self.0 as u64 & KIND == Self::split(mobility, true).0 as u64 & KIND
    }

    /// Whether it is split for `mobility` and may have a free block of `order`.
    #[inline]
    pub(crate) const fn may_have(self, order: u8, mobility: Mobility) -> bool {
        self.is_counted_for(mobility) && self.max_order() >= order
    }

    /// Whether a page that becomes free, as part of a block of `order`, changes nothing.
    #[inline]
    pub(crate) const fn covers(self, order: u8) -> bool {
        self.is_partial() && self.max_order() >= order
    }

    // ---- Pages that come and go --------------------------------------------

    /// Used up: the next page that is freed makes it partial again.
    #[inline]
    pub(crate) const fn full(self) -> Self {
        self.with(PARTIAL, 0).with(ORDER, 0)
    }

    /// With pages free that form a block of this order at most.
    pub(crate) const fn partial_from(self, max_order: u8) -> Self {
        self.bounded_from(max_order).with(PARTIAL, 1)
    }

    /// With this bound at least on the free blocks.
    pub(crate) const fn bounded_from(self, max_order: u8) -> Self {
        if self.max_order() < max_order {
            self.with(ORDER, max_order as u32)
        } else {
            self
        }
    }

    /// With this bound at most on the free blocks.
    pub(crate) const fn bounded_to(self, max_order: u8) -> Self {
        if self.max_order() > max_order {
            self.with(ORDER, max_order as u32)
        } else {
            self
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use Mobility::{Movable, Unmovable};

    /// What the table above says, of every word there can be.
    #[test]
    fn every_word_says_what_its_bits_say() {
        let kept = if IS_KEPT { 3 } else { 0 };
        for bits in (0..1 << 13).filter(|bits| matches!(bits & 7, 1..=4)) {
            let word = Huge::of_bits(bits);
            assert_eq!(word.bits(), bits);
            let bit = |at: u32| bits >> at & 1 == 1;
            let (state, content) = (bits & 7, bits >> 11 & kept);
            let [free, split, allocated] = [1, 3, 4].map(|one| state == one);
            let movable = Mobility::of_content(bit(3));
            let (order, isolated, pinned) =
                (u8::try_from(bits >> 4 & 15).unwrap(), bit(9), bit(10));
            assert_eq!(word.state() as u32, state);
            assert_eq!(word.mobility(), movable);
            assert_eq!(word.max_order(), order);
            assert_eq!((word.is_isolated(), word.is_pinned()), (isolated, pinned));
            assert_eq!(word.content(), Content::of_bits(content));
            assert_eq!(word.is_free(), free && !isolated);
            assert_eq!(word.is_free_unknown(), free && !isolated && content == 0);
            assert_eq!(
                (word.has_bitmap(), word.is_split()),
                (split, split && !isolated)
            );
            assert_eq!(word.is_allocated(), allocated && !isolated && !pinned);
            #[cfg(feature = "hotplug")]
            assert_eq!(word.is_offline(), allocated && bit(8));
            let partial = split && bit(8);
            assert_eq!(word.is_partial(), partial);
            assert_eq!(word.is_counted(), partial && !isolated);
            for mobility in [Unmovable, Movable] {
                // Without the feature there is one.
                let of_it = bit(3) == mobility.is_movable();
                let counted = partial && !isolated && of_it;
                assert_eq!(word.is_counted_for(mobility), counted);
                assert_eq!(word.may_have(5, mobility), counted && order >= 5);
            }
            assert_eq!(word.covers(5), partial && order >= 5);
        }
    }

    /// Of every word: what changes is what is said to, and nothing else.
    #[test]
    fn a_change_leaves_the_other_fields_alone() {
        for bits in (0..1 << 13).filter(|bits| matches!(bits & 7, 1..=4)) {
            let word = Huge::of_bits(bits);
            let rest = |word: Huge, mask: u32| word.bits() & !mask;
            for state in [HugeState::Free, HugeState::Opening, HugeState::Split] {
                let now = word.with_state(state);
                assert_eq!((now.state(), rest(now, 7)), (state, rest(word, 7)));
            }
            for on in [false, true] {
                let (isolated, pinned) = (word.with_isolated(on), word.with_pinned(on));
                let others = (rest(isolated, 1 << 9), rest(pinned, 1 << 10));
                assert_eq!(others, (rest(word, 1 << 9), rest(word, 1 << 10)));
                assert_eq!((isolated.is_isolated(), pinned.is_pinned()), (on, on));
            }
            for content in [Content::Unknown, Content::Zero, Content::Reported] {
                let now = word.with_content(content);
                let said = if IS_KEPT { content } else { Content::Unknown };
                let kept = if IS_KEPT { 3 << 11 } else { 0 };
                assert_eq!((now.content(), rest(now, kept)), (said, rest(word, kept)));
            }
            assert_eq!(word.full().bits(), bits & !0x1f0);
            for order in 0..=LARGEST_PAGES {
                let (up, down) = (word.bounded_from(order), word.bounded_to(order));
                assert_eq!(up.max_order(), word.max_order().max(order));
                assert_eq!(down.max_order(), word.max_order().min(order));
                assert_eq!(
                    (rest(up, 0xf0), rest(down, 0xf0)),
                    (rest(word, 0xf0), rest(word, 0xf0))
                );
                assert_eq!(word.partial_from(order).bits(), up.bits() | 1 << 8);
            }
        }
    }

    /// What `engine/tests/it/tables_machine.rs` fills tables with.
    #[test]
    fn words_of_other_tests_mean_what_these_expect() {
        assert_eq!(Huge::FREE.bits(), 1);
        let bound = u32::from(LARGEST_PAGES) << 4;
        assert_eq!(Huge::split(Unmovable, true).bits(), 0x103 | bound);
        assert_eq!(Huge::split(Movable, true).bits(), 0x10b | bound);
        assert_eq!(Huge::allocated(Unmovable).bits(), 4);
    }

    #[test]
    fn bounds_go_up_and_down() {
        let full = Huge::split(Movable, false);
        let pair = full.partial_from(1);
        assert!(pair.may_have(1, Movable));
        assert!(!pair.may_have(2, Movable));
        assert!(!pair.may_have(1, Unmovable));
        assert!(pair.covers(1) && !pair.covers(2));
        assert!(!full.covers(0));
        assert_eq!(pair.bounded_from(4).bounded_to(2).max_order(), 2);
    }
}
