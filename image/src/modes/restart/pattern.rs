//! What guests' memory holds: each page numbers that follow from its address, so that a page
//! that is stale, swapped or overwritten is found.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Order, PAGE_BYTES, PAGE_SHIFT, PhysRange};

use crate::processors::Processors;

/// Work of a CPU at a time; ranges are whole multiples of it.
const CHUNK_BYTES: u64 = Order::HUGE.bytes();
/// Numbers of a page.
const WORDS: usize = (1 << PAGE_SHIFT) / 8;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The first number of a page.
const fn seed(page: u64) -> u64 {
    (page ^ STEP).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Writes a page.
///
/// # Safety
/// It is mapped memory that the caller has for itself.
unsafe fn write(page: u64) {
    // SAFETY: the caller's promise; any numbers are valid.
    let words = unsafe { core::slice::from_raw_parts_mut(page as *mut u64, WORDS) };
    let mut value = seed(page);
    for word in words {
        *word = value;
        value = value.wrapping_add(STEP);
    }
}

/// Whether a page holds what [`write`] wrote.
///
/// # Safety
/// As for [`write`].
unsafe fn is_right(page: u64) -> bool {
    // SAFETY: as above.
    let words = unsafe { core::slice::from_raw_parts(page as *const u64, WORDS) };
    let mut value = seed(page);
    let mut wrong = 0;
    for word in words {
        wrong |= word ^ value;
        value = value.wrapping_add(STEP);
    }
    wrong == 0
}

/// The `number`th chunk of `ranges`.
fn chunk(ranges: impl Iterator<Item = PhysRange>, number: u64) -> Option<u64> {
    let mut left = number;
    for range in ranges {
        let chunks = range.bytes() / CHUNK_BYTES;
        if left < chunks {
            return Some(range.start().get() + left * CHUNK_BYTES);
        }
        left -= chunks;
    }
    None
}

/// Calls `each` with the pages of all `ranges`, one in `every` bytes, on all CPUs.
fn pages(
    ranges: impl Iterator<Item = PhysRange> + Clone + Sync,
    every: Option<u64>,
    processors: &mut Processors,
    each: &(dyn Fn(u64) + Sync),
) {
    let next = AtomicU64::new(0);
    let step = every.unwrap_or(PAGE_BYTES);
    processors.run_all(&|_| {
        while let Some(start) = chunk(ranges.clone(), next.fetch_add(1, Relaxed)) {
            // From multiples of `step`, so that both kernels choose the same pages.
            let mut page = start.next_multiple_of(step);
            while page < start + CHUNK_BYTES {
                each(page);
                page += step;
            }
        }
    });
}

/// Writes `ranges`.
///
/// # Safety
/// They are mapped memory that the caller has for itself.
pub(super) unsafe fn fill(
    ranges: impl Iterator<Item = PhysRange> + Clone + Sync,
    every: Option<u64>,
    processors: &mut Processors,
) {
    // SAFETY: the caller's promise; each page is written by one CPU.
    pages(ranges, every, processors, &|page| unsafe { write(page) });
}

/// Reads `ranges`; bytes read, and pages that were not as they were written.
///
/// # Safety
/// As for [`fill`].
pub(super) unsafe fn check(
    ranges: impl Iterator<Item = PhysRange> + Clone + Sync,
    every: Option<u64>,
    processors: &mut Processors,
) -> (u64, u64) {
    let (read, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    pages(ranges, every, processors, &|page| {
        read.fetch_add(PAGE_BYTES, Relaxed);
        // SAFETY: the caller's promise.
        if !unsafe { is_right(page) } {
            wrong.fetch_add(1, Relaxed);
        }
    });
    (read.into_inner(), wrong.into_inner())
}
