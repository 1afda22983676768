//! Which frames are allocated, as the clients of an allocator see it: one bit each.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ostd::boot::boot_info;
use ostd::mm::PAGE_SIZE;

/// Frames that have an owner.
pub struct Owners(Box<[AtomicU64]>);

impl Owners {
    /// None of all frames of the machine has one.
    pub fn none() -> Self {
        let end = boot_info().memory_regions.iter().map(|region| region.end());
        let words = (end.max().unwrap_or(0) / PAGE_SIZE).div_ceil(64);
        let all: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self(all.into())
    }

    /// Whether all frames of the range are memory and had no owner; they have one now.
    pub fn take(&self, range: Range<usize>) -> bool {
        let mut bits = bits(range);
        bits.all(|(word, mask)| {
            self.0
                .get(word)
                .is_some_and(|word| word.fetch_or(mask, Relaxed) & mask == 0)
        })
    }

    /// Whether all frames of the range had an owner; they have none now.
    pub fn give(&self, range: Range<usize>) -> bool {
        let mut bits = bits(range);
        bits.all(|(word, mask)| {
            self.0
                .get(word)
                .is_some_and(|word| word.fetch_and(!mask, Relaxed) & mask == mask)
        })
    }

    /// Calls `free` with the first byte of each frame that has an owner; it has none then.
    pub fn take_all(&self, mut free: impl FnMut(usize)) {
        for (index, word) in self.0.iter().enumerate() {
            let mut bits = word.swap(0, Relaxed);
            while bits != 0 {
                free((index * 64 + bits.trailing_zeros() as usize) * PAGE_SIZE);
                bits &= bits - 1;
            }
        }
    }
}

/// The words of a range of bytes, and its bits in each.
fn bits(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (range.start / PAGE_SIZE, range.end / PAGE_SIZE);
    (start / 64..end.div_ceil(64)).map(move |word| {
        let (from, to) = (start.max(word * 64), end.min(word * 64 + 64));
        (word, u64::MAX >> (64 - (to - from)) << (from % 64))
    })
}
