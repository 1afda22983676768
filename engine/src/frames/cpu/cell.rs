//! A CPU's cache in a kernel's per-CPU data: [`CpuCell`].
//!
//! *A cell belongs to the CPU whose guard used it first, and to one call at a time.* So nothing
//! in it needs an atomic read-modify-write: other CPUs are refused by its number, handlers that
//! interrupt a call by a flag.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use super::Cpu;
use super::cache::CpuCache;
use crate::frames::error::{BlockError, CpuError};
use crate::frames::find::Frames;
use crate::node::NodeId;

/// Proof that the code that holds it stays on one CPU: what a kernel has for disabled preemption
/// or disabled interrupts.
///
/// # Safety
/// From its creation until it is dropped the code that holds it runs on CPU [`CpuGuard::cpu`],
/// and of other code only interrupt handlers do. What one holder wrote is seen by the next one
/// of the same CPU.
pub unsafe trait CpuGuard {
    /// The CPU, by the number of its slot in
    /// [`Frames::with_cpus`](crate::frames::Frames::with_cpus).
    fn cpu(&self) -> usize;
}

/// A [`CpuCache`] and the [`Cpu`] that uses it, for a kernel's per-CPU data.
///
/// ```
/// use firstlight::addr::{Frame, Order};
/// use firstlight::frames::{CpuCell, CpuError, CpuGuard, Frames, Request};
/// use firstlight::node::NodeId;
///
/// /// Interrupts are disabled while it lives.
/// struct NoInterrupts {
///     cpu: usize,
/// }
/// // SAFETY: (of a kernel that has made it so when it created this) nothing else runs here.
/// unsafe impl CpuGuard for NoInterrupts {
///     fn cpu(&self) -> usize {
///         self.cpu
///     }
/// }
///
/// static OF_CPU_0: CpuCell = CpuCell::new(); // a kernel has one in each CPU's data
///
/// fn page(frames: &'static Frames<'static>, guard: &NoInterrupts) -> Result<Frame, CpuError> {
///     let page = Request::new(Order::PAGE);
///     let found = OF_CPU_0.with(guard, frames, NodeId(0), |cpu| cpu.allocate(page))?;
///     Ok(found.expect("memory"))
/// }
/// ```
pub struct CpuCell {
    /// 1 above the number of its CPU; 0 before the first call.
    owner: AtomicU32,
    /// A call on its CPU is using it.
    in_call: AtomicBool,
    /// There is a `Cpu`. A flag of its own, so that an empty cell is all zero.
    is_open: Cell<bool>,
    cpu: UnsafeCell<MaybeUninit<Cpu<'static, 'static>>>,
    /// Borrowed by `cpu`, while there is one.
    cache: UnsafeCell<CpuCache>,
}

// SAFETY: what is in it is touched by the one call that set `in_call`, on the one CPU that owns
// the cell: see `enter`.
unsafe impl Sync for CpuCell {}

/// A call that uses the cell, until it is dropped.
struct InCall<'c>(&'c CpuCell);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        self.0.in_call.store(false, Ordering::Relaxed);
    }
}

impl CpuCell {
    /// A cell that no CPU has used. It is all zero, and takes no space in the kernel's image.
    pub const fn new() -> Self {
        Self {
            owner: AtomicU32::new(0),
            in_call: AtomicBool::new(false),
            is_open: Cell::new(false),
            cpu: UnsafeCell::new(MaybeUninit::zeroed()),
            cache: UnsafeCell::new(CpuCache::new()),
        }
    }

