//! Tables in uninitialised memory, carved out of a node's metadata. The
//! allocator's unsafe code is here, in [`window`](super::window) and in one
//! block of `build.rs`.
//!
//! A [`Table`] hands out references to single elements, never to the whole
//! array, because most of it stays unwritten: an element is read only after
//! its parent level said that it was stored.

use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::Range;
use core::ptr::NonNull;

use crate::carver::Carver;
use crate::frames::word::Bitmap;
use crate::frames::word::geometry::BITMAP_WORDS;
use crate::sync::{AtomicU32, AtomicU64};

/// What tables are made of.
///
/// # Safety
/// Every bit pattern must be a valid value, and all access must be atomic.
pub(crate) unsafe trait Word {}

// SAFETY: an atomic integer.
unsafe impl Word for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Word for AtomicU64 {}
// SAFETY: an array of atomic integers.
unsafe impl Word for Bitmap {}

/// An array of atomics whose elements become meaningful one by one.
#[derive(Debug)]
pub(crate) struct Table<'m, T> {
    first: NonNull<T>,
    len: usize,
    memory: PhantomData<&'m [T]>,
}

impl<T> Clone for Table<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Table<'_, T> {}

// SAFETY: a table is a shared slice as far as threads are concerned.
unsafe impl<T: Sync> Sync for Table<'_, T> {}
// SAFETY: as above; it owns nothing that is tied to a thread.
unsafe impl<T: Sync> Send for Table<'_, T> {}

/// A mistake in the engine: kept out of the code that looks.
#[cold]
#[inline(never)]
fn no_element(index: usize, len: usize) -> ! {
    panic!("element {index} of a table of {len}");
}

impl<'m, T: Word> Table<'m, T> {
    /// A table over elements that are all there.
    #[cfg(test)]
    pub(crate) fn from_slice(slice: &'m [T]) -> Self {
        Self {
            first: NonNull::from(slice).cast(),
            len: slice.len(),
            memory: PhantomData,
        }
    }

    /// The next `len` elements of `carver`, none of them written; `None` if it is used up.
    pub(crate) fn carve(carver: &mut Carver<'m>, len: usize) -> Option<Self> {
        Some(Self {
            first: carver.space(len)?,
            len,
            memory: PhantomData,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Element `index`.
    // Always: a call costs as much as all of it.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &'m T {
        if index >= self.len {
            no_element(index, self.len);
        }
        // SAFETY: inside the table, whose memory is ours for 'm and aligned
        // (see [`Table::carve`]); any bits there are a valid `Word`.
        unsafe { self.first.add(index).as_ref() }
    }

    /// The first `len` elements; none if there are fewer.
    ///
    /// # Safety
    /// They were written.
    #[inline]
    pub(crate) unsafe fn written(&self, len: usize) -> &'m [T] {
        let len = if len <= self.len { len } else { 0 };
        // SAFETY: inside the table, and written, as the caller promises; else as in `at`.
        unsafe { NonNull::slice_from_raw_parts(self.first, len).as_ref() }
    }

    /// The elements, numbered from `first` on.
    pub(crate) fn numbered_from(self, first: u64) -> Numbered<'m, T> {
        Numbered {
            zero: self.first.as_ptr().wrapping_sub(first as usize),
            memory: PhantomData,
        }
    }

    /// Prefetches element `index`, if there is one, because it is going to be written.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(any(firstlight_loom, miri))))]
        if index < self.len {
            // SAFETY: inside the table. The instruction changes no memory and cannot fault;
            // processors that lack it do nothing.
            unsafe {
                core::arch::asm!(
                    "prefetchw [{}]",
                    in(reg) self.first.as_ptr().add(index),
                    options(readonly, nostack, preserves_flags)
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(firstlight_loom, miri)))))]
        let _ = index;
    }

    /// The elements of `range`, with one check for all of them.
    #[inline]
    pub(crate) fn each(&self, range: Range<usize>) -> impl Iterator<Item = &'m T> {
        let Range { start, end } = range;
        assert!(
            start <= end && end <= self.len,
            "elements {start}..{end} of a table of {}",
            self.len
        );
        let first = self.first;
        // SAFETY: as in `at`; every index of the range is inside the table.
        range.map(move |index| unsafe { first.add(index).as_ref() })
    }
}

/// A table whose elements are numbered from any number on, with no check and nothing to subtract:
/// for the fast path.
#[derive(Debug)]
pub(crate) struct Numbered<'m, T> {
    /// Where element 0 would be, far outside of the table.
    zero: *const T,
    memory: PhantomData<&'m [T]>,
}

impl<T> Clone for Numbered<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Numbered<'_, T> {}

// SAFETY: as for `Table`.
unsafe impl<T: Sync> Sync for Numbered<'_, T> {}
// SAFETY: as for `Table`.
unsafe impl<T: Sync> Send for Numbered<'_, T> {}

impl<'m, T: Word> Numbered<'m, T> {
    /// Element `number`.
    ///
    /// # Safety
    /// The table has it.
    #[inline]
    pub(crate) unsafe fn at(&self, number: u64) -> &'m T {
        // SAFETY: inside the table, as the caller promises; else as in `Table::at`.
        unsafe { &*self.zero.wrapping_add(number as usize) }
    }
}

impl<'m> Numbered<'m, Bitmap> {
    /// The word of the 64 pages with this number.
    ///
    /// # Safety
    /// The table has their bitmap.
    #[inline]
    pub(crate) unsafe fn word(&self, number: u64) -> &'m AtomicU64 {
        const { assert!(size_of::<Bitmap>() == BITMAP_WORDS * size_of::<AtomicU64>()) };
        // SAFETY: bitmaps are arrays of words without gaps, so the word lies inside the table,
        // as the caller promises.
        unsafe { &*self.zero.cast::<AtomicU64>().wrapping_add(number as usize) }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn tables_are_aligned_and_refused_when_the_memory_is_used_up() {
        let mut memory = [MaybeUninit::<u64>::uninit(); 5];
        let start = NonNull::from(&mut memory).cast::<u8>();
        // SAFETY: `memory` outlives the carver and is not touched meanwhile.
        let mut carver = unsafe { Carver::new(start, 40) };
        assert!(carver.piece(3).is_some());
        let table: Table<'_, AtomicU64> = Table::carve(&mut carver, 4).unwrap();
        table.at(3).store(9, Ordering::Relaxed);
        assert_eq!(table.at(3).load(Ordering::Relaxed), 9);
        assert!(Table::<AtomicU32>::carve(&mut carver, 1).is_none());
        assert!(Table::<AtomicU64>::carve(&mut carver, usize::MAX).is_none());
    }
}
