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
    reason = "fields are masked to their width"
)]

use super::content::{Content, IS_KEPT};
use super::geometry::LARGEST_PAGES;
use super::mobility::Mobility;

/// What a huge frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeState {
    /// Free as one block.
    Free,
    /// One CPU is writing the bitmap, or taking the huge frame together with others.
    Opening,
    /// The bitmap holds.
    Split,
    /// Allocated as one block (or a part of a larger one).
    Allocated,
}

/// State of a huge frame.
///
/// Which pages of a split one are free, its bitmap alone says. `partial` and `max_order`
/// guide searches: with no call in flight `partial` says whether any page is free,
/// and no free block is of a higher order than `max_order`. While it is `isolated` nothing of
/// it can be taken, and the giant frame's counts leave it out.
///
/// `content` is what a free one holds; nothing is known of pages of one that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Huge {
    pub(crate) state: HugeState,
    pub(crate) mobility: Mobility,
    pub(crate) max_order: u8,
    pub(crate) partial: bool,
    pub(crate) isolated: bool,
    /// Some of its pages are reserved for ever.
    pub(crate) pinned: bool,
    pub(crate) content: Content,
}

impl Huge {
    pub(crate) const FREE: Self = Self::block(HugeState::Free, Mobility::Unmovable);

    const STATE: u32 = 7;
    const MOBILITY_BIT: u32 = 3;
    const ORDER_BIT: u32 = 4;
    const PARTIAL: u32 = 1 << 8;
    const ISOLATED: u32 = 1 << 9;
    const PINNED: u32 = 1 << 10;
    const ORDER: u32 = 0xf << Self::ORDER_BIT;
    const CONTENT_BIT: u32 = 11;
    const CONTENT: u32 = if IS_KEPT { 3 << Self::CONTENT_BIT } else { 0 };

    const fn block(state: HugeState, mobility: Mobility) -> Self {
        Self {
            state,
            mobility,
            max_order: 0,
            partial: false,
            isolated: false,
            pinned: false,
            content: Content::Unknown,
        }
    }

    /// Allocated as one block.
    pub(crate) const fn allocated(mobility: Mobility) -> Self {
        Self::block(HugeState::Allocated, mobility)
    }

    /// Split, with free pages that may form a block of any order; or with none.
    pub(crate) const fn split(mobility: Mobility, partial: bool) -> Self {
        Self {
            partial,
            max_order: if partial { LARGEST_PAGES } else { 0 },
            ..Self::block(HugeState::Split, mobility)
        }
    }

    /// The same with another state.
    pub(crate) const fn with_state(self, state: HugeState) -> Self {
        Self { state, ..self }
    }

    /// The same, isolated or not.
    pub(crate) const fn with_isolated(self, isolated: bool) -> Self {
        Self { isolated, ..self }
    }

    /// The same, with some pages reserved for ever or none.
    pub(crate) const fn with_pinned(self, pinned: bool) -> Self {
        Self { pinned, ..self }
    }

