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

use core::fmt;

use super::content::{Content, IS_KEPT};
use super::field::Field;
use super::geometry::{HUGES, LARGEST_PAGES};
use super::mobility::Mobility;

/// Bits of what is known, as far as that is kept.
const KEPT: u32 = IS_KEPT as u32;

const STATE: Field = Field::new(0, 3);
const OPENED: Field = STATE.then(1);
const FREE: Field = OPENED.then(10);
/// All huge frames, and three thousand calls that have announced one and not yet made it so.
const UNMOVABLE: Field = FREE.then(12);
const MOVABLE: Field = UNMOVABLE.then(12);
const PARTIAL: [Field; 2] = [UNMOVABLE, MOVABLE];
const UNMOVABLE_ORDER: Field = MOVABLE.then(4);
const MOVABLE_ORDER: Field = UNMOVABLE_ORDER.then(4);
const ORDER: [Field; 2] = [UNMOVABLE_ORDER, MOVABLE_ORDER];
const KNOWN: Field = Field::new(46, 10 * KEPT);
const CONTENTS: Field = Field::new(56, 2 * KEPT);
const STALE: Field = Field::new(58, KEPT);
const RAISES: Field = Field::new(59, 5);

const _: () = {
    assert!(FREE.most() >= HUGES && UNMOVABLE.most() > HUGES && MOVABLE.most() > HUGES);
    assert!(UNMOVABLE_ORDER.most() >= LARGEST_PAGES as u32);
    assert!(!IS_KEPT || KNOWN.most() >= HUGES && CONTENTS.most() >= Content::Reported as u32);
    assert!(MOVABLE_ORDER.mask() < 1 << 46);
};

/// What is known of the content.
const CONTENT: u64 = KNOWN.mask() | CONTENTS.mask() | STALE.mask();
/// What is kept where a giant frame becomes one block, or is opened.
const LASTING: u64 = OPENED.mask() | RAISES.mask();
/// What may be taken.
const COUNTS: u64 = FREE.mask() | UNMOVABLE.mask() | MOVABLE.mask();

/// What a giant frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiantState {
    /// Free as one block.
    Free = 1,
    /// One CPU is writing the huge words below.
    Opening = 2,
    /// The huge words below and the counts hold.
    Split = 3,
    /// Allocated as one block.
    Allocated = 4,
}

/// State of a giant frame and what is free below it: the bits in memory, never zero.
///
/// `free` counts huge frames that are free as a whole: lowering it by one reserves one of
/// them, wherever it lies. `partial` is, for each mobility, at least the number of huge
/// frames with some pages free, and `max_order` at least the order of the largest block of
/// free pages in one of them.
///
/// Huge words that were written once (`was_opened`) stay valid: below a giant frame that is one
/// block, free or allocated, they all say free.
///
/// `known` counts the huge frames among `free` whose words say what they hold, taken and given
/// back in the same steps, and `contents` guides searches to what they say. Both stay when the giant
/// frame merges, and then the words below hold what each huge frame holds; unless they are
/// stale, or were never written: then all is alike, known or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Giant(u64);

