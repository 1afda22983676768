//! The word of a giant frame: [`Giant`], and a change of its counts: [`Change`].
//!
//! | bits | what |
//! |---|---|
//! | 0-2 | state |
//! | 3 | opened: the huge words below were written at least once |
//! | 4-13 | free huge frames that are not reserved by a call |
//! | 14-25, 26-37 | partly free huge frames, unmovable and movable; of an allocated one: 1 as movable if its content is |
//! | 38-41, 42-45 | bound on the order of their free blocks, likewise |
//! | 46-55 | known: free huge frames, not reserved by a call, of known content |
//! | 56-57 | contents among those |
//! | 58 | stale: the huge words below do not have the contents this word has |
//! | 59-63 | raises: goes up with every count that is raised, and wraps |

#![expect(
    clippy::cast_possible_truncation,
    reason = "fields are masked to their width"
)]

use super::content::{Content, IS_KEPT};
use super::geometry::{HUGES, LARGEST_PAGES};
use super::mobility::Mobility;

/// What `partial` can count: all huge frames, and three thousand calls that have
/// announced one and not yet made it so.
const MOST_PARTIAL: u32 = 0xfff;

const STATE: u64 = 7;
const OPENED: u64 = 1 << 3;
const FREE_BIT: u32 = 4;
const PARTIAL_BIT: [u32; 2] = [14, 26];
const ORDER_BIT: [u32; 2] = [38, 42];
const CONTENT_BIT: u32 = 46;
const CONTENT: u64 = if IS_KEPT { (1 << 13) - 1 } else { 0 };
/// Of those bits: the count, what is counted, and whether that is stale.
const KNOWN_MOST: u16 = 0x3ff;
const CONTENTS_AT: u32 = 10;
const CONTENT_STALE: u16 = 1 << 12;
const RAISE: u64 = 1 << 59;

/// What a giant frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiantState {
    /// Free as one block.
    Free,
    /// One CPU is writing the huge words below.
    Opening,
    /// The huge words below and the counts hold.
    Split,
    /// Allocated as one block.
    Allocated,
}

impl GiantState {
    const fn bits(self) -> u64 {
        match self {
            Self::Free => 1,
            Self::Opening => 2,
            Self::Split => 3,
            Self::Allocated => 4,
        }
    }
}

/// State of a giant frame and what is free below it.
///
/// `free` counts huge frames that are free as a whole: lowering it by one reserves one of
/// them, wherever it lies. `partial` is, for each mobility, at least the number of huge
/// frames with some pages free, and `max_order` at least the order of the largest block of
/// free pages in one of them.
///
/// Huge words that were written once (`opened`) stay valid: below a giant frame that is one
/// block, free or allocated, they all say free.
///
/// `content` counts the huge frames among `free` whose words say what they hold, taken and given
/// back in the same steps, and guides searches to what they say. Both stay when the giant
/// frame merges, and then the words below hold what each huge frame holds; unless they are
/// stale, or were never written: then all is alike, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Giant {
    pub(crate) state: GiantState,
    pub(crate) opened: bool,
    pub(crate) free: u32,
    pub(crate) partial: [u32; 2],
    pub(crate) max_order: [u8; 2],
    content: u16,
    raises: u8,
}

/// By how much the counts of a split giant frame change in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    free: i32,
    partial: [i32; 2],
    /// `max_order` is this at least.
    max_order: [u8; 2],
    known: i32,
    /// What those hold.
    contents: u8,
}

impl Change {
    /// More or fewer free huge frames.
    pub(crate) const fn free(count: i32) -> Self {
        Self {
            free: count,
            partial: [0; 2],
            max_order: [0; 2],
            known: 0,
            contents: 0,
        }
    }

    /// The opposite of a change that lowers `free` and `known` only.
    pub(crate) const fn reverse(self) -> Self {
        Self {
            free: -self.free,
            known: -self.known,
            ..self
        }
    }

