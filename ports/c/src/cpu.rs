//! A CPU's cache in front of the allocator: [`fl_cpu`].

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use engine::addr::FrameRange;
use engine::frames::{BlockError, CpuCache, Frames, PerCpu};
use engine::node::NodeId;

use crate::check;
use crate::error::code;
use crate::error::fl_error::{self, *};
use crate::frames::{cpus, created, fl_frames};
use crate::request::{allocate, fl_request, node};

/// 64-bit words of an fl_cpu.
pub const FL_CPU_WORDS: usize = 8;

/// A CPU's own frames: what was freed on it is the next that it allocates, without a write that
/// other CPUs see. In storage of the caller; what it caches lies in the memory of fl_create. All
/// zero before fl_cpu_init.
///
/// All calls with it come from its CPU, with preemption off, and with interrupts off where their
/// handlers make some, too. A call that interrupted another one is refused with FL_IN_CALL.
#[repr(C, align(64))]
pub struct fl_cpu {
    opaque: [u64; FL_CPU_WORDS],
}

const NOT_CREATED: u32 = 0;
const CREATED: u32 = 0x464c_0002;

/// What lies in an [`fl_cpu`]. Zero is a state: nothing was initialised.
#[repr(C)]
struct State {
    /// Written by its own CPU only.
    tag: AtomicU32,
    /// There once the tag says so.
    cpu: UnsafeCell<MaybeUninit<ThisCpu>>,
}

/// The CPU of an fl_cpu: its callers in C promise to be on it.
struct ThisCpu {
    cache: &'static CpuCache,
    /// Its number's.
    taken: &'static AtomicBool,
    frames: &'static Frames<'static>,
    node: NodeId,
}

// SAFETY: each function that makes or uses one is unsafe, for a caller on that CPU that stays
// there meanwhile; only one is made of a number at a time.
unsafe impl PerCpu for ThisCpu {
    #[inline(always)]
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        call(self.cache)
    }

    fn frames(&self) -> &'static Frames<'static> {
        self.frames
    }

    fn node(&self) -> NodeId {
        self.node
    }
}

const _: () = assert!(size_of::<State>() <= size_of::<fl_cpu>());
const _: () = assert!(align_of::<State>() <= align_of::<fl_cpu>());

/// # Safety
/// `from` is null, misaligned, or points to storage that only functions of this library use,
/// zero at first.
unsafe fn state(from: *const fl_cpu) -> Result<&'static State, fl_error> {
    let pointer = check::pointer(from.cast_mut())?.cast::<State>();
    // SAFETY: by the contract: large enough and aligned (asserted above), and zero is a `State`.
    Ok(unsafe { pointer.as_ref() })
}

impl State {
    #[inline(always)]
    fn cpu(&'static self) -> Result<&'static ThisCpu, fl_error> {
        if self.tag.load(Ordering::Acquire) != CREATED {
            return Err(FL_NOT_CREATED);
        }
        // SAFETY: written before the tag, and only shared while it is there.
        Ok(unsafe { (*self.cpu.get()).assume_init_ref() })
    }
}

/// The CPU that `from` is.
///
/// # Safety
/// As of [`state`], and this is the fl_cpu's own CPU.
#[inline(always)]
unsafe fn this(from: *mut fl_cpu) -> Result<&'static ThisCpu, fl_error> {
    // SAFETY: the same contract.
    unsafe { state(from) }?.cpu()
}

/// Makes `cpu` the cache of CPU number `number`, which is on node `node_number` (0 where there is
/// one).
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_ALREADY_CREATED, FL_NO_SUCH_CPU, FL_CPU_TAKEN,
/// FL_NO_SUCH_NODE, FL_NO_MEMORY. On that CPU, once memory was added.
///
/// # Safety
/// `cpu` is null, misaligned, or points to storage that is zero or was closed, and that only this
/// library uses from now on; `frames` is, or points to an fl_frames that stays while `cpu` is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_init(
    cpu: *mut fl_cpu,
    frames: *mut fl_frames,
    number: u32,
    node_number: u32,
) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let (state, frames, cpus) = unsafe { (state(cpu)?, created(frames)?, cpus(frames)?) };
        if state.tag.load(Ordering::Acquire) != NOT_CREATED {
            return Err(FL_ALREADY_CREATED);
        }
        let number = usize::try_from(number).map_err(|_| FL_NO_SUCH_CPU)?;
        let all = cpus.caches.get(number).zip(cpus.taken.get(number));
        let (cache, taken) = all.ok_or(FL_NO_SUCH_CPU)?;
        let node = node(node_number)?;
        // What else is refused.
        drop(frames.cpu(number, node)?);
        if taken.swap(true, Ordering::Acquire) {
            return Err(FL_CPU_TAKEN);
        }
        let this = ThisCpu {
            cache,
            taken,
            frames,
            node,
        };
        // SAFETY: nothing else uses it while the tag says that it is not there.
        let this = unsafe { (*state.cpu.get()).write(this) };
        if let Err(error) = this.with(|_| ()) {
            taken.store(false, Ordering::Release);
            return Err(error.into());
        }
        state.tag.store(CREATED, Ordering::Release);
        Ok(())
    })())
}

