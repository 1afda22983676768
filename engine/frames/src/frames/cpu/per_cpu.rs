//! What a kernel says once about its CPUs: [`PerCpu`], and the ways to allocate and free that follow
//! from it.
//!
//! *First what this CPU caches, without a call*, so that a caller that has nothing else to keep saves
//! no register; then all of it again, in functions of their own.

use super::cache::CpuCache;
use super::cell::InCall;
use super::{CHECKS, Cpu};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::{AllocError, BlockError, CpuError, RangeError};
use crate::frames::find::Frames;
use crate::frames::request::Request;
use crate::node::NodeId;

/// What a kernel says once about the CPU that code runs on, to allocate and free through its
/// [`CpuCache`].
///
/// Each call first tries what the CPU's lists serve, in a few instructions, and calls
/// [`PerCpu::with_cache`] once more, perhaps on another CPU, for what they do not. The first call on a
/// CPU makes its [`Cpu`].
///
/// ```
/// use firstlight_frames::addr::Order;
/// use firstlight_frames::frames::{AllocError, CpuCache, Frames, PerCpu, Request};
/// # use std::sync::OnceLock;
/// # static FRAMES: OnceLock<&'static Frames<'static>> = OnceLock::new();
/// # fn frames() -> &'static Frames<'static> { FRAMES.get().expect("memory") }
/// # fn cpu_number() -> usize { 0 }
/// # fn without_interrupts<R>(call: impl FnOnce() -> R) -> R { call() }
///
/// static CPUS: [CpuCache; 64] = [const { CpuCache::new() }; 64]; // to `Frames::provide_cpus`
///
/// struct ThisCpu;
///
/// // SAFETY: nothing else runs on a CPU while its interrupts are disabled.
/// unsafe impl PerCpu for ThisCpu {
///     fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
///         without_interrupts(|| call(&CPUS[cpu_number()]))
///     }
///     fn frames(&self) -> &'static Frames<'static> {
///         frames()
///     }
/// }
///
/// fn page_and_stack() -> Result<(), Box<dyn std::error::Error>> {
///     let page = ThisCpu.allocate(Request::new(Order::PAGE))?;
///     let stack = ThisCpu.allocate_frames(3, 1, Request::new(Order::PAGE))?;
///     ThisCpu.free(page, Order::PAGE)?;
///     ThisCpu.free_frames(stack)?;
///     Ok(())
/// }
/// ```
///
/// # Safety
/// [`with_cache`](PerCpu::with_cache) calls `call` once, with the cache of the CPU that it runs on, the
/// same for all calls on that CPU and for none on another one. For all calls that use a cache
/// [`frames`](PerCpu::frames) is the same. During `call` the code stays on that CPU, and of other code that
/// uses the cache only interrupt handlers run there, which leave before they return. What one
/// call wrote is seen by the next one on the same CPU.
pub unsafe trait PerCpu {
    /// Calls `call` with the cache of this CPU, one of those that
    /// [`Frames::provide_cpus`](crate::frames::Frames::provide_cpus) got, with interrupts or preemption
    /// disabled.
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R;

    /// All frames.
    fn frames(&self) -> &'static Frames<'static>;

    /// This CPU's node. Called within `with_cache`.
    fn node(&self) -> NodeId {
        NodeId(0)
    }

