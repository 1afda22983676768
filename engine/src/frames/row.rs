//! The bitmap of a huge frame: one bit a page, set while it is allocated.
//!
//! A row never decides whether a page *may* be taken: the count in the
//! [`Huge`](super::word::Huge) word does. Whoever took pages off that count
//! finds as many clear bits here. Blocks up to 64 pages are one atomic
//! operation; larger ones take whole words and undo on conflict.

use super::geometry::{HUGE_FRAMES, ROW_WORDS};
use super::word::LARGEST_RUN;
use crate::sync::{AtomicU64, Ordering};

/// One bit a page of a huge frame, in ascending order.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Row([AtomicU64; ROW_WORDS]);

/// Pages of a block were not in the state the operation needs.
///
/// `released` is 0 unless another CPU wrongly releases the same pages at the
/// same time. On release it says how many were released before that was seen;
/// on a claim, how many of those taken the other CPU released before they were
/// put back, and so has counted as free already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) released: u32,
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

/// The lowest `count` of the bits set in `word`.
fn lowest(word: u64, count: u32) -> u64 {
    if word.count_ones() <= count {
        return word;
    }
    let (mut left, mut taken) = (word, 0);
    for _ in 0..count {
        taken |= left & left.wrapping_neg();
        left &= left - 1;
    }
    taken
}

/// First aligned run of 2^`order` clear bits in `word`.
fn find_run(word: u64, order: u8) -> Option<u32> {
    let mut clear = !word;
    let mut run = 1;
    for _ in 0..order {
        clear &= clear >> run;
        run *= 2;
    }
    clear &= STARTS[usize::from(order)];
    (clear != 0).then(|| clear.trailing_zeros())
}

/// No less than the order of the largest block of clear bits that holds page `at`
/// of a word, which starts a clear block of `order`. A clear word may be part of
/// any larger block.
#[inline]
fn run_around(word: u64, at: u32, order: u8) -> u8 {
    let mut run = order;
    while run < 6 {
        let pages = 2 << run;
        let block = word >> (at & !(pages - 1));
        if block << (64 - pages) != 0 {
            return run;
        }
        run += 1;
    }
    LARGEST_RUN
}

/// No less than the order of the largest block of clear bits in a word; `None` if all are set.
fn largest_run(word: u64) -> Option<u8> {
    if word == 0 {
        return Some(LARGEST_RUN);
    }
    let mut clear = !word;
    let mut largest = None;
    for (order, starts) in (0u8..6).zip(STARTS) {
        clear &= starts;
        if clear == 0 {
            break;
        }
        largest = Some(order);
        clear &= clear >> (1 << order);
    }
    largest
}