/// Allocates the block of `request` for this CPU and stores its address in `address`; fl_cpu_free
/// frees it, on any CPU. Without FL_ON_NODE from the CPU's own node.
///
/// Errors of fl_allocate, and FL_IN_CALL. Before FL_OUT_OF_MEMORY this CPU's cache is drained, and
/// a drain of all others is requested, unless the request has FL_NO_DRAIN. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU; `request` and `address` are, or
/// point to a request and a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_allocate(
    cpu: *mut fl_cpu,
    request: *const fl_request,
    address: *mut u64,
) -> fl_error {
    // SAFETY: the same contract.
    code(unsafe { allocate(request, address, |request| Ok(this(cpu)?.allocate(request))) })
}

/// Frees a block of 2^order frames from `address` on, as fl_free does. What is free is refused at
/// once; what CPUs cache was freed twice when a cache that has it is drained: FL_FREED_TWICE.
///
/// Errors of fl_free, FL_IN_CALL, FL_FREED_TWICE. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_free(cpu: *mut fl_cpu, address: u64, order: u32) -> fl_error {
    code((|| {
        let (frame, order) = (check::frame(address)?, check::order(order)?);
        // SAFETY: by the contract.
        Ok(unsafe { this(cpu) }?.free(frame, order)?)
    })())
}

/// Allocates `count` contiguous frames for this CPU, as fl_allocate_frames does.
///
/// Errors of fl_allocate_frames, and FL_IN_CALL. On the CPU of `cpu`.
///
/// # Safety
/// As of fl_cpu_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_allocate_frames(
    cpu: *mut fl_cpu,
    count: u64,
    align_frames: u64,
    request: *const fl_request,
    address: *mut u64,
) -> fl_error {
    let find = |request| {
        // SAFETY: the same contract.
        let found = unsafe { this(cpu) }?.allocate_frames(count, align_frames, request);
        Ok(found.map(FrameRange::start))
    };
    // SAFETY: the same contract.
    code(unsafe { allocate(request, address, find) })
}

/// Frees `count` frames from `address` on, as fl_free_frames does.
///
/// Errors of fl_free_frames, FL_IN_CALL. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_free_frames(
    cpu: *mut fl_cpu,
    address: u64,
    count: u64,
) -> fl_error {
    code((|| {
        let range = check::frames(address, count)?;
        // SAFETY: by the contract.
        Ok(unsafe { this(cpu) }?.free_frames(range)?)
    })())
}

/// Frees all that this CPU caches if another CPU has requested it; each other call does so, too.
/// For a handler of interrupts, or an idle loop.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL: the call that was interrupted, or the next
/// one, does it then. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_poll(cpu: *mut fl_cpu) -> fl_error {
    // SAFETY: by the contract.
    let this = unsafe { this(cpu) };
    code(this.and_then(|this| Ok(this.with(|cpu| cpu.poll())?)))
}

/// Frees all that this CPU caches, before it is idle for long.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL; FL_FREED_TWICE, and all is freed. On the
/// CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_drain(cpu: *mut fl_cpu) -> fl_error {
    // SAFETY: by the contract.
    let this = unsafe { this(cpu) };
    code(this.and_then(|this| Ok(this.with(|cpu| cpu.drain())??)))
}

/// Frees all that this CPU caches, and its number; `cpu` may be initialised again. Errors of
/// fl_cpu_drain; after FL_FREED_TWICE it is closed. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_close(cpu: *mut fl_cpu) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let state = unsafe { state(cpu) }?;
        let this = state.cpu()?;
        let closed = this.close();
        if !matches!(closed, Err(BlockError::Cpu(_))) {
            this.taken.store(false, Ordering::Release);
            state.tag.store(NOT_CREATED, Ordering::Release);
        }
        Ok(closed?)
    })())
}

/// Stores how many frames this CPU caches in `frames`.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL. On the CPU of `cpu`.
///
/// # Safety
/// `cpu` is null, misaligned, or points to the fl_cpu of this CPU; `frames` is, or points to a
/// number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_cpu_cached_frames(cpu: *mut fl_cpu, frames: *mut u64) -> fl_error {
    code((|| {
        let frames = check::pointer(frames)?;
        // SAFETY: by the contract; `frames` is not null, and aligned.
        unsafe {
            let cached = this(cpu)?.with(|cpu| cpu.cached_frames())?;
            frames.write(cached);
        }
        Ok(())
    })())
}
