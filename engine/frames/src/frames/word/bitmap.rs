//! The bitmap of a huge frame: one bit a page, set while it is allocated.
//!
//! Below a split huge frame the bits alone decide who has a page: a page is taken by setting
//! its bit and given back by clearing it, one atomic operation each for up to 64 pages. While
//! the huge frame is anything but split, every bit of a bitmap that was ever written is set:
//! a call that comes late finds nothing to take.

#![expect(
    clippy::cast_possible_truncation,
    reason = "orders inside one huge frame"
)]

use super::geometry::{BITMAP_WORDS, HUGE_FRAMES, LARGEST_PAGES, Pages, WORD_ORDER};
use crate::sync::{AtomicU64, Ordering, recheck_u64, swap_u64, update_u64};

/// One bit a page of a huge frame, in ascending order.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(firstlight_loom), repr(align(64)))]
pub(crate) struct Bitmap([AtomicU64; BITMAP_WORDS]);

/// Pages in a row that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenAt {
    /// The first.
    pub(crate) at: u32,
    /// All bits of the word that the last lies in are set now.
    pub(crate) filled: bool,
    /// Some others were taken for a moment before.
    pub(crate) undone: bool,
}

/// Pages that were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The word that the last lies in, right after.
    word: u64,
    /// Those in a row, or none if they are single pages of that word.
    row: Option<Pages>,
}

impl Given {
    /// No less than the order of the largest block they are part of now, if that is above `least`.
    #[inline]
    pub(crate) fn max_order_from(self, least: u8) -> u8 {
        match self.row {
            Some(row) if !row.is_in_one_word() => LARGEST_PAGES,
            Some(Pages { at, count }) if count.is_power_of_two() && at % count == 0 => {
                let order = count.trailing_zeros() as u8;
                order_around(
                    self.word,
                    at % 64,
                    if order < least { least } else { order },
                )
            }
            _ => max_order_of(self.word).unwrap_or(0),
        }
    }

    /// Whether all bits of the last word were clear.
    #[inline]
    pub(crate) const fn is_word_empty(self) -> bool {
        self.word == 0
    }
}

/// No pages were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoBlock {
    /// Some pages were taken for a moment.
    pub(crate) undone: bool,
}

/// Not all pages were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotSet {
    /// How many were given back before that was seen: none, unless another CPU gives back the
    /// same pages at the same moment.
    pub(crate) given: u32,
}

/// For orders 0..=6: the bit positions where an aligned block may start.
const STARTS: [u64; 7] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// Bits `at..at + count` of a word.
const fn mask(at: u32, count: u32) -> u64 {
    (!0 >> (64 - count)) << at
}

/// Of pages `at..end`, those in the word that the first lies in: their bits there, and where the others begin.
#[inline]
const fn first_word(at: u32, end: u32) -> (u64, u32) {
    let after = at / 64 * 64 + 64;
    let next = if after < end { after } else { end };
    (mask(at % 64, next - at), next)
}

/// The lowest `count` of the bits set in `word`.
fn lowest(word: u64, count: u32) -> u64 {
    if word.count_ones() <= count {
        return word;
    }
    let (mut left, mut taken) = (word, 0);
    for _ in 0..count {
        taken |= left & left.wrapping_neg();
        left &= left.wrapping_sub(1);
    }
    taken
}

/// First aligned block of 2^`order` clear bits in `word`.
#[inline]
fn find_block(word: u64, order: u8) -> Option<u32> {
    let mut clear = !word;
    let mut block: u32 = 1;
    for _ in 0..order {
        clear &= clear >> block;
        block *= 2;
    }
    clear &= STARTS[order as usize];
    if clear == 0 {
        None
    } else {
        Some(clear.trailing_zeros())
    }
}

/// No less than the order of the largest block of clear bits that holds page `at`
/// of a word, if that is above `order`. A clear word may be part of any larger block.
#[inline]
fn order_around(word: u64, at: u32, order: u8) -> u8 {
    if word == 0 {
        return LARGEST_PAGES;
    }
    let mut around = order;
    while around < WORD_ORDER {
        let pages = 2 << around;
        let block = word >> (at & !(pages - 1));
        if block << (64 - pages) != 0 {
            return around;
        }
        around += 1;
    }
    around
}

/// No less than the order of the largest block of clear bits in a word; `None` if all are set.
fn max_order_of(word: u64) -> Option<u8> {
    if word == 0 {
        return Some(LARGEST_PAGES);
    }
    let mut clear = !word;
    let mut largest = None;
    let mut order: u8 = 0;
    while order < WORD_ORDER {
        clear &= STARTS[order as usize];
        if clear == 0 {
            break;
        }
        largest = Some(order);
        clear &= clear >> (1u32 << order);
        order += 1;
    }
    largest
}