    /// Calls `call` with this CPU's [`Cpu`], which is made at the first call: for the slot of
    /// [`CpuGuard::cpu`], on `node`. It borrows the cell's cache, so it does not leave `call`:
    ///
    /// ```compile_fail,E0521
    /// # use firstlight::frames::{Cpu, CpuCell, CpuGuard, Frames};
    /// # use firstlight::node::NodeId;
    /// fn taken_away(
    ///     cell: &'static CpuCell,
    ///     guard: &impl CpuGuard,
    ///     frames: &'static Frames<'static>,
    ///     mut other: Cpu<'static, 'static>,
    /// ) -> Cpu<'static, 'static> {
    ///     let _ = cell.with(guard, frames, NodeId(0), |cpu| core::mem::swap(cpu, &mut other));
    ///     other
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CpuError::InCall`] in a handler that interrupted a call of this cell: it cannot have memory
    /// now, or the kernel disables interrupts around calls. [`CpuError::OtherCpu`],
    /// [`CpuError::OtherFrames`], and those of [`Frames::cpu`]. `call` was not called.
    #[inline]
    pub fn with<R>(
        &'static self,
        guard: &impl CpuGuard,
        frames: &'static Frames<'static>,
        node: NodeId,
        call: impl for<'f> FnOnce(&mut Cpu<'f, 'static>) -> R,
    ) -> Result<R, CpuError> {
        let number = guard.cpu();
        let _in_call = self.enter(number)?;
        if !self.is_open.get() {
            // SAFETY: there is no `Cpu`; no other call uses the cell, and none can before
            // `_in_call` is dropped.
            unsafe { self.open(number, frames, node)? };
        }
        // SAFETY: it is open; no other call, as above.
        let cpu = unsafe { (*self.cpu.get()).assume_init_mut() };
        if cpu.is_of(frames) {
            Ok(call(cpu))
        } else {
            Err(CpuError::OtherFrames)
        }
    }

    /// Makes the `Cpu`.
    ///
    /// # Safety
    /// There is none, which would borrow the cache, and this is the only call of the cell.
    #[cold]
    #[inline(never)]
    unsafe fn open(
        &'static self,
        number: usize,
        frames: &'static Frames<'static>,
        node: NodeId,
    ) -> Result<(), CpuError> {
        // SAFETY: as the caller promises.
        let (place, cache) = unsafe { (&mut *self.cpu.get(), &mut *self.cache.get()) };
        place.write(frames.cpu(number, node, cache)?);
        self.is_open.set(true);
        Ok(())
    }

    /// Frees what the CPU caches, and its slot: for a CPU that goes offline. A later
    /// [`CpuCell::with`] begins anew.
    ///
    /// # Errors
    /// [`CpuError`] as for [`CpuCell::with`]; within, as for [`Cpu::close`].
    pub fn close(&'static self, guard: &impl CpuGuard) -> Result<Result<(), BlockError>, CpuError> {
        let _in_call = self.enter(guard.cpu())?;
        if !self.is_open.replace(false) {
            return Ok(Ok(()));
        }
        // SAFETY: it was open, and is no more; no other call, as above.
        let cpu = unsafe { (*self.cpu.get()).assume_init_read() };
        Ok(cpu.close())
    }

    /// The cell is the caller's, of CPU `number`, until the result is dropped.
    #[inline]
    fn enter(&self, number: usize) -> Result<InCall<'_>, CpuError> {
        let owner = u32::try_from(number)
            .ok()
            .and_then(|number| number.checked_add(1));
        let owner = owner.ok_or(CpuError::NoSuchCpu {
            cpu: number,
            cpus: 0,
        })?;
        if self.owner.load(Ordering::Relaxed) != owner {
            self.own(owner)?;
        }
        // From here on only handlers on this CPU can be in between, and they leave before they
        // return: no read-modify-write is needed.
        if self.in_call.load(Ordering::Relaxed) {
            return Err(CpuError::InCall);
        }
        self.in_call.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        Ok(InCall(self))
    }

    #[cold]
    fn own(&self, owner: u32) -> Result<(), CpuError> {
        let (mine, not) = (Ordering::Relaxed, Ordering::Relaxed);
        let was = self.owner.compare_exchange(0, owner, mine, not);
        was.map(drop).map_err(|was| CpuError::OtherCpu {
            cpu: owner as usize - 1,
            owner: was as usize - 1,
        })
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
            .field("owner", &self.owner)
            .field("in_call", &self.in_call)
            .finish_non_exhaustive()
    }
}