    pub(crate) const fn and_free(mut self, count: i32) -> Self {
        self.free += count;
        self
    }

    /// And so many of them with this content.
    pub(crate) const fn and_known(mut self, content: Content, count: i32) -> Self {
        if content.is_known() && count != 0 {
            self.known += count;
            self.contents |= content as u8;
        }
        self
    }

    /// More or fewer huge frames of this mobility with some pages free.
    pub(crate) const fn partial(mobility: Mobility, count: i32) -> Self {
        Self::free(0).and_partial(mobility, count)
    }

    pub(crate) const fn and_partial(mut self, mobility: Mobility, count: i32) -> Self {
        self.partial[mobility as usize] += count;
        self
    }

    /// A free huge frame is going to be opened for pages of this mobility.
    pub(crate) const fn open(mobility: Mobility) -> Self {
        let mut open = Self::free(-1).and_partial(mobility, 1);
        open.max_order[mobility as usize] = LARGEST_PAGES;
        open
    }

    /// That huge frame was not opened after all.
    pub(crate) const fn not_opened(mobility: Mobility) -> Self {
        Self::free(1).and_partial(mobility, -1)
    }
}

impl Giant {
    /// Free as one block, nothing below written.
    pub(crate) const FREE: Self = Self::block(GiantState::Free);
    /// Allocated as one block, nothing below written.
    pub(crate) const ALLOCATED: Self = Self::block(GiantState::Allocated);

    const fn block(state: GiantState) -> Self {
        Self {
            state,
            opened: false,
            free: 0,
            partial: [0; 2],
            max_order: [0; 2],
            content: 0,
            raises: 0,
        }
    }

    /// One block, nothing below written, that holds this.
    pub(crate) const fn with_content(self, content: Content) -> Self {
        let known = if content.is_known() { HUGES } else { 0 };
        self.with_known(content, known)
    }

    /// Split, with so many of the free huge frames of this content.
    pub(crate) const fn with_known(mut self, content: Content, known: u32) -> Self {
        if !IS_KEPT {
            return self;
        }
        let contents = if known > 0 { content as u16 } else { 0 };
        self.content = self.content & CONTENT_STALE | contents << CONTENTS_AT | known as u16;
        self
    }

    /// Free huge frames, not reserved by a call, of known content.
    pub(crate) const fn known(self) -> u32 {
        if IS_KEPT {
            (self.content & KNOWN_MOST) as u32
        } else {
            0
        }
    }

    /// What those hold, one bit each.
    const fn contents(self) -> u16 {
        self.content >> CONTENTS_AT & 3
    }

    const fn is_stale(self) -> bool {
        IS_KEPT && self.content & CONTENT_STALE != 0
    }

    /// Split, with `partial` huge frames of each mobility that may hold a block of any order.
    pub(crate) const fn split(free: u32, partial: [u32; 2]) -> Self {
        Self {
            opened: true,
            free,
            partial,
            max_order: [LARGEST_PAGES; 2],
            ..Self::block(GiantState::Split)
        }
        .without_empty_bounds()
    }

    /// Where no pages are free they form no block.
    const fn without_empty_bounds(mut self) -> Self {
        if self.partial[0] == 0 {
            self.max_order[0] = 0;
        }
        if self.partial[1] == 0 {
            self.max_order[1] = 0;
        }
        self
    }

    /// Allocated as one block for content of this mobility: the words below keep contents that are
    /// true no more.
    pub(crate) const fn taken(self, mobility: Mobility) -> Self {
        let is_stale = self.is_stale() || self.opened && self.known() > 0;
        Self {
            state: GiantState::Allocated,
            partial: [0, mobility as u32],
            content: if is_stale { CONTENT_STALE } else { 0 },
            ..self
        }
    }

    /// What content one that is allocated as one block was taken for.
    pub(crate) const fn mobility(self) -> Mobility {
        let is_movable = matches!(self.state, GiantState::Allocated) && self.partial[1] > 0;
        Mobility::of_content(is_movable)
    }