impl fmt::Debug for Giant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Giant({:#018x})", self.0)
    }
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

    pub(crate) const fn and_free(self, count: i32) -> Self {
        let mut more = self;
        more.free += count;
        more
    }

    /// And so many of them with this content.
    pub(crate) const fn and_known(self, content: Content, count: i32) -> Self {
        let mut more = self;
        if content.is_known() && count != 0 {
            more.known += count;
            more.contents |= content as u8;
        }
        more
    }

    /// More or fewer huge frames of this mobility with some pages free.
    pub(crate) const fn partial(mobility: Mobility, count: i32) -> Self {
        Self::free(0).and_partial(mobility, count)
    }

    pub(crate) const fn and_partial(self, mobility: Mobility, count: i32) -> Self {
        let mut more = self;
        more.partial[mobility as usize] += count;
        more
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
    pub(crate) const FREE: Self = Self(GiantState::Free as u64);
    /// Allocated as one block, nothing below written.
    pub(crate) const ALLOCATED: Self = Self(GiantState::Allocated as u64);

    /// The word with these bits.
    #[inline]
    pub(crate) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    const fn with(self, field: Field, number: u32) -> Self {
        Self(field.set(self.0, number))
    }

    /// In another state, with no counts, nothing known.
    const fn lasting(self, state: GiantState) -> Self {
        Self(self.0 & LASTING | state as u64)
    }

    const fn raised(self, by: u32) -> Self {
        let raises = RAISES.get(self.0).wrapping_add(by) & RAISES.most();
        self.with(RAISES, raises)
    }

    /// Split, with `partial` huge frames of each mobility that may hold a block of any order.
    pub(crate) const fn split(free: u32, partial: [u32; 2]) -> Self {
        let opened = Self(GiantState::Split as u64).with(OPENED, 1);
        let counted = opened.with(FREE, free).with_partial(partial);
        let unmovable = counted.with_order(UNMOVABLE_ORDER, LARGEST_PAGES);
        unmovable
            .with_order(MOVABLE_ORDER, LARGEST_PAGES)
            .without_empty_bounds()
    }

    const fn with_partial(self, partial: [u32; 2]) -> Self {
        self.with(UNMOVABLE, partial[0]).with(MOVABLE, partial[1])
    }

    /// One block, nothing below written, that holds this.
    pub(crate) const fn with_content(self, content: Content) -> Self {
        let known = if content.is_known() { HUGES } else { 0 };
        self.with_known(content, known)
    }

    /// Split, with so many of the free huge frames of this content.
    pub(crate) const fn with_known(self, content: Content, known: u32) -> Self {
        let contents = if known > 0 { content as u32 } else { 0 };
        self.with(CONTENTS, contents).with(KNOWN, known)
    }

    // ---- What it says ------------------------------------------------------

    /// What the giant frame is.
    #[inline]
    pub(crate) const fn state(self) -> GiantState {
        match STATE.get(self.0) {
            1 => GiantState::Free,
            2 => GiantState::Opening,
            3 => GiantState::Split,
            _ => GiantState::Allocated,
        }
    }

    /// Whether it is split.
    #[inline]
    pub(crate) const fn is_split(self) -> bool {
        STATE.get(self.0) == GiantState::Split as u32
    }

    /// Free huge frames that are not reserved by a call.
    #[inline]
    pub(crate) const fn free(self) -> u32 {
        FREE.get(self.0)
    }

    /// Huge frames of this mobility with some pages free.
    #[inline]
    pub(crate) const fn partial(self, mobility: Mobility) -> u32 {
        PARTIAL[mobility as usize].get(self.0)
    }

    /// Whether there is any, of either.
    pub(crate) const fn has_partial(self) -> bool {
        self.0 & (UNMOVABLE.mask() | MOVABLE.mask()) != 0
    }

    /// The bound on the free blocks of those of a mobility.
    #[inline]
    pub(crate) const fn max_order(self, mobility: Mobility) -> u8 {
        ORDER[mobility as usize].get(self.0) as u8
    }

    /// Whether the huge words below were written at least once.
    pub(crate) const fn was_opened(self) -> bool {
        OPENED.get(self.0) != 0
    }

    /// Whether they were written, and are not being written again: then they are valid.
    #[inline]
    pub(crate) const fn is_opened(self) -> bool {
        self.was_opened() && STATE.get(self.0) != GiantState::Opening as u32
    }

    /// Whether the huge words below say what their frames are: it is split; or it is being opened or
    /// closed, and they were written before. Below one block they say free.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn has_words(self) -> bool {
        match self.state() {
            GiantState::Split => true,
            GiantState::Opening => self.was_opened(),
            GiantState::Free | GiantState::Allocated => false,
        }
    }

    /// What content one that is allocated as one block was taken for.
    pub(crate) const fn mobility(self) -> Mobility {
        let is_allocated = matches!(self.state(), GiantState::Allocated);
        Mobility::of_content(is_allocated && MOVABLE.get(self.0) > 0)
    }

    /// Free huge frames, not reserved by a call, of known content.
    #[inline]
    pub(crate) const fn known(self) -> u32 {
        KNOWN.get(self.0)
    }

    /// What those hold, one bit each.
    const fn contents(self) -> u32 {
        CONTENTS.get(self.0)
    }

    /// What all of one block holds; `None`: what the huge words below say.
    pub(crate) const fn content(self) -> Option<Content> {
        if self.known() == 0 {
            Some(Content::Unknown)
        } else if self.is_unwritten() {
            Some(Content::of_bits(self.contents()))
        } else {
            None
        }
    }

    /// Whether the huge words below a free block have to be written before it is split.
    pub(crate) const fn is_unwritten(self) -> bool {
        !self.was_opened() || self.is_stale()
    }

    const fn is_stale(self) -> bool {
        STALE.get(self.0) != 0
    }

    /// Whether a free huge frame may hold this.
    pub(crate) const fn may_hold(self, content: Content) -> bool {
        match content {
            Content::Unknown => match self.state() {
                GiantState::Free => self.known() < HUGES,
                _ => self.free() > self.known(),
            },
            content => self.known() > 0 && self.contents() & content as u32 != 0,
        }
    }

    /// Whether a block of `order`, below a huge frame, may be found in a huge frame that is
    /// split for this mobility.
    pub(crate) const fn may_have(self, order: u8, mobility: Mobility) -> bool {
        self.partial(mobility) > 0 && self.max_order(mobility) >= order
    }

    /// Whether a free huge frame can be had, one of unknown content or any.
    #[inline]
    pub(crate) const fn has_huges(self, any_content: bool) -> bool {
        if self.known() > 0 && !any_content {
            return self.may_hold(Content::Unknown);
        }
        match self.state() {
            GiantState::Free => true,
            GiantState::Split => self.free() > 0,
            GiantState::Opening | GiantState::Allocated => false,
        }
    }

    /// Whether nothing can be taken.
    #[inline]
    pub(crate) const fn is_used_up(self) -> bool {
        match self.state() {
            GiantState::Split => self.0 & COUNTS == 0,
            state => matches!(state, GiantState::Allocated),
        }
    }

    /// Whether all huge frames are free and no call is about to change that.
    #[inline]
    pub(crate) const fn is_complete(self) -> bool {
        self.0 & (STATE.mask() | COUNTS) == GiantState::Split as u64 | FREE.of(HUGES)
    }

    // ---- One block ---------------------------------------------------------

    /// Allocated as one block for content of this mobility: the words below keep contents that are
    /// true no more.
    pub(crate) const fn taken(self, mobility: Mobility) -> Self {
        let is_stale = self.is_stale() || self.was_opened() && self.known() > 0;
        let taken = self.lasting(GiantState::Allocated);
        taken
            .with(MOVABLE, mobility as u32)
            .with(STALE, is_stale as u32)
    }

    /// Free as one block again, with this content, which counts as raised.
    pub(crate) const fn freed(self, content: Content) -> Self {
        let is_stale = self.is_stale() || self.was_opened() && content.is_known();
        let freed = self.lasting(GiantState::Free).raised(1);
        freed.with(STALE, is_stale as u32).with_content(content)
    }

    /// Free as one block if nothing below is allocated or reserved.
    pub(crate) const fn merged(self) -> Self {
        if !self.is_complete() {
            return self;
        }
        let merged = self.0 & (CONTENT | RAISES.mask()) | GiantState::Free as u64;
        Self(merged).with(OPENED, 1)
    }

    /// The word while one CPU opens it: no counts.
    pub(crate) const fn opening(self) -> Self {
        self.lasting(GiantState::Opening)
    }

    /// The word once it is open, with so many free huge frames; the words below have the
    /// contents.
    pub(crate) const fn opened_with(self, free: u32) -> Self {
        let known = self.0 & (KNOWN.mask() | CONTENTS.mask());
        let opened = Self(self.lasting(GiantState::Split).0 | known);
        opened.with(OPENED, 1).with(FREE, free)
    }

    /// Split, with nothing free, and allocated as one block from now on.
    #[cfg(feature = "hotplug")]
    pub(crate) const fn closed(self) -> Self {
        self.lasting(GiantState::Allocated)
    }

    // ---- Counts ------------------------------------------------------------

    /// What an addition to the bits of a split giant frame does that raises `free`.
    #[inline]
    pub(crate) const fn raise_of_free(count: u32) -> u64 {
        RAISES.of(1) | FREE.of(count)
    }

    /// With `count` fewer free huge frames; `None` if it is not split or has fewer. Nothing merges
    /// by that, and no bound changes.
    #[inline]
    pub(crate) const fn lowered_free(self, count: u32) -> Option<Self> {
        if self.is_split() && self.free() >= count {
            Some(Self(self.0 - FREE.of(count)))
        } else {
            None
        }
    }

    /// With the counts changed; `None` if one would leave its range or the
    /// giant frame is not split.
    pub(crate) const fn changed(self, by: Change) -> Option<Self> {
        if !self.is_split() {
            return None;
        }
        let free = self.free().checked_add_signed(by.free);
        let unmovable = UNMOVABLE.get(self.0).checked_add_signed(by.partial[0]);
        let movable = MOVABLE.get(self.0).checked_add_signed(by.partial[1]);
        let (Some(free), Some(unmovable), Some(movable)) = (free, unmovable, movable) else {
            return None;
        };
        if free > HUGES || unmovable > UNMOVABLE.most() || movable > MOVABLE.most() {
            return None;
        }
        let mut changed = self.with(FREE, free).with_partial([unmovable, movable]);
        if IS_KEPT && by.known != 0 {
            changed = match changed.content_changed(by) {
                Some(changed) => changed,
                None => return None,
            };
        }
        let is_raised = by.free > 0 || by.partial[0] > 0 || by.partial[1] > 0;
        let bounded = changed
            .raised(is_raised as u32)
            .with_order(UNMOVABLE_ORDER, by.max_order[0])
            .with_order(MOVABLE_ORDER, by.max_order[1]);
        Some(bounded.without_empty_bounds().merged())
    }

    /// With more or less known.
    #[cold]
    const fn content_changed(self, by: Change) -> Option<Self> {
        match self.known().checked_add_signed(by.known) {
            Some(0) => Some(Self(self.0 & !CONTENT)),
            Some(known) if known <= HUGES => {
                let more = if by.known > 0 { by.contents as u32 } else { 0 };
                let contents = self.contents() | more;
                Some(self.with(KNOWN, known).with(CONTENTS, contents))
            }
            _ => None,
        }
    }

    // ---- Bounds ------------------------------------------------------------

    /// Where no pages are free they form no block.
    const fn without_empty_bounds(self) -> Self {
        let mut bounded = self;
        if UNMOVABLE.get(bounded.0) == 0 {
            bounded = bounded.with(UNMOVABLE_ORDER, 0);
        }
        if MOVABLE.get(bounded.0) == 0 {
            bounded = bounded.with(MOVABLE_ORDER, 0);
        }
        bounded
    }

    /// With this bound at least on the blocks of pages of a mobility.
    pub(crate) const fn bounded_from(self, mobility: Mobility, max_order: u8) -> Self {
        self.with_order(ORDER[mobility as usize], max_order)
    }

    const fn with_order(self, field: Field, at_least: u8) -> Self {
        if field.get(self.0) < at_least as u32 {
            self.with(field, at_least as u32)
        } else {
            self
        }
    }

    /// With this bound at most on the blocks of pages of a mobility.
    pub(crate) const fn bounded_to(self, mobility: Mobility, max_order: u8) -> Self {
        if self.max_order(mobility) > max_order {
            self.with(ORDER[mobility as usize], max_order as u32)
        } else {
            self
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use Mobility::{Movable, Unmovable};

    /// What the table above says, of words of all states with each field at both ends of its range and
    /// the others at either.
    #[test]
    fn words_say_what_their_bits_say() {
        let kept = |bits: u32| if IS_KEPT { bits } else { 0 };
        let fields = [(3, 1), (4, 10), (14, 12), (26, 12), (38, 4), (42, 4)];
        let known = [(46, 10), (56, 2), (58, 1), (59, 5)];
        let fields: [(u32, u32); 10] =
            core::array::from_fn(|at| fields.into_iter().chain(known).nth(at).unwrap());
        for choice in 0..1u32 << 10 {
            for state in 1..=4 {
                let most = |at: usize| (choice >> at & 1) * ((1u32 << fields[at].1) - 1);
                let place = |at: usize| u64::from(most(at)) << fields[at].0;
                let word = Giant::of_bits(state | (0..10).map(place).sum::<u64>());
                assert_eq!(word.state() as u64, state);
                assert_eq!(word.was_opened(), most(0) > 0);
                assert_eq!(word.is_opened(), most(0) > 0 && state != 2);
                assert_eq!(word.free(), most(1));
                assert_eq!(word.has_partial(), most(2) + most(3) > 0);
                for mobility in Mobility::ALL {
                    assert_eq!(word.partial(mobility), most(2 + mobility as usize));
                    let order = most(4 + mobility as usize);
                    assert_eq!(u32::from(word.max_order(mobility)), order);
                    let may_have = word.partial(mobility) > 0 && order >= 5;
                    assert_eq!(word.may_have(5, mobility), may_have);
                }
                let (known, contents, stale) = (kept(most(6)), kept(most(7)), kept(most(8)));
                assert_eq!((word.known(), word.contents()), (known, contents));
                assert_eq!(word.is_stale(), stale > 0);
                assert_eq!(RAISES.get(word.bits()), most(9));
                let is_any = most(1) + most(2) + most(3) > 0;
                assert_eq!(word.is_used_up(), state == 4 || state == 3 && !is_any);
                let (is_free, is_split) = (state == 1, state == 3);
                let has_huges = is_free || is_split && most(1) > 0;
                assert_eq!(word.has_huges(true), has_huges);
                let of_unknown = if is_free {
                    known < HUGES
                } else {
                    most(1) > known
                };
                let unknown = has_huges && known == 0 || known > 0 && of_unknown;
                assert_eq!(word.has_huges(false), unknown);
                // All ones are more than there are.
                assert!(!word.is_complete());
            }
        }
        for partial in [[0, 0], [1, 0], [0, 1]] {
            let word = Giant::split(HUGES, partial);
            assert_eq!(word.is_complete(), partial == [0, 0]);
        }
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
                assert_eq!(giant.lowered_free(count), lowered, "{giant:?} {count}");
            }
        }
    }

    #[test]
    fn a_giant_merges_only_when_nothing_is_left_below() {
        let one_taken = Giant::split(HUGES - 1, [0; 2]);
        let merged = one_taken.changed(Change::free(1)).unwrap();
        assert_eq!(
            (merged.state(), merged.was_opened()),
            (GiantState::Free, true)
        );
        let partial = Giant::split(HUGES - 1, [0, 1]);
        let counted = partial.changed(Change::free(1)).unwrap();
        assert_eq!(counted.state(), GiantState::Split);
        let done = counted.changed(Change::partial(Movable, -1)).unwrap();
        assert_eq!(done.state(), GiantState::Free);
        assert_eq!(Giant::split(0, [0; 2]).changed(Change::free(-1)), None);
        assert_eq!(Giant::FREE.changed(Change::free(-1)), None);
        let added = Giant::of_bits(one_taken.bits() + Giant::raise_of_free(1));
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
        assert_eq!((merged.state(), merged.known()), (GiantState::Free, 2));
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
        assert_eq!(back.free(), word.free());
        assert_eq!(back.partial(Unmovable), word.partial(Unmovable));
        assert_ne!(back.bits(), word.bits());
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
            assert!(taken.is_used_up());
            assert!(!taken.freed(Content::Unknown).has_partial());
            assert!(!taken.opened_with(0).has_partial());
        }
    }

    #[test]
    fn used_up_is_told_by_the_bits() {
        assert!(Giant::split(0, [0; 2]).is_used_up());
        assert!(Giant::ALLOCATED.is_used_up());
        assert!(!Giant::split(0, [0, 1]).is_used_up());
        assert!(!Giant::FREE.is_used_up());
        assert!(!Giant::FREE.opening().is_used_up());
    }
}