    /// Out of use as a whole: it can be neither freed nor allocated.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn out_of_use(is_offline: bool) -> Self {
        Self {
            partial: is_offline,
            ..Self::allocated(Mobility::Unmovable).with_pinned(true)
        }
    }

    /// Whether it is out of use, and not absent.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn is_offline(self) -> bool {
        matches!(self.state, HugeState::Allocated) && self.partial
    }

    /// The same with this content.
    pub(crate) const fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Whether it can be taken as a whole.
    pub(crate) const fn is_free(self) -> bool {
        matches!(self.state, HugeState::Free) && !self.isolated
    }

    /// Whether the giant frame counts it as partly free.
    pub(crate) const fn is_counted(self) -> bool {
        matches!(self.state, HugeState::Split) && self.partial && !self.isolated
    }

    /// With pages free that form a block of this order at most.
    pub(crate) const fn partial_from(self, max_order: u8) -> Self {
        let bounded = self.bounded_from(max_order);
        Self {
            partial: true,
            ..bounded
        }
    }

    /// With this bound at least on the free blocks.
    pub(crate) const fn bounded_from(mut self, max_order: u8) -> Self {
        if self.max_order < max_order {
            self.max_order = max_order;
        }
        self
    }

    /// With this bound at most on the free blocks.
    pub(crate) const fn bounded_to(mut self, max_order: u8) -> Self {
        if self.max_order > max_order {
            self.max_order = max_order;
        }
        self
    }

    /// The bits kept in memory; never zero.
    pub(crate) const fn pack(self) -> u32 {
        let state = match self.state {
            HugeState::Free => 1,
            HugeState::Opening => 2,
            HugeState::Split => 3,
            HugeState::Allocated => 4,
        };
        state
            | (self.mobility as u32) << Self::MOBILITY_BIT
            | (self.max_order as u32) << Self::ORDER_BIT
            | if self.partial { Self::PARTIAL } else { 0 }
            | if self.isolated { Self::ISOLATED } else { 0 }
            | if self.pinned { Self::PINNED } else { 0 }
            | (self.content as u32) << Self::CONTENT_BIT & Self::CONTENT
    }

    #[inline]
    pub(crate) const fn unpack(bits: u32) -> Self {
        let state = match bits & Self::STATE {
            1 => HugeState::Free,
            2 => HugeState::Opening,
            3 => HugeState::Split,
            _ => HugeState::Allocated,
        };
        Self {
            state,
            mobility: Self::mobility_in(bits),
            max_order: Self::max_order_in(bits),
            partial: bits & Self::PARTIAL != 0,
            isolated: bits & Self::ISOLATED != 0,
            pinned: bits & Self::PINNED != 0,
            content: Self::content_in(bits),
        }
    }

    /// Whether the bits are those of a huge frame that can be taken as a whole.
    #[inline]
    pub(crate) const fn is_free_in(bits: u32) -> bool {
        bits & (Self::STATE | Self::ISOLATED) == 1
    }

    /// Whether the bits are those of a huge frame that can be taken as a whole and of whose
    /// content nothing is known.
    #[inline]
    pub(crate) const fn is_free_unknown_in(bits: u32) -> bool {
        bits & (Self::STATE | Self::ISOLATED | Self::CONTENT) == 1
    }

    /// Whether the content is known.
    #[inline]
    #[cfg_attr(
        not(feature = "content"),
        expect(clippy::bad_bit_mask, reason = "there are no such bits then")
    )]
    pub(crate) const fn is_known_in(bits: u32) -> bool {
        bits & Self::CONTENT != 0
    }

    /// What is known of the content.
    #[inline]
    pub(crate) const fn content_in(bits: u32) -> Content {
        Content::of_bits(bits >> Self::CONTENT_BIT)
    }

    /// Whether the bits are those of a huge frame of which nothing can be taken.
    #[inline]
    pub(crate) const fn is_isolated_in(bits: u32) -> bool {
        bits & Self::ISOLATED != 0
    }

    /// Whether the bits are those of a huge frame that is allocated as one, not isolated, and of
    /// which nothing is pinned.
    #[inline]
    pub(crate) const fn is_allocated_in(bits: u32) -> bool {
        bits & (Self::STATE | Self::ISOLATED | Self::PINNED) == 4
    }

    /// Whether the bits are those of a huge frame that is split and not isolated.
    #[inline]
    pub(crate) const fn is_split_in(bits: u32) -> bool {
        bits & (Self::STATE | Self::ISOLATED) == 3
    }

    /// Whether some of the pages are reserved for ever.
    #[inline]
    pub(crate) const fn is_pinned_in(bits: u32) -> bool {
        bits & Self::PINNED != 0
    }

    /// Whether the bits are those of a huge frame that is split for `mobility` and may have a
    /// free block of `order`.
    #[inline]
    pub(crate) const fn may_have_in(bits: u32, order: u8, mobility: Mobility) -> bool {
        Self::is_counted_in(bits, mobility) && Self::max_order_in(bits) >= order
    }

    /// Whether the bits are those of a huge frame that is split for `mobility` and that its
    /// giant frame counts as partly free.
    #[inline]
    pub(crate) const fn is_counted_in(bits: u32, mobility: Mobility) -> bool {
        const KIND: u32 = Huge::STATE | 1 << Huge::MOBILITY_BIT | Huge::PARTIAL | Huge::ISOLATED;
        bits & KIND == 3 | (mobility as u32) << Self::MOBILITY_BIT | Self::PARTIAL
    }

    /// Whether the bits are those of a split huge frame that is partial.
    #[inline]
    pub(crate) const fn is_partial_in(bits: u32) -> bool {
        bits & (Self::STATE | Self::PARTIAL) == 3 | Self::PARTIAL
    }

    /// The bits of one that is partial once it is used up: the next page that is freed makes it so again.
    #[inline]
    pub(crate) const fn full_in(bits: u32) -> u32 {
        bits & !(Self::PARTIAL | Self::ORDER)
    }

    /// Whether a page that becomes free, as part of a block of `order`, changes nothing in a
    /// word with these bits.
    #[inline]
    pub(crate) const fn covers_in(bits: u32, order: u8) -> bool {
        Self::is_partial_in(bits) && Self::max_order_in(bits) >= order
    }

    /// The bound in the bits of a split huge frame.
    #[inline]
    pub(crate) const fn max_order_in(bits: u32) -> u8 {
        (bits >> Self::ORDER_BIT) as u8 & 0xf
    }

    /// What the huge frame with these bits was taken or split for.
    #[inline]
    pub(crate) const fn mobility_in(bits: u32) -> Mobility {
        Mobility::of_content(bits & 1 << Self::MOBILITY_BIT != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Mobility::{Movable, Unmovable};

    #[test]
    fn words_survive_packing() {
        for huge in [
            Huge::FREE,
            Huge::FREE.with_state(HugeState::Opening),
            Huge::FREE.with_isolated(true),
            Huge::allocated(Unmovable),
            Huge::allocated(Movable).with_pinned(true),
            #[cfg(feature = "hotplug")]
            Huge::out_of_use(true),
            Huge::split(Movable, true),
            Huge::split(Unmovable, true).with_isolated(true),
            Huge::split(Unmovable, false),
            Huge::split(Unmovable, false).partial_from(3),
            #[cfg(feature = "content")]
            Huge::FREE.with_content(Content::Zero),
            #[cfg(feature = "content")]
            Huge::FREE.with_content(Content::Reported),
            Huge::split(Movable, true).with_pinned(true),
        ] {
            let bits = huge.pack();
            assert_eq!(Huge::unpack(bits), huge);
            assert_eq!(Huge::is_free_in(bits), huge.is_free());
            let is_known = huge.content.is_known();
            let unknown = huge.is_free() && !is_known;
            assert_eq!(Huge::is_free_unknown_in(bits), unknown);
            assert_eq!(Huge::is_isolated_in(bits), huge.isolated);
            let is_partial = huge.state == HugeState::Split && huge.partial;
            assert_eq!(Huge::is_partial_in(bits), is_partial);
            let full = Huge {
                partial: false,
                max_order: 0,
                ..huge
            };
            assert_eq!(Huge::full_in(bits), full.pack());
            for mobility in Mobility::ALL {
                let counted = huge.is_counted() && huge.mobility == mobility;
                assert_eq!(Huge::is_counted_in(bits, mobility), counted);
            }
            assert_ne!(bits, 0);
        }
    }

    /// What `engine/tests/it/tables_machine.rs` fills tables with.
    #[test]
    fn words_of_other_tests_mean_what_these_expect() {
        assert_eq!(Huge::FREE.pack(), 1);
        assert_eq!(Huge::split(Unmovable, true).pack(), 0x183);
        assert_eq!(Huge::split(Movable, true).pack(), 0x18b);
        assert_eq!(Huge::allocated(Unmovable).pack(), 4);
    }

    #[test]
    fn bounds_go_up_and_down() {
        let full = Huge::split(Movable, false);
        let pair = full.partial_from(1);
        assert!(Huge::may_have_in(pair.pack(), 1, Movable));
        assert!(!Huge::may_have_in(pair.pack(), 2, Movable));
        assert!(!Huge::may_have_in(pair.pack(), 1, Unmovable));
        assert!(Huge::covers_in(pair.pack(), 1) && !Huge::covers_in(pair.pack(), 2));
        assert!(!Huge::covers_in(full.pack(), 0));
        assert_eq!(pair.bounded_from(4).bounded_to(2).max_order, 2);
    }
}
