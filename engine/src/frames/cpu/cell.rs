//! A CPU's cache in a kernel's per-CPU data: [`CpuCell`].
//!
//! *A cell belongs to the CPU whose guard used it first, and to one call at a time.* So nothing
//! in it needs an atomic read-modify-write: other CPUs are refused by its number, handlers that
//! interrupt a call by a flag.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

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
    /// 0 before the first call; then 1 above the number of its CPU, shifted, with the two bits
    /// below. One word, so that a call compares once.
    state: AtomicU32,
    cpu: UnsafeCell<MaybeUninit<Cpu<'static, 'static>>>,
    /// Borrowed by `cpu`, while there is one.
    cache: UnsafeCell<CpuCache>,
}

/// There is a `Cpu`.
const OPEN: u32 = 1;
/// A call on its CPU is using the cell.
const IN_CALL: u32 = 2;
/// 1 above the number of the CPU, from this bit on.
const OWNER_BIT: u32 = 2;

// SAFETY: what is in it is touched by the one call that set `IN_CALL`, on the one CPU that owns
// the cell: see `enter`.
unsafe impl Sync for CpuCell {}

/// A call that uses the cell, until it is dropped.
struct InCall<'c> {
    cell: &'c CpuCell,
    /// The state afterwards.
    after: u32,
}

impl Drop for InCall<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        self.cell.state.store(self.after, Ordering::Relaxed);
    }
}

impl CpuCell {
    /// A cell that no CPU has used. It is all zero, and takes no space in the kernel's image.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
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
        let mut in_call = self.enter(number)?;
        if in_call.after & OPEN == 0 {
            // SAFETY: there is no `Cpu`; no other call uses the cell, and none can before
            // `in_call` is dropped.
            unsafe { self.open(number, frames, node)? };
            in_call.after |= OPEN;
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
        Ok(())
    }

    /// Frees what the CPU caches, and its slot: for a CPU that goes offline. A later
    /// [`CpuCell::with`] begins anew.
    ///
    /// # Errors
    /// [`CpuError`] as for [`CpuCell::with`]; within, as for [`Cpu::close`].
    pub fn close(&'static self, guard: &impl CpuGuard) -> Result<Result<(), BlockError>, CpuError> {
        let mut in_call = self.enter(guard.cpu())?;
        if in_call.after & OPEN == 0 {
            return Ok(Ok(()));
        }
        in_call.after &= !OPEN;
        // SAFETY: it was open, and is no more; no other call, as above.
        let cpu = unsafe { (*self.cpu.get()).assume_init_read() };
        Ok(cpu.close())
    }

    /// The cell is the caller's, of CPU `number`, until the result is dropped.
    #[inline]
    fn enter(&self, number: usize) -> Result<InCall<'_>, CpuError> {
        #[expect(clippy::cast_possible_truncation, reason = "checked in `enter_first`")]
        let open = ((number as u32).wrapping_add(1) << OWNER_BIT) | OPEN;
        let after = if self.state.load(Ordering::Relaxed) == open && number < MOST_CPUS {
            open
        } else {
            self.enter_first(number)?
        };
        // From here on only handlers on this CPU can be in between, and they leave before they
        // return: no read-modify-write is needed.
        self.state.store(after | IN_CALL, Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        Ok(InCall { cell: self, after })
    }

    /// The state of a cell that can be entered, but is not open, or why it can't be.
    #[cold]
    fn enter_first(&self, number: usize) -> Result<u32, CpuError> {
        let owner = u32::try_from(number).ok().filter(|_| number < MOST_CPUS);
        let owner = owner.ok_or(CpuError::NoSuchCpu {
            cpu: number,
            cpus: MOST_CPUS,
        })?;
        let mine = (owner + 1) << OWNER_BIT;
        let (done, not) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.state.compare_exchange(0, mine, done, not) {
            Ok(_) => Ok(mine),
            Err(state) if state >> OWNER_BIT != owner + 1 => Err(CpuError::OtherCpu {
                cpu: number,
                owner: (state >> OWNER_BIT) as usize - 1,
            }),
            Err(state) if state & IN_CALL != 0 => Err(CpuError::InCall),
            Err(state) => Ok(state),
        }
    }
}

/// Numbers of CPUs a cell can have.
const MOST_CPUS: usize = 1 << 24;

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
