//! The steps by which huge frames pass between the two words that say who has them.
//!
//! The word of a giant frame counts how many of its huge frames can be had, the word of a huge
//! frame says whether it can. *Taken from the parent down, given back from the child up*: the
//! count is lowered before the word says taken, and raised after the word says free. So there are
//! never fewer free words than are counted, and all that is counted is there in the one step
//! that makes the count complete: then the giant frame is free as one block.
//!
//! What is below one block is written, if it has to be, between [`begin_opening`] and
//! [`end_opening`], by the one call that began it.

use super::giant::{Change, Giant};
use super::huge::Huge;
use super::mobility::Mobility;
use crate::sync::{AtomicU32, AtomicU64, Ordering, swap_u32, swap_u64, update_u64};

/// What became of a huge frame that was to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// It is the caller's.
    Taken,
    /// The giant frame did not allow it.
    Refused,
    /// Another CPU was faster: for a moment one fewer was counted than was free.
    Undone,
}

// ---- The word of a giant frame ----------------------------------------------

/// The word of a giant frame now.
#[inline]
pub(crate) fn giant(word: &AtomicU64) -> Giant {
    let bits = word.load(Ordering::Acquire);
    Giant::of_bits(bits)
}

/// Takes a giant frame that is one block, or gives it back; `false` if its word is not `from`.
#[inline]
pub(crate) fn swap_giant(word: &AtomicU64, from: Giant, to: Giant) -> bool {
    swap_u64(word, from.bits(), to.bits())
}

/// Changes the counts of a split giant frame, or says which word did not allow it. It may merge by that.
#[inline]
pub(crate) fn adjust(word: &AtomicU64, by: Change) -> Result<(), Giant> {
    let adjusted = update_u64(word, |word| {
        let now = Giant::of_bits(word).changed(by)?;
        Some(now.bits())
    });
    match adjusted {
        Ok(_) => Ok(()),
        Err(bits) => Err(Giant::of_bits(bits)),
    }
}

/// Reserves `count` free huge frames of a split giant frame; whether it had so many.
#[inline]
pub(crate) fn lower_free(word: &AtomicU64, count: u32) -> bool {
    let lowered = update_u64(word, |word| {
        let now = Giant::of_bits(word).lowered_free(count)?;
        Some(now.bits())
    });
    lowered.is_ok()
}

/// Raises the count of free huge frames in one step that never fails, and merges.
#[inline]
pub(crate) fn raise_free(word: &AtomicU64, count: u32) {
    let raise = Giant::raise_of_free(count);
    let old = word.fetch_add(raise, Ordering::SeqCst);
    let new = old.wrapping_add(raise);
    if Giant::of_bits(new).is_complete() {
        merge_if_complete(word);
    }
}

/// Makes a giant frame free as one block if all below is.
pub(crate) fn merge_if_complete(word: &AtomicU64) {
    // An error: it is not complete any more.
    let _ = update_u64(word, |word| {
        let seen = Giant::of_bits(word);
        if seen.is_complete() {
            Some(seen.merged().bits())
        } else {
            None
        }
    });
}

/// Raises the bound of a split giant frame on the free blocks of a mobility.
pub(crate) fn raise_bound(word: &AtomicU64, mobility: Mobility, max_order: u8) {
    // An error: it is one block, or opening; then it has no bound.
    let _ = update_u64(word, |word| {
        let seen = Giant::of_bits(word);
        if seen.is_split() {
            Some(seen.bounded_from(mobility, max_order).bits())
        } else {
            None
        }
    });
}

/// Lowers it.
pub(crate) fn lower_bound(word: &AtomicU64, mobility: Mobility, max_order: u8) {
    let _ = update_u64(word, |word| {
        let seen = Giant::of_bits(word);
        if seen.is_split() {
            Some(seen.bounded_to(mobility, max_order).bits())
        } else {
            None
        }
    });
}

/// Begins to open a giant frame that is one block; `false` if its word is not `from`.
#[inline]
pub(crate) fn begin_opening(word: &AtomicU64, from: Giant) -> bool {
    swap_u64(word, from.bits(), from.opening().bits())
}

/// Ends the opening of a giant frame that was `from`, with so many free huge frames.
#[inline]
pub(crate) fn end_opening(word: &AtomicU64, from: Giant, free: u32) {
    // Not a store: a huge frame below may be given back and counted from the moment its
    // word is written. Release: the words come before.
    let (opening, opened) = (from.opening().bits(), from.opened_with(free).bits());
    let change = opened.wrapping_sub(opening);
    word.fetch_add(change, Ordering::SeqCst);
}

// ---- The word of a huge frame -----------------------------------------------

/// Changes the word of a huge frame; `false` if it is not `from`.
#[inline]
pub(crate) fn swap_huge(word: &AtomicU32, from: Huge, to: Huge) -> bool {
    swap_u32(word, from.bits(), to.bits())
}

/// Writes the word of a huge frame while its giant frame is opened.
#[inline]
pub(crate) fn write_huge(word: &AtomicU32, to: Huge) {
    // Release: what was written below comes before.
    word.store(to.bits(), Ordering::Release);
}

/// Gives back a huge frame, leaving its count to the caller; `false` if it is anything but allocated as one, or
/// some of it is pinned.
#[inline]
pub(crate) fn give_huge(word: &AtomicU32) -> bool {
    let seen = Huge::of_bits(word.load(Ordering::Acquire));
    seen.is_allocated() && swap_huge(word, seen, Huge::FREE)
}

// ---- Both -------------------------------------------------------------------

/// Takes a free huge frame, found as `seen`, of unknown content: the count first, then its word.
#[inline]
pub(crate) fn take_huge(giant: &AtomicU64, huge: &AtomicU32, seen: Huge, to: Huge) -> Take {
    if !lower_free(giant, 1) {
        return Take::Refused;
    }
    if swap_huge(huge, seen, to) {
        return Take::Taken;
    }
    raise_free(giant, 1);
    Take::Undone
}
