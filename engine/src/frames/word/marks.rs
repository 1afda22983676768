//! The second bitmap of a huge frame: one bit a page, set where it is free and its content known.
//!
//! *Only the owner of a page changes its bit.* A bit is set before the page is given back, and
//! cleared after it is taken, so the bitmap of what is allocated orders all changes. What a set
//! bit stands for, the huge word says; until that says so, nothing here was written.

use super::bitmap::{Bitmap, find_block};
use super::geometry::{BITMAP_WORDS, HUGE_FRAMES};
use crate::sync::Ordering;

/// One bit a page of a huge frame, in ascending order, kept as another bitmap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'m>(pub(crate) &'m Bitmap);

/// The words that a block of `1 << order` pages lies in, each with the bits of the block.
fn words(at: u32, order: u8) -> impl Iterator<Item = (usize, u64)> {
    let (first, count) = (at / 64, 1u32 << order);
    let bits = if count >= 64 {
        !0
    } else {
        ((1 << count) - 1) << (at % 64)
    };
    (first..first + count.div_ceil(64)).map(move |word| (word as usize % BITMAP_WORDS, bits))
}

impl Marks<'_> {
    /// Writes all bits: those of the pages `at..at + count` as `inside` says, the others the
    /// opposite. Before any page can be taken that is marked.
    pub(crate) fn write(&self, inside: bool, at: u32, count: u32) {
        for (low, word) in (0..HUGE_FRAMES).step_by(64).zip(&self.0.0) {
            let bits = (0..64).filter(|bit| (at..at + count).contains(&(low + bit)));
            let bits = bits.fold(0u64, |bits, bit| bits | 1 << bit);
            word.store(if inside { bits } else { !bits }, Ordering::Relaxed);
        }
    }

    /// Clears the marks of pages that are not free, before any can be taken.
    pub(crate) fn keep_free(&self, bitmap: &Bitmap) {
        for (low, word) in (0..HUGE_FRAMES).step_by(64).zip(&self.0.0) {
            word.fetch_and(!bitmap.word_at(low), Ordering::Relaxed);
        }
    }

    /// Clears all bits. Beside calls that set some, which may be lost.
    pub(crate) fn clear(&self) {
        self.0
            .0
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Marks a block, before it is given back.
    pub(crate) fn set_block(&self, at: u32, order: u8) {
        for (word, bits) in words(at, order) {
            self.0.0[word].fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Clears the marks of a block that was taken; `note` is called with each word and which of
    /// its bits were set.
    pub(crate) fn clear_block(&self, at: u32, order: u8, mut note: impl FnMut(usize, u64)) {
        for (word, bits) in words(at, order) {
            note(word, self.clear_some(word, bits));
        }
    }

    /// Clears some bits of a word; which of them were set.
    pub(crate) fn clear_some(&self, word: usize, bits: u64) -> u64 {
        self.0.0[word].fetch_and(!bits, Ordering::Relaxed) & bits
    }

    /// The marks of 64 pages.
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.0.0[word].load(Ordering::Relaxed)
    }

    /// The marks of 64 pages that are free by this bitmap: not a worker's.
    fn free(&self, word: usize, bitmap: &Bitmap) -> u64 {
        self.word(word) & !bitmap.0[word].load(Ordering::Relaxed)
    }

    /// An aligned block of `1 << order` marked pages that are free by this bitmap.
    pub(crate) fn find_block(&self, order: u8, bitmap: &Bitmap) -> Option<u32> {
        if order > 6 {
            let mut starts = (0..HUGE_FRAMES).step_by(1 << order);
            let is_free = |(word, _)| self.free(word, bitmap) == !0;
            return starts.find(|&at| words(at, order).all(is_free));
        }
        (0..HUGE_FRAMES).step_by(64).find_map(|low| {
            let word = self.free((low / 64) as usize, bitmap);
            Some(low + find_block(!word, order)?)
        })
    }

    /// Whether all pages of a block are marked, or none is.
    pub(crate) fn is_all(&self, at: u32, order: u8, marked: bool) -> bool {
        words(at, order).all(|(word, bits)| {
            let seen = self.word(word) & bits;
            seen == if marked { bits } else { 0 }
        })
    }

    /// Whether every page is marked.
    pub(crate) fn is_full(&self) -> bool {
        (0..BITMAP_WORDS).all(|word| self.word(word) == !0)
    }

    /// Number of marked pages that are free by this bitmap.
    pub(crate) fn count_free(&self, bitmap: &Bitmap) -> u32 {
        let words = 0..BITMAP_WORDS;
        words.map(|word| self.free(word, bitmap).count_ones()).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_block_are_set_and_cleared_by_themselves() {
        let (bitmap, free) = (Bitmap::new(!0), Bitmap::new(0));
        let marks = Marks(&bitmap);
        marks.write(false, 60, 10);
        assert_eq!(marks.count_free(&free), 502);
        assert_eq!((marks.word(0) >> 60, marks.word(1) & 0x3ff), (0, 0x3c0));
        marks.set_block(60, 2);
        marks.set_block(64, 6);
        assert!(marks.is_full());
        marks.clear_block(0, 0, |_, _| {});
        let found = [0, 3, 6, 7, 8].map(|order| marks.find_block(order, &free));
        assert_eq!(found, [1, 8, 64, 128, 256].map(Some));
        marks.set_block(0, 0);
        let mut cleared = 0;
        marks.clear_block(256, 8, |_, bits| cleared += bits.count_ones());
        marks.clear_block(2, 1, |word, bits| assert_eq!((word, bits), (0, 0b1100)));
        assert_eq!((cleared, marks.count_free(&free)), (256, 254));
        assert_eq!(marks.clear_some(0, 0b110), 0b10);
        marks.clear();
        assert_eq!(marks.count_free(&free), 0);
        marks.write(true, 3, 2);
        assert_eq!(marks.word(0), 0b11000);
    }
}