impl Row {
    /// Every bit as given.
    #[cfg(test)]
    pub(crate) fn new(fill: u64) -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(fill)))
    }

    /// Writes the whole row: all pages `allocated` or not, those in `at..at + count` the opposite.
    /// Only for the CPU that owns the row while its huge frame is splitting.
    pub(crate) fn fill(&self, allocated: bool, at: u32, count: u32) {
        for (index, word) in (0u32..).zip(&self.0) {
            let low = index * 64;
            let from = at.clamp(low, low + 64) - low;
            let to = (at + count).clamp(low, low + 64) - low;
            let inside = if from < to { mask(from, to - from) } else { 0 };
            // Relaxed: published by the Release store of the huge word.
            word.store(if allocated { !inside } else { inside }, Ordering::Relaxed);
        }
    }

    /// Sets or clears the pages `at..at + count`. Only while the row is owned.
    pub(crate) fn paint(&self, allocated: bool, at: u32, count: u32) {
        for (index, word) in (0u32..).zip(&self.0) {
            let low = index * 64;
            let from = at.clamp(low, low + 64) - low;
            let to = (at + count).clamp(low, low + 64) - low;
            if from < to {
                let inside = mask(from, to - from);
                let old = word.load(Ordering::Relaxed);
                let new = if allocated {
                    old | inside
                } else {
                    old & !inside
                };
                word.store(new, Ordering::Relaxed);
            }
        }
    }

    /// Whether an aligned block of 2^`order` clear pages is seen.
    pub(crate) fn has_run(&self, order: u8) -> bool {
        if order > 6 {
            return (0..HUGE_FRAMES)
                .step_by(1 << order)
                .any(|at| !self.any_set(at, order));
        }
        let mut words = self.0.iter().map(|word| word.load(Ordering::Relaxed));
        words.any(|word| find_run(word, order).is_some())
    }

    /// Takes any aligned block of 2^`order` pages, if one is seen.
    pub(crate) fn claim_any(&self, order: u8) -> Result<u32, Conflict> {
        let mut released = 0;
        if order > 6 {
            for at in (0..HUGE_FRAMES).step_by(1 << order) {
                match self.claim_words(at, order) {
                    Ok(()) if released == 0 => return Ok(at),
                    // Too few promises are left for all of it.
                    Ok(()) => released += self.let_go((at..at + (1 << order)).step_by(64)),
                    Err(conflict) => released += conflict.released,
                }
            }
            return Err(Conflict { released });
        }
        for (index, word) in (0u32..).zip(&self.0) {
            let mut seen = word.load(Ordering::Relaxed);
            while let Some(at) = find_run(seen, order) {
                match word.compare_exchange_weak(
                    seen,
                    seen | mask(at, 1 << order),
                    // Acquire: pairs with the Release in `release`, so that what
                    // the last owner wrote into the page comes before.
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Ok(index * 64 + at),
                    Err(now) => seen = now,
                }
            }
        }
        Err(Conflict { released })
    }

    /// Takes the pages from `at` on, which must all be clear.
    pub(crate) fn claim(&self, at: u32, order: u8) -> Result<(), Conflict> {
        if order > 6 {
            return self.claim_words(at, order);
        }
        let bits = mask(at % 64, 1 << order);
        self.word(at)
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
                (word & bits == 0).then_some(word | bits)
            })
            .map(drop)
            .map_err(|_| Conflict { released: 0 })
    }

    /// Gives back the pages from `at` on, which must all be set. Says how large a
    /// block they are now part of, at most.
    #[inline]
    pub(crate) fn release(&self, at: u32, order: u8) -> Result<u8, Conflict> {
        if order <= 6 {
            let (word, bits) = (self.word(at), mask(at % 64, 1 << order));
            let mut old = word.load(Ordering::Relaxed);
            while old & bits == bits {
                let new = old & !bits;
                match word.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return Ok(run_around(new, at % 64, order)),
                    Err(now) => old = now,
                }
            }
            return Err(Conflict { released: 0 });
        }
        self.release_words(at, order)
    }

    fn release_words(&self, at: u32, order: u8) -> Result<u8, Conflict> {
        // Look first, so that an error leaves everything as it was.
        let words = || (at..at + (1 << order)).step_by(64);
        if words().any(|at| self.word(at).load(Ordering::Relaxed) != !0) {
            return Err(Conflict { released: 0 });
        }
        for (released, at) in (0u32..).zip(words()) {
            if !swap(self.word(at), !0, 0, Ordering::Release) {
                return Err(Conflict {
                    released: released * 64,
                });
            }
        }
        Ok(LARGEST_RUN)
    }

    /// Takes as many pages of word `index` as are free and wanted, `most` at most.
    /// The bits it got are the caller's.
    pub(crate) fn claim_some(&self, index: usize, most: u32) -> u64 {
        let word = &self.0[index];
        let free = !word.load(Ordering::Relaxed);
        let wanted = lowest(free, most);
        if wanted == 0 {
            return 0;
        }
        // Acquire: as in `claim_any`. Release: who finds them taken sees what this CPU is
        // about to hold.
        wanted & !word.fetch_or(wanted, Ordering::AcqRel)
    }

    /// Gives back those pages of word `index` whose bits are set in `bits`. Says which
    /// of them were allocated, and how large a block there may be now.
    pub(crate) fn release_some(&self, index: usize, bits: u64) -> (u64, u8) {
        let old = self.0[index].fetch_and(!bits, Ordering::Release);
        let run = if bits.is_power_of_two() {
            run_around(old & !bits, bits.trailing_zeros(), 0)
        } else {
            largest_run(old & !bits).unwrap_or(0)
        };
        (old & bits, run)
    }

    /// No less than the order of the largest block that is free.
    pub(crate) fn largest_run(&self) -> u8 {
        let words = self.0.iter().map(|word| word.load(Ordering::Relaxed));
        match words.filter_map(largest_run).max() {
            // A clear word, perhaps of a larger block.
            Some(LARGEST_RUN) => {
                let mut larger = (7..=LARGEST_RUN).rev();
                larger.find(|&order| self.has_run(order)).unwrap_or(6)
            }
            run => run.unwrap_or(0),
        }
    }

    /// Number of free pages.
    pub(crate) fn count_free(&self) -> u32 {
        self.0
            .iter()
            .map(|word| word.load(Ordering::Relaxed).count_zeros())
            .sum()
    }

    /// Whether any of the pages from `at` on is allocated.
    pub(crate) fn any_set(&self, at: u32, order: u8) -> bool {
        if order > 6 {
            return (at..at + (1 << order))
                .step_by(64)
                .any(|at| self.word(at).load(Ordering::Relaxed) != 0);
        }
        self.word(at).load(Ordering::Relaxed) & mask(at % 64, 1 << order) != 0
    }

    /// Whether all of the pages from `at` on are allocated.
    pub(crate) fn all_set(&self, at: u32, order: u8) -> bool {
        if order > 6 {
            return (at..at + (1 << order))
                .step_by(64)
                .all(|at| self.word(at).load(Ordering::Relaxed) == !0);
        }
        let bits = mask(at % 64, 1 << order);
        self.word(at).load(Ordering::Relaxed) & bits == bits
    }

    /// Whether page `at` is allocated.
    #[inline]
    pub(crate) fn is_set(&self, at: u32) -> bool {
        self.word(at).load(Ordering::Relaxed) >> (at % 64) & 1 != 0
    }

    /// The 64 pages around `at`, one bit each, set while allocated.
    pub(crate) fn bits(&self, at: u32) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    #[inline]
    fn word(&self, page: u32) -> &AtomicU64 {
        &self.0[(page / 64) as usize]
    }

    fn claim_words(&self, at: u32, order: u8) -> Result<(), Conflict> {
        let words = (at..at + (1 << order)).step_by(64);
        // Look first, so that pages nobody can get are not touched.
        if words
            .clone()
            .any(|at| self.word(at).load(Ordering::Relaxed) != 0)
        {
            return Err(Conflict { released: 0 });
        }
        for taken in words.clone() {
            if !swap(self.word(taken), 0, !0, Ordering::Acquire) {
                return Err(Conflict {
                    released: self.let_go(words.take_while(|&word| word < taken)),
                });
            }
        }
        Ok(())
    }

    /// Undoes the taking of whole words. Says how many of their pages another CPU wrongly
    /// released meanwhile, and so has counted as free already.
    fn let_go(&self, words: impl Iterator<Item = u32>) -> u32 {
        let back = words.map(|word| self.word(word).swap(0, Ordering::Release));
        back.map(u64::count_zeros).sum()
    }
}