    /// Split, with nothing free, and allocated as one block from now on.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn closed(self) -> Self {
        Self {
            state: GiantState::Allocated,
            ..self.opening()
        }
    }

    /// Whether the huge words below say what their frames are: it is split; or it is being opened or
    /// closed, and they were written before. Below one block they say free.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn has_words(self) -> bool {
        match self.state {
            GiantState::Split => true,
            GiantState::Opening => self.opened,
            GiantState::Free | GiantState::Allocated => false,
        }
    }

    /// Free as one block again, with this content, which counts as raised.
    pub(crate) const fn freed(self, content: Content) -> Self {
        let is_stale = self.is_stale() || self.opened && content.is_known();
        Self {
            state: GiantState::Free,
            partial: [0; 2],
            content: if is_stale { CONTENT_STALE } else { 0 },
            raises: self.raises.wrapping_add(1) & 0x1f,
            ..self
        }
        .with_content(content)
    }

    /// The word while one CPU opens it: no counts.
    pub(crate) const fn opening(self) -> Self {
        Self {
            state: GiantState::Opening,
            free: 0,
            partial: [0; 2],
            max_order: [0; 2],
            content: 0,
            ..self
        }
    }

    /// The word once it is open, with so many free huge frames; the words below have the
    /// contents.
    pub(crate) const fn opened_with(self, free: u32) -> Self {
        Self {
            state: GiantState::Split,
            opened: true,
            free,
            content: self.content & !CONTENT_STALE,
            ..self.opening()
        }
    }

    /// What all of one block holds; `None`: what the huge words below say.
    pub(crate) const fn content(self) -> Option<Content> {
        if self.known() == 0 {
            Some(Content::Unknown)
        } else if self.is_unwritten() {
            Some(Content::of_bits(self.contents() as u32))
        } else {
            None
        }
    }

    /// Whether the huge words below a free block have to be written before it is split.
    pub(crate) const fn is_unwritten(self) -> bool {
        !self.opened || self.is_stale()
    }

    /// Whether a free huge frame may hold this.
    pub(crate) const fn may_hold(self, content: Content) -> bool {
        match content {
            Content::Unknown => match self.state {
                GiantState::Free => self.known() < HUGES,
                _ => self.free > self.known(),
            },
            content => self.known() > 0 && self.contents() & content as u16 != 0,
        }
    }

    /// Whether a block of `order`, below a huge frame, may be found in a huge frame that is
    /// split for this mobility.
    pub(crate) const fn may_have(self, order: u8, mobility: Mobility) -> bool {
        self.partial[mobility as usize] > 0 && self.max_order[mobility as usize] >= order
    }

    /// The bits kept in memory; never zero.
    pub(crate) const fn pack(self) -> u64 {
        self.state.bits()
            | (self.opened as u64) << OPENED.trailing_zeros()
            | (self.free as u64) << FREE_BIT
            | (self.partial[0] as u64) << PARTIAL_BIT[0]
            | (self.partial[1] as u64) << PARTIAL_BIT[1]
            | (self.max_order[0] as u64) << ORDER_BIT[0]
            | (self.max_order[1] as u64) << ORDER_BIT[1]
            | (self.content as u64 & CONTENT) << CONTENT_BIT
            | (self.raises as u64) << RAISE.trailing_zeros()
    }

    #[inline]
    pub(crate) const fn unpack(bits: u64) -> Self {
        Self {
            state: Self::state_in(bits),
            opened: bits & OPENED != 0,
            free: Self::free_in(bits),
            partial: [
                (bits >> PARTIAL_BIT[0]) as u32 & MOST_PARTIAL,
                (bits >> PARTIAL_BIT[1]) as u32 & MOST_PARTIAL,
            ],
            max_order: [
                (bits >> ORDER_BIT[0]) as u8 & 0xf,
                (bits >> ORDER_BIT[1]) as u8 & 0xf,
            ],
            content: (bits >> CONTENT_BIT & CONTENT) as u16,
            raises: (bits >> RAISE.trailing_zeros()) as u8,
        }
    }

    /// The state in the bits of a giant frame.
    #[inline]
    pub(crate) const fn state_in(bits: u64) -> GiantState {
        match bits & STATE {
            1 => GiantState::Free,
            2 => GiantState::Opening,
            3 => GiantState::Split,
            _ => GiantState::Allocated,
        }
    }

    /// Whether the content of a free huge frame is known.
    #[inline]
    pub(crate) const fn is_known_in(bits: u64) -> bool {
        IS_KEPT && bits & ((KNOWN_MOST as u64) << CONTENT_BIT) != 0
    }

    /// Whether a free huge frame can be had from a giant frame with these bits, one of unknown
    /// content or any.
    #[inline]
    pub(crate) const fn has_huges_in(bits: u64, any_content: bool) -> bool {
        if Self::is_known_in(bits) && !any_content {
            return Self::unpack(bits).may_hold(Content::Unknown);
        }
        match bits & STATE {
            1 => true,
            3 => Self::free_in(bits) > 0,
            _ => false,
        }
    }

    /// Whether nothing can be taken from a giant frame with these bits.
    #[inline]
    pub(crate) const fn is_used_up_in(bits: u64) -> bool {
        const COUNTS: u64 = (1 << ORDER_BIT[0]) - (1 << FREE_BIT);
        match bits & STATE {
            3 => bits & COUNTS == 0,
            state => state == 4,
        }
    }

    /// Whether the bits are those of a split giant frame.
    #[inline]
    pub(crate) const fn is_split_in(bits: u64) -> bool {
        bits & STATE == 3
    }

    /// Whether the huge words below were written: then they are valid.
    #[inline]
    pub(crate) const fn is_opened_in(bits: u64) -> bool {
        bits & OPENED != 0 && bits & STATE != 2
    }

    /// The bound of a mobility in the bits of a split giant frame.
    #[inline]
    pub(crate) const fn max_order_in(bits: u64, mobility: Mobility) -> u8 {
        (bits >> ORDER_BIT[mobility as usize]) as u8 & 0xf
    }

    /// What an addition to the bits of a split giant frame does that raises `free`.
    #[inline]
    pub(crate) const fn raise_of_free(count: u32) -> u64 {
        RAISE | (count as u64) << FREE_BIT
    }

    /// The bits of a split giant frame with `count` fewer free huge frames; `None` if it is
    /// not split or has fewer. Nothing merges by that, and no bound changes.
    #[inline]
    pub(crate) const fn lowered_free_in(bits: u64, count: u32) -> Option<u64> {
        if Self::is_split_in(bits) && Self::free_in(bits) >= count {
            Some(bits - ((count as u64) << FREE_BIT))
        } else {
            None
        }
    }

    /// The free huge frames in the bits of a split giant frame.
    #[inline]
    const fn free_in(bits: u64) -> u32 {
        (bits >> FREE_BIT) as u32 & 0x3ff
    }

    /// Whether all huge frames are free and no call is about to change that.
    pub(crate) const fn is_complete(self) -> bool {
        matches!(self.state, GiantState::Split)
            && self.free == HUGES
            && self.partial[0] + self.partial[1] == 0
    }

    /// Free as one block if nothing below is allocated or reserved.
    pub(crate) const fn merged(self) -> Self {
        if self.is_complete() {
            Self {
                opened: true,
                content: self.content,
                raises: self.raises,
                ..Self::FREE
            }
        } else {
            self
        }
    }

    /// With the counts changed; `None` if one would leave its range or the
    /// giant frame is not split.
    pub(crate) const fn changed(self, by: Change) -> Option<Self> {
        if !matches!(self.state, GiantState::Split) {
            return None;
        }
        let free = self.free.checked_add_signed(by.free);
        let unmovable = self.partial[0].checked_add_signed(by.partial[0]);
        let movable = self.partial[1].checked_add_signed(by.partial[1]);
        let content = if !IS_KEPT || by.known == 0 {
            Some(self.content)
        } else {
            self.content_changed(by)
        };
        match (free, unmovable, movable, content) {
            (Some(free), Some(unmovable), Some(movable), Some(content))
                if free <= HUGES && unmovable <= MOST_PARTIAL && movable <= MOST_PARTIAL =>
            {
                let raised = by.free > 0 || by.partial[0] > 0 || by.partial[1] > 0;
                let changed = Self {
                    free,
                    partial: [unmovable, movable],
                    content,
                    raises: self.raises.wrapping_add(raised as u8) & 0x1f,
                    ..self
                };
                Some(
                    changed
                        .bounded_from(by.max_order)
                        .without_empty_bounds()
                        .merged(),
                )
            }
            _ => None,
        }
    }

    /// What is known once more or less is.
    #[cold]
    const fn content_changed(self, by: Change) -> Option<u16> {
        match self.known().checked_add_signed(by.known) {
            Some(0) => Some(0),
            Some(known) if known <= HUGES => {
                let more = if by.known > 0 { by.contents as u16 } else { 0 };
                Some((self.contents() | more) << CONTENTS_AT | known as u16)
            }
            _ => None,
        }
    }

    /// With at least these bounds on the blocks of pages.
    pub(crate) const fn bounded_from(mut self, max_order: [u8; 2]) -> Self {
        if self.max_order[0] < max_order[0] {
            self.max_order[0] = max_order[0];
        }
        if self.max_order[1] < max_order[1] {
            self.max_order[1] = max_order[1];
        }
        self
    }

    /// With this bound at most on the blocks of pages of a mobility.
    pub(crate) const fn bounded_to(mut self, mobility: Mobility, max_order: u8) -> Self {
        if self.max_order[mobility as usize] > max_order {
            self.max_order[mobility as usize] = max_order;
        }
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Mobility::{Movable, Unmovable};

    #[test]
    fn words_survive_packing() {
        for giant in [
            Giant::FREE,
            Giant::FREE.opening(),
            Giant::ALLOCATED,
            Giant::split(HUGES, [3, HUGES]),
            Giant::split(HUGES, [0, 0]).merged(),
            Giant::split(3, [0, 1]).with_known(Content::Reported, 2),
            Giant::FREE
                .with_content(Content::Zero)
                .taken(Movable)
                .freed(Content::Zero),
            Giant::FREE.taken(Movable),
        ] {
            assert_eq!(Giant::unpack(giant.pack()), giant);
            assert_ne!(giant.pack(), 0);
        }
        assert_eq!(Giant::split(HUGES, [MOST_PARTIAL; 2]).pack() >> 46, 0);
    }

    #[test]
    fn a_reservation_lowers_the_free_count_and_changes_nothing_else() {
        for giant in [
            Giant::FREE,
            Giant::FREE.opening(),
            Giant::ALLOCATED,
            Giant::split(0, [2, 0]),
            Giant::split(3, [0, 1]),
            Giant::split(HUGES, [0; 2]),
        ] {
            for count in [1, 2, 3, 4, HUGES] {
                let lowered = giant.changed(Change::free(-count.cast_signed()));
                let bits = Giant::lowered_free_in(giant.pack(), count);
                assert_eq!(bits, lowered.map(Giant::pack), "{giant:?} {count}");
            }
        }
    }

    #[test]
    fn a_giant_merges_only_when_nothing_is_left_below() {
        let one_taken = Giant::split(HUGES - 1, [0; 2]);
        let merged = one_taken.changed(Change::free(1)).unwrap();
        assert_eq!((merged.state, merged.opened), (GiantState::Free, true));
        let partial = Giant::split(HUGES - 1, [0, 1]);
        let counted = partial.changed(Change::free(1)).unwrap();
        assert_eq!(counted.state, GiantState::Split);
        let done = counted.changed(Change::partial(Movable, -1)).unwrap();
        assert_eq!(done.state, GiantState::Free);
        assert_eq!(Giant::split(0, [0; 2]).changed(Change::free(-1)), None);
        assert_eq!(Giant::FREE.changed(Change::free(-1)), None);
        let added = Giant::unpack(one_taken.pack() + Giant::raise_of_free(1));
        assert!(added.is_complete());
    }

    #[cfg(feature = "content")]
    #[test]
    fn what_is_known_stays_when_a_giant_merges_and_is_stale_once_it_was_taken() {
        use Content::{Reported, Unknown, Zero};
        let split = Giant::split(HUGES - 1, [0; 2]).with_known(Zero, 1);
        let merged = split
            .changed(Change::free(1).and_known(Reported, 1))
            .unwrap();
        assert_eq!((merged.state, merged.known()), (GiantState::Free, 2));
        assert!(merged.may_hold(Zero) && merged.may_hold(Reported) && merged.may_hold(Unknown));
        assert_eq!((merged.content(), merged.is_unwritten()), (None, false));
        assert_eq!(merged.opened_with(HUGES).known(), 2);
        let freed = merged.taken(Movable).freed(Unknown);
        assert_eq!(
            (freed.content(), freed.is_unwritten()),
            (Some(Unknown), true)
        );
        let zeroed = split.merged().taken(Unmovable).freed(Zero);
        assert_eq!(
            (zeroed.content(), zeroed.is_unwritten()),
            (Some(Zero), true)
        );
        assert!(!zeroed.may_hold(Unknown) && !zeroed.may_hold(Reported));
        // One that never had any is not written again.
        let plain = Giant::split(HUGES, [0; 2]).merged().taken(Unmovable);
        let plain = plain.freed(Unknown);
        assert!(!plain.is_unwritten());
        // The last one that is taken takes the contents along.
        let none = split.changed(Change::free(-1).and_known(Zero, -1)).unwrap();
        assert!(!none.may_hold(Zero));
        assert_eq!(none.changed(Change::free(-1).and_known(Zero, -1)), None);
    }

    #[test]
    fn every_raise_makes_another_word() {
        let word = Giant::split(5, [1, 0]);
        let open = word.changed(Change::open(Unmovable)).unwrap();
        let back = open.changed(Change::not_opened(Unmovable)).unwrap();
        assert_eq!((back.free, back.partial), (word.free, word.partial));
        assert_ne!(back.pack(), word.pack());
    }

    /// What MODEL.md says of the proof that memory is out: a word that was raised 32 times, or a multiple
    /// of that, and is as before, is not told from one that was not.
    #[test]
    fn words_repeat_after_32_raises_and_not_before() {
        let word = Giant::split(5, [1, 0]);
        let mut now = word;
        for raises in 1..=64 {
            let taken = now.changed(Change::free(-1)).unwrap();
            now = taken.changed(Change::free(1)).unwrap();
            assert_eq!(now == word, raises % 32 == 0, "{raises}");
        }
    }

    #[test]
    fn an_allocated_giant_keeps_its_mobility_until_it_is_freed_or_opened() {
        let free = Giant::split(HUGES, [0; 2]).merged();
        for mobility in Mobility::ALL {
            let taken = free.taken(mobility);
            assert_eq!(taken.mobility(), mobility);
            assert!(Giant::is_used_up_in(taken.pack()));
            assert_eq!(taken.freed(Content::Unknown).partial, [0; 2]);
            assert_eq!(taken.opened_with(0).partial, [0; 2]);
        }
    }

    #[test]
    fn used_up_is_told_by_the_bits() {
        assert!(Giant::is_used_up_in(Giant::split(0, [0; 2]).pack()));
        assert!(Giant::is_used_up_in(Giant::ALLOCATED.pack()));
        assert!(!Giant::is_used_up_in(Giant::split(0, [0, 1]).pack()));
        assert!(!Giant::is_used_up_in(Giant::FREE.pack()));
        assert!(!Giant::is_used_up_in(Giant::FREE.opening().pack()));
    }
}