// ---- Taking ----------------------------------------------------------------

impl Bitmap {
    /// Takes any page, if one is seen.
    #[inline(always)]
    pub(crate) fn take_page(&self) -> Result<TakenAt, NoBlock> {
        for index in 0..BITMAP_WORDS {
            let word = &self.0[index];
            let mut seen = word.load(Ordering::Acquire);
            while seen != !0 {
                // With its lowest clear bit set.
                let new = seen | seen.wrapping_add(1);
                // Acquire: as below.
                let swap =
                    word.compare_exchange_weak(seen, new, Ordering::SeqCst, Ordering::Acquire);
                match swap {
                    Ok(_) => {
                        return Ok(TakenAt {
                            at: index as u32 * 64 + (!seen).trailing_zeros(),
                            filled: new == !0,
                            undone: false,
                        });
                    }
                    Err(now) => seen = now,
                }
            }
        }
        Err(NoBlock { undone: false })
    }

    /// Takes the first `count` pages of any aligned block of 2^`order`, if one is seen.
    #[inline]
    pub(crate) fn take_any(&self, order: u8, count: u32) -> Result<TakenAt, NoBlock> {
        if order > WORD_ORDER {
            return self.take_any_words(order, count);
        }
        for index in 0..BITMAP_WORDS {
            let word = &self.0[index];
            let mut seen = word.load(Ordering::Acquire);
            while let Some(at) = find_block(seen, order) {
                let new = seen | mask(at, count);
                // Acquire: what the last owner wrote into the page comes before.
                let swap =
                    word.compare_exchange_weak(seen, new, Ordering::SeqCst, Ordering::Acquire);
                match swap {
                    Ok(_) => {
                        return Ok(TakenAt {
                            at: index as u32 * 64 + at,
                            filled: new == !0,
                            undone: false,
                        });
                    }
                    Err(now) => seen = now,
                }
            }
        }
        Err(NoBlock { undone: false })
    }

    fn take_any_words(&self, order: u8, count: u32) -> Result<TakenAt, NoBlock> {
        let mut none = NoBlock { undone: false };
        let mut at = 0;
        while at < HUGE_FRAMES {
            match self.take_words(Pages { at, count }) {
                Ok(taken) => {
                    let undone = none.undone;
                    return Ok(TakenAt { undone, ..taken });
                }
                Err(NoBlock { undone }) => none.undone = none.undone || undone,
            }
            at += 1 << order;
        }
        Err(none)
    }

    /// Takes these pages, which must all be clear.
    pub(crate) fn take_at(&self, pages: Pages) -> Result<TakenAt, NoBlock> {
        let Pages { at, count } = pages;
        if !pages.is_in_one_word() {
            return self.take_words(pages);
        }
        match self.take_bits(at, mask(at % 64, count)) {
            Some(new) => Ok(TakenAt {
                at,
                filled: new == !0,
                undone: false,
            }),
            None => Err(NoBlock { undone: false }),
        }
    }

    #[inline(never)]
    fn take_words(&self, pages: Pages) -> Result<TakenAt, NoBlock> {
        // Look first, so that pages that can't be had are not touched.
        if !self.all_are(pages, false) {
            return Err(NoBlock { undone: false });
        }
        let end = pages.at + pages.count;
        let (mut at, mut last) = (pages.at, 0);
        while at < end {
            let (bits, next) = first_word(at, end);
            match self.take_bits(at, bits) {
                Some(new) => last = new,
                None => {
                    self.untake(pages.at, at);
                    let undone = at > pages.at;
                    return Err(NoBlock { undone });
                }
            }
            at = next;
        }
        Ok(TakenAt {
            at: pages.at,
            filled: last == !0,
            undone: false,
        })
    }

    /// Takes the pages of these bits, all of the word of page `at`, which must all be clear: the word then.
    #[inline(always)]
    fn take_bits(&self, at: u32, bits: u64) -> Option<u64> {
        let taken = update_u64(self.word(at), |word| {
            if word & bits == 0 {
                Some(word | bits)
            } else {
                None
            }
        });
        match taken {
            Ok((_, new)) => Some(new),
            Err(_) => None,
        }
    }

