//! The allocator: create it over a span, add memory, allocate and free.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use engine::addr::FrameRange;
use engine::frames::{CpuCache, Frames};

use crate::check;
use crate::error::code;
use crate::error::fl_error::{self, *};
use crate::request::{allocate, fl_request};

/// 64-bit words of an fl_frames.
pub const FL_FRAMES_WORDS: usize = 128;

/// An allocator of page frames, in storage of the caller: a static, or other memory that stays
/// where it is for as long as frames are allocated. All zero before fl_create; to start anew,
/// make it zero again once nothing uses it.
///
/// Addresses and sizes of memory are physical, in bytes; counts are in frames of 4 KiB. The memory
/// itself is never read or written.
#[repr(C, align(64))]
pub struct fl_frames {
    opaque: [u64; FL_FRAMES_WORDS],
}

const NOT_CREATED: u32 = 0;
const CREATING: u32 = 1;
const CREATED: u32 = 0x464c_0001;

/// What lies in an [`fl_frames`]. Zero is a state: nothing was created.
#[repr(C)]
struct State {
    /// Stored Release once `created` is there; pairs with the Acquire of each call.
    tag: AtomicU32,
    created: UnsafeCell<MaybeUninit<Created>>,
}

struct Created {
    frames: Frames<'static>,
    cpus: Cpus,
}

/// Of all CPUs, by their numbers.
#[derive(Clone, Copy)]
pub(crate) struct Cpus {
    pub(crate) caches: &'static [CpuCache],
    /// Whether an fl_cpu has it.
    pub(crate) taken: &'static [AtomicBool],
}

const _: () = assert!(size_of::<State>() <= size_of::<fl_frames>());
const _: () = assert!(align_of::<State>() <= align_of::<fl_frames>());

/// # Safety
/// `from` is null, misaligned, or points to storage that only functions of this library use,
/// zero at first.
unsafe fn state<'a>(from: *const fl_frames) -> Result<&'a State, fl_error> {
    let pointer = check::pointer(from.cast_mut())?.cast::<State>();
    // SAFETY: by the contract: large enough and aligned (asserted above), and zero is a `State`.
    Ok(unsafe { pointer.as_ref() })
}

/// The allocator in `from`.
///
/// # Safety
/// As of [`state`]; and the storage stays as it is for as long as the result is used.
pub(crate) unsafe fn created(from: *const fl_frames) -> Result<&'static Frames<'static>, fl_error> {
    // SAFETY: the same contract.
    Ok(&unsafe { all(from) }?.frames)
}

/// The CPUs of the allocator in `from`.
///
/// # Safety
/// As of [`created`].
pub(crate) unsafe fn cpus(from: *const fl_frames) -> Result<Cpus, fl_error> {
    // SAFETY: the same contract.
    Ok(unsafe { all(from) }?.cpus)
}

/// # Safety
/// As of [`created`].
unsafe fn all(from: *const fl_frames) -> Result<&'static Created, fl_error> {
    // SAFETY: the same contract.
    let state = unsafe { state::<'static>(from) }?;
    if state.tag.load(Ordering::Acquire) != CREATED {
        return Err(FL_NOT_CREATED);
    }
    // SAFETY: written before the tag, and only shared since.
    Ok(unsafe { (*state.created.get()).assume_init_ref() })
}

const ALIGN: usize = align_of::<CpuCache>();

/// Bytes that the caches of `cpus` CPUs take, and the alignment of what the caller provides.
fn caches_bytes(cpus: u32) -> u64 {
    let each = size_of::<CpuCache>() + size_of::<AtomicBool>();
    u64::from(cpus) * each as u64 + ALIGN as u64
}

