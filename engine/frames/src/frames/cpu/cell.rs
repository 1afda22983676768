//! A CPU's cache in a kernel's per-CPU data: [`CpuCell`].
//!
//! *A cell is used on its CPU only, by one call at a time*: by the promise of a
//! [`PerCpu`](crate::frames::PerCpu), and by a flag for handlers that interrupt a call. So nothing in
//! it needs an atomic read-modify-write.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use super::Cpu;
use super::cache::CpuCache;
use crate::frames::error::{BlockError, CpuError};

/// A [`CpuCache`] and the [`Cpu`] that uses it, for a kernel's per-CPU data; a
/// [`PerCpu`](crate::frames::PerCpu) uses it.
pub struct CpuCell {
    in_call: AtomicBool,
    /// Whether there is a `Cpu`.
    is_open: UnsafeCell<bool>,
    cpu: UnsafeCell<MaybeUninit<Cpu<'static, 'static>>>,
    /// Borrowed by `cpu`, while there is one.
    cache: UnsafeCell<CpuCache>,
}

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
    /// The `Cpu`, if there is one.
    #[inline(always)]
    pub(super) fn cpu(&mut self) -> Option<&mut Cpu<'static, 'static>> {
        // SAFETY: no other call uses the cell before this one is dropped; it is there if it says so.
        unsafe { (*self.0.is_open.get()).then(|| (*self.0.cpu.get()).assume_init_mut()) }
    }

    /// The `Cpu`, made now if there is none.
    ///
    /// # Safety
    /// The cell stays where it is for ever.
    #[inline]
    pub(super) unsafe fn opened(
        &mut self,
        open: impl FnOnce(&'static mut CpuCache) -> Result<Cpu<'static, 'static>, CpuError>,
    ) -> Result<&mut Cpu<'static, 'static>, CpuError> {
        // SAFETY: no other call, as above; without a `Cpu` nothing borrows the cache, which stays, as
        // promised.
        unsafe {
            if !*self.0.is_open.get() {
                (*self.0.cpu.get()).write(open(&mut *self.0.cache.get())?);
                *self.0.is_open.get() = true;
            }
            Ok((*self.0.cpu.get()).assume_init_mut())
        }
    }

    /// Drops the `Cpu`, if there is one.
    pub(super) fn close(self) -> Result<(), BlockError> {
        // SAFETY: no other call, as above; it was there if it says so, and is not from now on.
        let cpu = unsafe {
            let was_open = core::mem::replace(&mut *self.0.is_open.get(), false);
            was_open.then(|| (*self.0.cpu.get()).assume_init_read())
        };
        cpu.map_or(Ok(()), Cpu::close)
    }
}

impl CpuCell {
    /// A cell that no CPU has used. It is all zero, and takes no space in the kernel's image.
    pub const fn new() -> Self {
        Self {
            in_call: AtomicBool::new(false),
            is_open: UnsafeCell::new(false),
            cpu: UnsafeCell::new(MaybeUninit::zeroed()),
            cache: UnsafeCell::new(CpuCache::new()),
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

impl fmt::Debug for CpuCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuCell")
            .field("in_call", &self.in_call)
            .finish_non_exhaustive()
    }
}