    /// Gives back pages `at..end`, which were just taken.
    fn untake(&self, mut at: u32, end: u32) {
        while at < end {
            let (bits, next) = first_word(at, end);
            // Not a store: a call that finds nothing writes the word as it was, and the model
            // checker orders only read-modify-writes of several CPUs.
            self.word(at).fetch_and(!bits, Ordering::SeqCst);
            at = next;
        }
    }

    /// Takes as many pages of word `index` as are free and wanted, `most` at most.
    /// The bits it got are the caller's; whether all of the word is taken now.
    pub(crate) fn take_some(&self, index: usize, most: u32) -> (u64, bool) {
        let word = &self.0[index];
        let wanted = lowest(!word.load(Ordering::Acquire), most);
        if wanted == 0 {
            return (0, false);
        }
        let old = word.fetch_or(wanted, Ordering::SeqCst);
        (wanted & !old, old | wanted == !0)
    }

    /// Takes all pages, which must all be clear: the huge frame is going to be free as a whole.
    pub(crate) fn take_all(&self) -> bool {
        for index in 0..BITMAP_WORDS {
            if !swap_u64(&self.0[index], 0, !0) {
                self.untake(0, index as u32 * 64);
                return false;
            }
        }
        true
    }
}

// ---- Giving back -----------------------------------------------------------

impl Bitmap {
    /// Gives back these pages, which must all be set.
    #[inline]
    pub(crate) fn give(&self, pages: Pages) -> Result<Given, NotSet> {
        let Pages { at, count } = pages;
        if !pages.is_in_one_word() {
            return self.give_words(pages);
        }
        match self.give_bits(at, mask(at % 64, count)) {
            Some(new) => Ok(Given {
                word: new,
                row: Some(pages),
            }),
            None => Err(NotSet { given: 0 }),
        }
    }

    /// Gives back the pages of these bits, all of the word of page `at`, which must all be set: the word then.
    #[inline(always)]
    fn give_bits(&self, at: u32, bits: u64) -> Option<u64> {
        let given = update_u64(self.word(at), |word| {
            if word & bits == bits {
                Some(word & !bits)
            } else {
                None
            }
        });
        match given {
            Ok((_, new)) => Some(new),
            Err(_) => None,
        }
    }

    /// Fails with some words given back only if another CPU frees the same pages just then.
    #[inline(never)]
    fn give_words(&self, pages: Pages) -> Result<Given, NotSet> {
        // Look first, so that an error leaves everything as it was.
        if !self.all_set(pages) {
            return Err(NotSet { given: 0 });
        }
        let end = pages.at + pages.count;
        let (mut at, mut last) = (pages.at, 0);
        while at < end {
            let (bits, next) = first_word(at, end);
            let given = at - pages.at;
            match self.give_bits(at, bits) {
                Some(new) => last = new,
                None => return Err(NotSet { given }),
            }
            at = next;
        }
        Ok(Given {
            word: last,
            row: Some(pages),
        })
    }

    /// Gives back those pages of word `index` whose bits are set in `bits`. Which of them were
    /// allocated, and what came of it.
    pub(crate) fn give_some(&self, index: usize, bits: u64) -> (u64, Given) {
        let old = self.0[index].fetch_and(!bits, Ordering::SeqCst);
        let row = if bits.is_power_of_two() {
            Some(Pages {
                at: bits.trailing_zeros(),
                count: 1,
            })
        } else {
            None
        };
        let given = Given {
            word: old & !bits,
            row,
        };
        (old & bits, given)
    }
}

// ---- Writing, while the huge frame is the caller's ---------------------------

impl Bitmap {
    /// Every bit as given.
    #[cfg(test)]
    pub(crate) fn new(bits: u64) -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(bits)))
    }

    /// Writes all bits: those of `pages` as `inside` says, the others the opposite.
    pub(crate) fn write(&self, inside: bool, pages: Pages) {
        let others = if inside { 0 } else { !0 };
        let end = pages.at + pages.count;
        let mut at = pages.at;
        for index in 0..BITMAP_WORDS {
            let word = &self.0[index];
            let mut bits = others;
            if at < end && (at / 64) as usize == index {
                let (those, next) = first_word(at, end);
                bits ^= those;
                at = next;
            }
            // Release: a call that comes late may take a page before the huge word says that
            // the bitmap holds.
            // The model checker orders only read-modify-writes of several CPUs, and a call that
            // finds nothing writes the word as it was.
            #[cfg(firstlight_loom)]
            word.swap(bits, Ordering::Release);
            #[cfg(not(firstlight_loom))]
            word.store(bits, Ordering::Release);
        }
    }

    /// Sets these pages.
    pub(crate) fn set(&self, pages: Pages) {
        let end = pages.at + pages.count;
        let mut at = pages.at;
        while at < end {
            let (bits, next) = first_word(at, end);
            self.word(at).fetch_or(bits, Ordering::Release);
            at = next;
        }
    }
}

