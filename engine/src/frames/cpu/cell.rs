//! A CPU's cache in a kernel's per-CPU data: [`CpuCell`].
//!
//! *A cell is used on its CPU only, by one call at a time*: by the promise of a [`PerCpu`](super::per_cpu::PerCpu), and by a flag
//! for handlers that interrupt a call. So nothing in it needs an atomic read-modify-write.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use super::Cpu;
use super::cache::CpuCache;
use crate::frames::error::{BlockError, CpuError};

/// A [`CpuCache`] and the [`Cpu`] that uses it, for a kernel's per-CPU data; a
/// [`PerCpu`](super::per_cpu::PerCpu) uses it.
pub struct CpuCell {
    state: AtomicU32,
    cpu: UnsafeCell<MaybeUninit<Cpu<'static, 'static>>>,
    /// Borrowed by `cpu`, while there is one.
    cache: UnsafeCell<CpuCache>,
}

/// There is no `Cpu`.
const CLOSED: u32 = 0;
/// There is one.
const OPEN: u32 = 1;
/// A call is using the cell, whose state was the rest of the bits.
const IN_CALL: u32 = 2;

// SAFETY: what is in it is touched by the one call that set `IN_CALL`, on the one CPU that a
// `PerCpu` passes the cell on.
unsafe impl Sync for CpuCell {}

/// A call that uses the cell, until it is dropped.
pub(super) struct InCall<'c> {
    cell: &'c CpuCell,
    /// The state afterwards.
    after: u32,
}

impl Drop for InCall<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        self.cell.state.store(self.after, Ordering::Relaxed);
    }
}

impl InCall<'_> {
    /// The `Cpu` of the cell, which is open.
    pub(super) fn cpu(&mut self) -> &mut Cpu<'static, 'static> {
        // SAFETY: it is open, and no other call uses it before this one is dropped.
        unsafe { (*self.cell.cpu.get()).assume_init_mut() }
    }
}

impl CpuCell {
    /// A cell that no CPU has used. It is all zero, and takes no space in the kernel's image.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(CLOSED),
            cpu: UnsafeCell::new(MaybeUninit::zeroed()),
            cache: UnsafeCell::new(CpuCache::new()),
        }
    }

    /// The cell, whose state is `before`, is the caller's until the result is dropped.
    #[inline(always)]
    fn enter(&self, before: u32) -> InCall<'_> {
        // Since the state was read only handlers on this CPU can have been in between, and they
        // left: no read-modify-write is needed.
        self.state.store(before | IN_CALL, Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        InCall {
            cell: self,
            after: before,
        }
    }

    /// Calls with the `Cpu`, if there is one and no call is using it.
    ///
    /// # Safety
    /// On the cell's CPU, which stays so.
    #[inline(always)]
    pub(super) unsafe fn if_open<R>(
        &self,
        call: impl FnOnce(&mut Cpu<'static, 'static>) -> R,
    ) -> Option<R> {
        if self.state.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        let _in_call = self.enter(OPEN);
        // SAFETY: it is open, and no other call uses it before `_in_call` is dropped.
        Some(call(unsafe { (*self.cpu.get()).assume_init_mut() }))
    }

    /// The cell with a `Cpu`, made now if there is none.
    ///
    /// # Safety
    /// As [`CpuCell::if_open`], and the cell stays where it is for ever.
    pub(super) unsafe fn opened(
        &self,
        open: impl FnOnce(&'static mut CpuCache) -> Result<Cpu<'static, 'static>, CpuError>,
    ) -> Result<InCall<'_>, CpuError> {
        let before = self.state.load(Ordering::Relaxed);
        if before & IN_CALL != 0 {
            return Err(CpuError::InCall);
        }
        let mut in_call = self.enter(before);
        if before == CLOSED {
            // SAFETY: no other call uses the cell before `in_call` is dropped, there is no `Cpu`,
            // and it stays for ever.
            let (place, cache) = unsafe { (&mut *self.cpu.get(), &mut *self.cache.get()) };
            place.write(open(cache)?);
            in_call.after = OPEN;
        }
        Ok(in_call)
    }

    /// Takes the `Cpu` out and drops it.
    ///
    /// # Safety
    /// As [`CpuCell::if_open`].
    pub(super) unsafe fn close(&self) -> Result<(), BlockError> {
        let before = self.state.load(Ordering::Relaxed);
        if before & IN_CALL != 0 {
            return Err(BlockError::Cpu(CpuError::InCall));
        }
        let mut in_call = self.enter(before);
        if before == CLOSED {
            return Ok(());
        }
        in_call.after = CLOSED;
        // SAFETY: it was open, and is no more; no other call, as above.
        unsafe { (*self.cpu.get()).assume_init_read() }.close()
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
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
