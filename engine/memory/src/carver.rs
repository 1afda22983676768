//! Tables in uninitialised memory, one behind the other: [`Carver`].

use core::marker::PhantomData;
use core::mem::{MaybeUninit, align_of, size_of};
use core::ptr::NonNull;

/// Hands out tables from a block of memory, front to back.
#[derive(Debug)]
pub struct Carver<'m> {
    next: NonNull<u8>,
    left_bytes: usize,
    memory: PhantomData<&'m [u8]>,
}

impl<'m> Carver<'m> {
    /// Takes over `bytes` bytes from `start`, which need not be initialised.
    ///
    /// # Safety
    /// For all of `'m` the memory must be readable and writable through this
    /// pointer and used by no other code.
    #[inline]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self {
            next: start,
            left_bytes: bytes,
            memory: PhantomData,
        }
    }

    /// Takes over `memory`, none of which need be initialised.
    #[inline]
    pub fn over(memory: &'m mut [MaybeUninit<u8>]) -> Self {
        let bytes = memory.len();
        // SAFETY: borrowed for 'm, and by no other code.
        unsafe { Self::new(NonNull::from(memory).cast(), bytes) }
    }

    /// The next `bytes` bytes, to be carved by themselves; `None` if fewer are left.
    #[inline]
    pub fn piece(&mut self, bytes: usize) -> Option<Self> {
        Some(Self {
            next: self.space::<u8>(bytes)?,
            left_bytes: bytes,
            memory: PhantomData,
        })
    }

    /// Bytes [`Self::space`] and [`Self::slice`] may use for `len` elements, alignment included.
    pub const fn bytes_for<T>(len: u64) -> Option<u64> {
        match len.checked_mul(size_of::<T>() as u64) {
            Some(bytes) => bytes.checked_add(align_of::<T>() as u64 - 1),
            None => None,
        }
    }

    /// Space for `len` elements, none of them written; `None` if the block is used up.
    pub fn space<T>(&mut self, len: usize) -> Option<NonNull<T>> {
        let pad = self.next.align_offset(align_of::<T>());
        let bytes = len.checked_mul(size_of::<T>())?.checked_add(pad)?;
        self.left_bytes = self.left_bytes.checked_sub(bytes)?;
        // SAFETY: `bytes`, and so `pad`, were still left in the block.
        let (first, next) = unsafe { (self.next.add(pad), self.next.add(bytes)) };
        self.next = next;
        Some(first.cast())
    }

    /// `bytes` bytes, none of them written, that start `phase` bytes after a
    /// multiple of `step`, a power of two; `None` if the block is used up.
    #[inline]
    pub fn aligned_space(
        &mut self,
        bytes: usize,
        step: usize,
        phase: usize,
    ) -> Option<NonNull<u8>> {
        let pad = phase.wrapping_sub(self.next.addr().get()) & (step - 1);
        let taken = bytes.checked_add(pad)?;
        self.left_bytes = self.left_bytes.checked_sub(taken)?;
        // SAFETY: `taken`, and so `pad`, were still left in the block.
        let (first, next) = unsafe { (self.next.add(pad), self.next.add(taken)) };
        self.next = next;
        Some(first)
    }

    /// A slice of `len` elements made by `make`; `None` if the block is used up
    /// or `make` has no more.
    pub fn slice<T>(
        &mut self,
        len: usize,
        mut make: impl FnMut(usize) -> Option<T>,
    ) -> Option<&'m mut [T]> {
        let first: NonNull<T> = self.space(len)?;
        for index in 0..len {
            // SAFETY: inside what was just taken, aligned, not yet shared.
            unsafe { first.add(index).write(make(index)?) };
        }
        // SAFETY: all `len` elements were written, and no other code has the memory.
        Some(unsafe { NonNull::slice_from_raw_parts(first, len).as_mut() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carves_aligned_pieces_and_refuses_when_used_up() {
        let mut memory = [MaybeUninit::<u64>::uninit(); 5];
        let start = NonNull::from(&mut memory).cast::<u8>();
        // SAFETY: `memory` outlives the carver and is not touched meanwhile.
        let mut carver = unsafe { Carver::new(start, 40) };
        assert_eq!(
            carver.slice(3, |i| u8::try_from(i).ok()).unwrap(),
            [0, 1, 2]
        );
        assert_eq!(
            carver.space::<u64>(4).unwrap().cast(),
            start.map_addr(|at| at.saturating_add(8))
        );
        assert!(carver.space::<u32>(1).is_none());
        assert!(carver.space::<u64>(usize::MAX).is_none());
    }
}