/// Bytes of memory that fl_create needs for a span of `span_bytes` from `span_start` on, both in
/// bytes and multiples of a frame, if memory comes with at most `holes` holes at a time (before,
/// between and after what was added or adopted), and for `cpus` CPUs: stored in `bytes`. About
/// 34 bytes for each MiB of the span, of which little is written before that MiB is used, and
/// 12 KiB for each CPU.
///
/// FL_NULL, FL_UNALIGNED, FL_BAD_SPAN, FL_TOO_LARGE. Any CPU, any handler, at any time.
///
/// # Safety
/// `bytes` is null, misaligned, or points to a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_bytes_for(
    span_start: u64,
    span_bytes: u64,
    holes: u32,
    cpus: u32,
    bytes: *mut u64,
) -> fl_error {
    code((|| {
        let bytes = check::pointer(bytes)?;
        let span = check::span(span_start, span_bytes)?;
        let holes = usize::try_from(holes).map_err(|_| FL_TOO_LARGE)?;
        let tables = Frames::bytes_for(span, holes).ok_or(FL_TOO_LARGE)?;
        let all = tables.checked_add(caches_bytes(cpus)).ok_or(FL_TOO_LARGE)?;
        // SAFETY: not null, aligned, the caller's.
        unsafe { bytes.write(all) };
        Ok(())
    })())
}

/// Creates an allocator for the `span_bytes` from `span_start` on: where memory may be. There is
/// none yet: fl_add and fl_adopt say where it is. Its tables lie in the `memory_bytes` from
/// `memory` on (fl_bytes_for; any alignment, any content), which belong to the allocator from then
/// on; they may be a part of the span that is never added. CPUs 0 to `cpus` - 1 can have caches
/// (fl_cpu_init). One node, 0, with zones by address.
///
/// FL_NULL, FL_UNALIGNED, FL_ALREADY_CREATED, FL_BAD_SPAN, FL_NO_SPACE, FL_TOO_LARGE. Once for an
/// fl_frames; other calls with it come after.
///
/// # Safety
/// `frames` is null, misaligned, or points to storage that is zero and that only this library
/// uses from now on; `memory` likewise, but for the zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_create(
    frames: *mut fl_frames,
    span_start: u64,
    span_bytes: u64,
    cpus: u32,
    memory: *mut c_void,
    memory_bytes: usize,
) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let state = unsafe { state(frames) }?;
        if memory.is_null() {
            return Err(FL_NULL);
        }
        let span = check::span(span_start, span_bytes)?;
        let fits = memory.addr().checked_add(memory_bytes).is_some();
        if !fits || isize::try_from(memory_bytes).is_err() {
            return Err(FL_TOO_LARGE);
        }
        let tag = &state.tag;
        let (old, new) = (NOT_CREATED, CREATING);
        if tag
            .compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return Err(FL_ALREADY_CREATED);
        }
        // SAFETY: the caller's memory, all of it within an object.
        let memory = unsafe { slice::from_raw_parts_mut(memory.cast(), memory_bytes) };
        let built = split(memory, cpus).and_then(|(cpus, tables)| {
            let frames = Frames::over(span, tables)?;
            // Of an allocator that is new.
            let _ = frames.provide_cpus(cpus.caches);
            Ok(Created { frames, cpus })
        });
        match built {
            Ok(built) => {
                // SAFETY: only this call has the tag `CREATING`, and no other reads before the
                // store that follows.
                unsafe { (*state.created.get()).write(built) };
                tag.store(CREATED, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                tag.store(NOT_CREATED, Ordering::Release);
                Err(error)
            }
        }
    })())
}

type Memory = &'static mut [MaybeUninit<u8>];

/// Caches for `cpus` CPUs at the start of `memory`, and the rest.
fn split(memory: Memory, cpus: u32) -> Result<(Cpus, Memory), fl_error> {
    let cpus = usize::try_from(cpus).map_err(|_| FL_NO_SPACE)?;
    let skipped = memory.as_ptr().align_offset(ALIGN);
    let (_, memory) = memory.split_at_mut_checked(skipped).ok_or(FL_NO_SPACE)?;
    // SAFETY: caches that no CPU has used, and flags that are not set, are all zero.
    let (caches, memory) = unsafe { list::<CpuCache>(memory, cpus)? };
    // SAFETY: as above.
    let (taken, memory) = unsafe { list::<AtomicBool>(memory, cpus)? };
    Ok((Cpus { caches, taken }, memory))
}

