//! The [`Cpu`](super::Cpu) of a kernel's calls, between them: [`CpuCell`].
//!
//! *A cell is used on its CPU only, by one call at a time*: by the promise of a
//! [`PerCpu`](crate::frames::PerCpu), and by a flag for handlers that interrupt a call. So nothing in
//! it needs an atomic read-modify-write.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// What a [`PerCpu`](crate::frames::PerCpu) opened on the CPU whose cache this is part of.
pub(super) struct CpuCell {
    in_call: AtomicBool,
    /// Whether there is a `Cpu`.
    is_open: UnsafeCell<bool>,
    cpu: UnsafeCell<Space>,
}

/// For a `Cpu`, by its size: its type has the list of all CPUs, of which this is a part.
type Space = MaybeUninit<[u64; 18]>;

// SAFETY: what is in it is touched by the one call that set `in_call`, on the one CPU that a
// `PerCpu` passes the cell on.
unsafe impl Sync for CpuCell {}

/// A call that uses the cell, until it is dropped.
pub(super) struct InCall<'c>(&'c CpuCell);

impl Drop for InCall<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.in_call.store(false, Ordering::Relaxed);
    }
}

impl InCall<'_> {
    #[inline(always)]
    fn space<T>(&self) -> *mut T {
        const { assert!(size_of::<T>() <= size_of::<Space>() && align_of::<T>() <= align_of::<Space>()) };
        self.0.cpu.get().cast()
    }

    /// The `Cpu`, if there is one.
    ///
    /// # Safety
    /// `T` is the one type that all calls with the cell have.
    #[inline(always)]
    pub(super) unsafe fn cpu<T>(&mut self) -> Option<&mut T> {
        // SAFETY: no other call uses the cell before this one is dropped; it is there if it says so.
        unsafe { (*self.0.is_open.get()).then(|| &mut *self.space()) }
    }

    /// The `Cpu`, made now if there is none.
    ///
    /// # Safety
    /// As of [`InCall::cpu`].
    #[inline]
    pub(super) unsafe fn opened<T, E>(
        &mut self,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<&mut T, E> {
        // SAFETY: no other call, as above.
        unsafe {
            if !*self.0.is_open.get() {
                self.space::<T>().write(open()?);
                *self.0.is_open.get() = true;
            }
            Ok(&mut *self.space())
        }
    }

    /// The `Cpu`, if there was one; the cell has none from now on.
    ///
    /// # Safety
    /// As of [`InCall::cpu`].
    pub(super) unsafe fn take<T>(&mut self) -> Option<T> {
        // SAFETY: no other call, as above; it was there if it says so, and is not from now on.
        unsafe {
            let was_open = core::mem::replace(&mut *self.0.is_open.get(), false);
            was_open.then(|| self.space::<T>().read())
        }
    }
}

impl CpuCell {
    /// A cell that no CPU has used; it is all zero.
    pub(super) const fn new() -> Self {
        Self {
            in_call: AtomicBool::new(false),
            is_open: UnsafeCell::new(false),
            cpu: UnsafeCell::new(Space::zeroed()),
        }
    }

    /// The cell is the caller's until the result is dropped; `None` if the caller interrupted
    /// whose it is.
    ///
    /// # Safety
    /// On the cell's CPU, until the result is dropped.
    #[inline(always)]
    pub(super) unsafe fn enter(&self) -> Option<InCall<'_>> {
        if self.in_call.load(Ordering::Relaxed) {
            return None;
        }
        // In between only handlers on this CPU can come, which leave before they return. What they
        // do to the rest of the cell is seen, since that is read below only.
        self.in_call.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Some(InCall(self))
    }
}

impl Default for CpuCell {
    fn default() -> Self {
        Self::new()
    }
}