    /// Calls `call` with this CPU's [`Cpu`]. It is part of the CPU's cache, so it does not leave
    /// `call`:
    ///
    /// ```compile_fail,E0521
    /// # use firstlight_frames::frames::{Cpu, PerCpu};
    /// fn taken_away(this: &impl PerCpu, mut other: Cpu<'static, 'static>) -> Cpu<'static, 'static> {
    ///     let _ = this.with(|cpu| core::mem::swap(cpu, &mut other));
    ///     other
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CpuError::InCall`] in a handler that interrupted a call on this CPU: it cannot have memory
    /// now, or the kernel disables interrupts around calls. [`CpuError::NotProvided`]. Those of
    /// [`Frames::cpu`]. `call` was not called.
    fn with<R>(
        &self,
        call: impl for<'f> FnOnce(&mut Cpu<'f, 'static>) -> R,
    ) -> Result<R, CpuError> {
        with(self, |cpu| Ok(call(cpu)))
    }

    /// Allocates a block, as [`Cpu::allocate`] does.
    ///
    /// # Errors
    /// As [`Cpu::allocate`]; [`AllocError::Cpu`] as for [`PerCpu::with`].
    #[inline(always)]
    fn allocate(&self, request: Request) -> Result<Frame, AllocError> {
        // A copy whose address no call gets: what is known of it at compile time stays so.
        let copy = request;
        match cached(self, |cpu| cpu.allocate_cached(&copy)) {
            Some(frame) => Ok(frame),
            None => allocate_slow(self, request),
        }
    }

    /// Frees a block, as [`Cpu::free`] does.
    ///
    /// # Errors
    /// As [`Cpu::free`]; [`BlockError::Cpu`] as for [`PerCpu::with`].
    #[inline(always)]
    fn free(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        match cached(self, |cpu| cpu.free_cached(frame, order).then_some(())) {
            Some(()) => Ok(()),
            None => free_slow(self, frame, order),
        }
    }

    /// Allocates any number of frames in a row, as [`Cpu::allocate_frames`] does.
    ///
    /// # Errors
    /// As [`Cpu::allocate_frames`]; [`AllocError::Cpu`] as for [`PerCpu::with`].
    #[inline(always)]
    fn allocate_frames(
        &self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, AllocError> {
        if frames == 1 && align_frames == 1 && request.order() == Order::PAGE {
            return self.allocate(request).map(|page| FrameRange::of(page, 1));
        }
        allocate_many(self, frames, align_frames, request)
    }

    /// Frees any range that is allocated, as [`Cpu::free_frames`] does.
    ///
    /// # Errors
    /// As [`Cpu::free_frames`]; [`RangeError::Cpu`] as for [`PerCpu::with`].
    #[inline(always)]
    fn free_frames(&self, range: FrameRange) -> Result<(), RangeError> {
        if range.count() == 1 {
            let (page, order) = (range.start(), Order::PAGE);
            if let Some(()) = cached(self, |cpu| cpu.free_cached(page, order).then_some(())) {
                return Ok(());
            }
        }
        free_many(self, range)
    }

    /// Frees what this CPU caches, and its number: for a CPU that goes offline. A later call makes a
    /// [`Cpu`] again.
    ///
    /// # Errors
    /// As [`Cpu::close`]; [`BlockError::Cpu`] with [`CpuError::InCall`].
    fn close(&self) -> Result<(), BlockError> {
        self.with_cache(|cache| {
            // SAFETY: by the contract of the trait.
            let mut in_call = unsafe { cache.cell.enter() }.ok_or(CpuError::InCall)?;
            // SAFETY: a cell has a `Cpu`.
            let cpu: Option<Cpu<'static, 'static>> = unsafe { in_call.take() };
            cpu.map_or(Ok(()), Cpu::close)
        })
    }
}

/// What `call` finds in this CPU's lists; `None` too if there is no `Cpu` yet, or in a call.
#[inline(always)]
fn cached<C: PerCpu + ?Sized, R>(
    this: &C,
    call: impl FnOnce(&mut Cpu<'static, 'static>) -> Option<R>,
) -> Option<R> {
    this.with_cache(|cache| {
        // SAFETY: by the contract of the trait; a cell has a `Cpu`.
        unsafe { cache.cell.enter()?.cpu().and_then(call) }
    })
}

/// Calls with this CPU's `Cpu`, made now if there is none.
#[inline]
fn with<C: PerCpu + ?Sized, T, E: From<CpuError>>(
    this: &C,
    call: impl for<'f> FnOnce(&mut Cpu<'f, 'static>) -> Result<T, E>,
) -> Result<T, E> {
    this.with_cache(|cache| {
        // SAFETY: by the contract of the trait.
        let mut in_call = unsafe { cache.cell.enter() }.ok_or(CpuError::InCall)?;
        call(opened(this, cache, &mut in_call)?)
    })
}

#[inline(never)]
fn opened<'c, C: PerCpu + ?Sized>(
    this: &C,
    cache: &'static CpuCache,
    in_call: &'c mut InCall<'_>,
) -> Result<&'c mut Cpu<'static, 'static>, CpuError> {
    let open = || {
        let frames = this.frames();
        let mut provided = frames.cpus.iter();
        let cpu = provided.position(|other| core::ptr::eq(other, cache));
        frames.cpu(cpu.ok_or(CpuError::NotProvided)?, this.node())
    };
    // SAFETY: a cell has a `Cpu`.
    unsafe { in_call.opened(open) }
}

#[cold]
#[inline(never)]
fn allocate_slow<C: PerCpu + ?Sized>(this: &C, request: Request) -> Result<Frame, AllocError> {
    with(this, |cpu| cpu.allocate_slow(request))
}

#[cold]
#[inline(never)]
fn free_slow<C: PerCpu + ?Sized>(this: &C, frame: Frame, order: Order) -> Result<(), BlockError> {
    with(this, |cpu| cpu.free_slow(frame, order))
}

impl Cpu<'_, '_> {
    /// A block of up to a huge frame that this CPU caches.
    #[inline(always)]
    fn pop_block(&mut self, order: Order, request: &Request) -> Option<Frame> {
        if self.slot().is_drain_requested() || !self.serves(request) {
            return None;
        }
        let mobility = request.mobility();
        let slot = self.slot();
        let lists = self.lists.of(mobility);
        lists.pop(slot, mobility, order.get().into())
    }

    /// Caches a block of the window, of up to 64 pages or a huge frame; whether it did.
    #[inline(always)]
    fn push_block(&mut self, block: Frame, order: Order) -> bool {
        if CHECKS || self.slot().is_drain_requested() || !block.is_aligned(order) {
            return false;
        }
        let mobility = self.window.allocated_small(block, order.get());
        mobility.is_some_and(|mobility| {
            let slot = self.slot();
            let lists = self.lists.of(mobility);
            lists.push_of_window(slot, mobility, order.get().into(), block)
        })
    }
}

/// A block first, likewise without a call.
#[inline(never)]
fn allocate_many<C: PerCpu + ?Sized>(
    this: &C,
    frames: u64,
    align_frames: u64,
    request: Request,
) -> Result<FrameRange, AllocError> {
    if let Some(order) = Order::of_block(frames)
        && order <= Order::HUGE
        && align_frames.wrapping_sub(1) < frames
        && align_frames.is_power_of_two()
        && order >= request.order()
    {
        let copy = request;
        if let Some(start) = cached(this, |cpu| cpu.pop_block(order, &copy)) {
            return Ok(FrameRange::of(start, frames));
        }
    }
    allocate_part(this, frames, align_frames, request)
}

/// The first part of a block.
#[inline(never)]
fn allocate_part<C: PerCpu + ?Sized>(
    this: &C,
    frames: u64,
    align_frames: u64,
    request: Request,
) -> Result<FrameRange, AllocError> {
    match cached(this, |cpu| cpu.cut_cached(frames, align_frames, &request)) {
        Some(start) => Ok(FrameRange::of(start, frames)),
        None => allocate_many_slow(this, frames, align_frames, request),
    }
}

#[cold]
#[inline(never)]
fn allocate_many_slow<C: PerCpu + ?Sized>(
    this: &C,
    frames: u64,
    align_frames: u64,
    request: Request,
) -> Result<FrameRange, AllocError> {
    with(this, |cpu| {
        cpu.allocate_frames_slow(frames, align_frames, request)
    })
}

/// As `allocate_many`.
#[inline(never)]
fn free_many<C: PerCpu + ?Sized>(this: &C, range: FrameRange) -> Result<(), RangeError> {
    if let Some(order) = Order::of_block(range.count())
        && order <= Order::HUGE
    {
        let start = range.start();
        if let Some(()) = cached(this, |cpu| cpu.push_block(start, order).then_some(())) {
            return Ok(());
        }
    }
    free_part(this, range)
}

#[inline(never)]
fn free_part<C: PerCpu + ?Sized>(this: &C, range: FrameRange) -> Result<(), RangeError> {
    match cached(this, |cpu| cpu.join_cached(range).then_some(())) {
        Some(()) => Ok(()),
        None => free_many_slow(this, range),
    }
}

#[cold]
#[inline(never)]
fn free_many_slow<C: PerCpu + ?Sized>(this: &C, range: FrameRange) -> Result<(), RangeError> {
    with(this, |cpu| cpu.free_frames_slow(range))
}