/// So many entries at the start of `memory`, which is aligned for them, and the rest. They are set to zero where
/// they lie: a CPU's cache made first would need more stack than a kernel has at its start.
///
/// # Safety
/// A `T` may be all zero.
unsafe fn list<T>(memory: Memory, count: usize) -> Result<(&'static [T], Memory), fl_error> {
    let bytes = count.checked_mul(size_of::<T>()).ok_or(FL_NO_SPACE)?;
    let (list, rest) = memory.split_at_mut_checked(bytes).ok_or(FL_NO_SPACE)?;
    let start = list.as_mut_ptr().cast::<T>();
    // SAFETY: within `list`, and this function's alone.
    unsafe { start.write_bytes(0, count) };
    // SAFETY: aligned, all of them were just written, and zero is one.
    Ok((unsafe { slice::from_raw_parts(start, count) }, rest))
}

/// Adds the `bytes` bytes of memory from `start` on, both multiples of a frame: all of it is free
/// from now on. What of it is in use is left out, or adopted.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_MISALIGNED, FL_OUTSIDE_SPAN, FL_PRESENT, FL_LIST_FULL;
/// FL_NOT_ALLOCATED if another call freed some of it, which was absent, at that moment. Any CPU, at
/// any time, also while others allocate.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_add(frames: *mut fl_frames, start: u64, bytes: u64) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        Ok(frames.add(check::bytes(start, bytes)?)?)
    })())
}

/// Adds memory that is in use already, for instance the page tables of the boot loader: it is
/// allocated from now on, so that it can be freed, whole or in parts.
///
/// Errors and callers as of fl_add.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_adopt(frames: *mut fl_frames, start: u64, bytes: u64) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        Ok(frames.adopt(check::bytes(start, bytes)?)?)
    })())
}

/// Allocates the block of `request` and stores its address in `address`; fl_free frees it.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_BAD_ORDER, FL_BAD_FLAGS, FL_NO_SUCH_NODE,
/// FL_NO_SUCH_ZONE, FL_OUT_OF_MEMORY. Any CPU; a handler of interrupts only if it cannot have
/// interrupted, on its CPU, any call that allocates, frees, adds or counts. It takes no lock and
/// does not sleep. fl_cpu_allocate is faster.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames; `request` and `address` are, or point
/// to a request and a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_allocate(
    frames: *mut fl_frames,
    request: *const fl_request,
    address: *mut u64,
) -> fl_error {
    // SAFETY: the same contract.
    code(unsafe {
        allocate(request, address, |request| {
            Ok(created(frames)?.allocate(request))
        })
    })
}

/// Frees a block of 2^order frames from `address` on: one that was allocated or adopted, any
/// aligned part of it, or several that make up an aligned whole.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_BAD_ORDER, FL_MISALIGNED, FL_OUTSIDE_SPAN,
/// FL_ABSENT, FL_NOT_ALLOCATED. Callers as of fl_allocate.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_free(frames: *mut fl_frames, address: u64, order: u32) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        Ok(frames.free(check::frame(address)?, check::order(order)?)?)
    })())
}

/// Allocates `count` contiguous frames, any number of them, the first a multiple of `align_frames`
/// frames (a power of two; 1 is any frame), and stores the address in `address`. Nothing is
/// rounded up. `request` says where, and its order is a least alignment; fl_free_frames frees
/// them, whole or in parts.
///
/// Errors of fl_allocate, FL_NO_FRAMES, FL_BAD_ALIGNMENT. Callers as of fl_allocate.
///
/// # Safety
/// As of fl_allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_allocate_frames(
    frames: *mut fl_frames,
    count: u64,
    align_frames: u64,
    request: *const fl_request,
    address: *mut u64,
) -> fl_error {
    let find = |request| {
        // SAFETY: the same contract.
        let found = unsafe { created(frames) }?.allocate_frames(count, align_frames, request);
        Ok(found.map(FrameRange::start))
    };
    // SAFETY: the same contract.
    code(unsafe { allocate(request, address, find) })
}

/// Frees `count` frames from `address` on, however they were allocated: all of them or none.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_NO_FRAMES, FL_MISALIGNED, FL_OUTSIDE_SPAN,
/// FL_ABSENT, FL_NOT_ALLOCATED. Callers as of fl_allocate.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_free_frames(
    frames: *mut fl_frames,
    address: u64,
    count: u64,
) -> fl_error {
    code((|| {
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        Ok(frames.free_frames(check::frames(address, count)?)?)
    })())
}