// ---- Looking ---------------------------------------------------------------

impl Bitmap {
    /// Whether every page is allocated, in the order of all changes.
    pub(crate) fn is_full(&self) -> bool {
        for index in 0..BITMAP_WORDS {
            if recheck_u64(&self.0[index]) != !0 {
                return false;
            }
        }
        true
    }

    /// Whether every page is free, in the order of all changes.
    pub(crate) fn is_empty(&self) -> bool {
        for index in 0..BITMAP_WORDS {
            if recheck_u64(&self.0[index]) != 0 {
                return false;
            }
        }
        true
    }

    /// No less than the order of the largest free block, in the order of all changes; `None`
    /// if nothing is free.
    pub(crate) fn max_order(&self) -> Option<u8> {
        // One more than the largest order so far.
        let mut beyond = 0;
        for index in 0..BITMAP_WORDS {
            let word = recheck_u64(&self.0[index]);
            let here = match max_order_of(word) {
                Some(order) => order + 1,
                None => 0,
            };
            if here > beyond {
                beyond = here;
            }
        }
        if beyond == 0 {
            return None;
        }
        let mut order = beyond - 1;
        if order == LARGEST_PAGES {
            // A clear word, perhaps of a larger block.
            while order > WORD_ORDER && !self.has_block(order) {
                order -= 1;
            }
        }
        Some(order)
    }

    /// Whether an aligned block of 2^`order` clear pages is seen.
    pub(crate) fn has_block(&self, order: u8) -> bool {
        if order > WORD_ORDER {
            let count = 1 << order;
            let mut at = 0;
            while at < HUGE_FRAMES {
                if self.all_are(Pages { at, count }, false) {
                    return true;
                }
                at += count;
            }
            return false;
        }
        for index in 0..BITMAP_WORDS {
            let word = self.0[index].load(Ordering::Acquire);
            if find_block(word, order).is_some() {
                return true;
            }
        }
        false
    }

    /// Number of free pages, in the order of all changes.
    pub(crate) fn count_free(&self) -> u32 {
        let mut free = 0;
        for index in 0..BITMAP_WORDS {
            let word = recheck_u64(&self.0[index]);
            free += (!word).count_ones();
        }
        free
    }

    /// Whether all of these pages are allocated.
    pub(crate) fn all_set(&self, pages: Pages) -> bool {
        self.all_are(pages, true)
    }

    /// Whether all of these pages are allocated, or all free.
    fn all_are(&self, pages: Pages, allocated: bool) -> bool {
        let end = pages.at + pages.count;
        let mut at = pages.at;
        while at < end {
            let (bits, next) = first_word(at, end);
            let wanted = if allocated { bits } else { 0 };
            if self.word_at(at) & bits != wanted {
                return false;
            }
            at = next;
        }
        true
    }

    /// Whether page `at` is allocated.
    #[inline]
    pub(crate) fn is_set(&self, at: u32) -> bool {
        let word = self.word_at(at);
        word >> (at % 64) & 1 != 0
    }