/// Compare-and-swap that says whether it did.
fn swap(word: &AtomicU64, from: u64, to: u64, success: Ordering) -> bool {
    word.compare_exchange(from, to, success, Ordering::Relaxed)
        .is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_aligned_runs_only() {
        assert_eq!(find_run(0, 6), Some(0));
        assert_eq!(find_run(1, 6), None);
        assert_eq!(find_run(1, 0), Some(1));
        assert_eq!(find_run(1, 1), Some(2));
        assert_eq!(find_run(!0b0110, 1), None); // two clear bits, not aligned
        assert_eq!(find_run(!0, 0), None);
    }

    #[test]
    fn release_of_anything_free_changes_nothing() {
        let row = Row::new(!0);
        assert_eq!(row.release(64, 6), Ok(LARGEST_RUN));
        assert_eq!(row.release(0, 8), Err(Conflict { released: 0 }));
        assert_eq!(row.release(64, 0), Err(Conflict { released: 0 }));
        assert_eq!(row.count_free(), 64);
    }

    #[test]
    fn release_says_how_large_a_block_came_to_be() {
        let row = Row::new(!0);
        assert_eq!(row.release(2, 0), Ok(0));
        assert_eq!(row.release(1, 0), Ok(0)); // side by side, but not aligned
        assert_eq!(row.release(3, 0), Ok(1));
        assert_eq!(row.release(0, 0), Ok(2));
        assert_eq!(row.release(32, 5), Ok(5));
        assert_eq!(row.release_some(0, 0xfff0), (0xfff0, 5));
        assert_eq!(row.release_some(0, 0x1_0008), (0x1_0000, 5));
        assert_eq!(row.largest_run(), 5);
        assert_eq!(row.release_some(0, 0xfffe_0000).1, LARGEST_RUN);
    }

    #[test]
    fn takes_what_is_there() {
        let row = Row::new(!0b1011_0100);
        assert_eq!(row.claim_some(0, 2), 0b0001_0100);
        assert_eq!(row.claim_some(0, 64), 0b1010_0000);
        assert_eq!(row.claim_some(0, 64), 0);
    }

    #[test]
    fn fill_and_paint_cross_words() {
        let row = Row::new(0xa5);
        row.fill(true, 60, 10);
        assert_eq!(row.count_free(), 10);
        assert!(row.is_set(59) && !row.is_set(60) && !row.is_set(69) && row.is_set(70));
        row.paint(true, 0, 512);
        assert_eq!(row.count_free(), 0);
    }

    #[test]
    fn large_claims_undo_on_conflict() {
        let row = Row::new(0);
        assert_eq!(row.claim(200, 0), Ok(()));
        assert!(row.claim(0, 8).is_err());
        assert_eq!(row.count_free(), 511);
        assert_eq!(row.claim_any(8), Ok(256));
        assert_eq!(row.claim_any(7), Ok(0));
        assert_eq!(row.claim_any(7), Err(Conflict { released: 0 }));
    }
}