    /// The 64 pages around `at`, one bit each, set while allocated.
    #[inline]
    pub(crate) fn word_at(&self, at: u32) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, page: u32) -> &AtomicU64 {
        &self.0[(page / 64) as usize % BITMAP_WORDS]
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    fn block(at: u32, order: u8) -> Pages {
        let count = 1 << order;
        Pages { at, count }
    }

    #[test]
    fn finds_aligned_blocks_only() {
        assert_eq!(find_block(0, 6), Some(0));
        assert_eq!(find_block(1, 6), None);
        assert_eq!(find_block(1, 0), Some(1));
        assert_eq!(find_block(1, 1), Some(2));
        assert_eq!(find_block(!0b0110, 1), None); // two clear bits, not aligned
        assert_eq!(find_block(!0, 0), None);
    }

    #[test]
    fn giving_back_anything_free_changes_nothing() {
        let bitmap = Bitmap::new(!0);
        let given = bitmap.give(block(64, 6)).unwrap();
        assert_eq!(
            (given.max_order_from(0), given.is_word_empty()),
            (LARGEST_PAGES, true)
        );
        assert_eq!(
            bitmap.give(block(0, LARGEST_PAGES)),
            Err(NotSet { given: 0 })
        );
        assert_eq!(bitmap.give(block(64, 0)), Err(NotSet { given: 0 }));
        assert_eq!(bitmap.count_free(), 64);
    }

    #[test]
    fn giving_back_says_how_large_a_block_came_to_be() {
        let bitmap = Bitmap::new(!0);
        let order = |given: Given| given.max_order_from(0);
        assert_eq!(bitmap.give(block(2, 0)).map(order), Ok(0));
        assert_eq!(bitmap.give(block(1, 0)).map(order), Ok(0)); // side by side, but not aligned
        assert_eq!(bitmap.give(block(3, 0)).map(order), Ok(1));
        assert_eq!(bitmap.give(block(0, 0)).map(order), Ok(2));
        assert_eq!(bitmap.give(block(32, 5)).map(order), Ok(5));
        let some = |bits| {
            let (given, what) = bitmap.give_some(0, bits);
            (given, what.max_order_from(0))
        };
        assert_eq!(some(0xfff0), (0xfff0, 5));
        assert_eq!(some(0x1_0008), (0x1_0000, 5));
        assert_eq!(bitmap.max_order(), Some(5));
        assert_eq!(some(0xfffe_0000).1, LARGEST_PAGES);
    }

    #[test]
    fn rows_end_inside_words_and_leave_the_rest_alone() {
        let bitmap = Bitmap::new(0);
        let row = |at, count| Pages { at, count };
        let taken = |at, filled| TakenAt {
            at,
            filled,
            undone: false,
        };
        assert_eq!(bitmap.take_any(5, 21), Ok(taken(0, false)));
        assert_eq!(bitmap.take_any(7, 100), Ok(taken(128, false)));
        assert_eq!(bitmap.take_any(7, 128), Ok(taken(256, true)));
        let all = HUGE_FRAMES;
        // What is behind a row is free, and taken with what follows.
        assert_eq!(bitmap.take_at(row(228, 28)), Ok(taken(228, true)));
        assert_eq!(bitmap.take_page(), Ok(taken(21, false)));
        assert_eq!(bitmap.count_free(), all - 21 - 100 - 128 - 28 - 1);
        for bad in [row(20, 3), row(100, 50), row(370, 30), row(0, all)] {
            assert_eq!(bitmap.give(bad), Err(NotSet { given: 0 }));
        }
        assert!(bitmap.take_at(row(120, 10)).is_err());
        let given = bitmap.give(row(130, 70)).unwrap();
        assert_eq!(
            (given.max_order_from(0), given.is_word_empty()),
            (LARGEST_PAGES, false)
        );
        let given = bitmap.give(row(17, 4)).unwrap();
        assert_eq!(given.max_order_from(0), 5);
        assert!(bitmap.give(row(128, 2)).is_ok() && bitmap.give(row(200, 184)).is_ok());
        assert!(bitmap.give(row(21, 1)).is_ok() && bitmap.give(row(0, 17)).is_ok());
        assert!(bitmap.is_empty());
    }

    #[test]
    fn takes_what_is_there() {
        let bitmap = Bitmap::new(!0b1011_0100);
        assert_eq!(bitmap.take_some(0, 2), (0b0001_0100, false));
        assert_eq!(bitmap.take_some(0, 64), (0b1010_0000, true));
        assert_eq!(bitmap.take_some(0, 64), (0, false));
    }

    #[test]
    fn writing_crosses_words() {
        let bitmap = Bitmap::new(0xa5);
        bitmap.write(false, Pages { at: 60, count: 10 });
        assert_eq!(bitmap.count_free(), 10);
        assert!(bitmap.is_set(59) && !bitmap.is_set(60));
        assert!(!bitmap.is_set(69) && bitmap.is_set(70));
        bitmap.set(Pages::ALL);
        assert!(bitmap.is_full() && bitmap.max_order().is_none());
    }

    #[test]
    fn large_blocks_undo_on_conflict() {
        let bitmap = Bitmap::new(0);
        // In the first half, but not in its first half.
        assert!(bitmap.take_at(block(HUGE_FRAMES / 4 + 72, 0)).is_ok());
        assert!(bitmap.take_at(block(0, LARGEST_PAGES)).is_err());
        assert_eq!(bitmap.count_free(), HUGE_FRAMES - 1);
        let take = |order| bitmap.take_any(order, 1 << order).map(|taken| taken.at);
        assert_eq!(take(LARGEST_PAGES), Ok(HUGE_FRAMES / 2));
        assert_eq!(take(LARGEST_PAGES - 1), Ok(0));
        assert_eq!(take(LARGEST_PAGES - 1), Err(NoBlock { undone: false }));
        assert!(!bitmap.take_all());
    }
}
