//! What other CPUs cache, and how to get it: [`fl_drain`].

use core::mem::MaybeUninit;

use engine::frames::DrainRequest;

use crate::check;
use crate::error::code;
use crate::error::fl_error::{self, *};
use crate::frames::{created, fl_frames};

/// 64-bit words of an fl_drain.
pub const FL_DRAIN_WORDS: usize = 4;
/// No further CPU.
pub const FL_NO_CPU: u32 = u32::MAX;

/// A request to CPUs to free what they cache, see fl_request_drain.
#[repr(C)]
pub struct fl_drain {
    opaque: [u64; FL_DRAIN_WORDS],
}

const REQUESTED: u64 = 0x464c_6472_6169_6e01;

/// What lies in an [`fl_drain`].
#[repr(C)]
struct State {
    tag: u64,
    request: MaybeUninit<DrainRequest<'static>>,
}

const _: () = assert!(size_of::<State>() <= size_of::<fl_drain>());
const _: () = assert!(align_of::<State>() <= align_of::<fl_drain>());

/// Requests that all CPUs that cache something free it, and stores the request in `drain`. After
/// FL_OUT_OF_MEMORY with frames held by CPUs: each CPU frees them at its next call, or when it
/// calls fl_cpu_poll, to which the caller interrupts those that fl_drain_next_cpu names. Then it
/// waits until fl_drain_pending_frames is 0, for a bounded time, and tries again.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Any CPU, outside of locks and with interrupts on, for
/// else two CPUs that wait for each other wait for ever; this CPU's own cache is one of them.
///
/// # Safety
/// `frames` is null, misaligned, or points to an fl_frames; `drain` is, or points to an fl_drain
/// of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_request_drain(
    frames: *mut fl_frames,
    drain: *mut fl_drain,
) -> fl_error {
    code((|| {
        let drain = check::pointer(drain)?.cast::<State>();
        // SAFETY: by the contract.
        let frames = unsafe { created(frames) }?;
        let request = frames.request_drain();
        let state = State {
            tag: REQUESTED,
            request: MaybeUninit::new(request),
        };
        // SAFETY: not null, aligned and large enough (asserted above), the caller's.
        unsafe { drain.write(state) };
        Ok(())
    })())
}

/// The request in `drain`.
///
/// # Safety
/// `drain` is null, misaligned, or points to an fl_drain, whose allocator is there.
unsafe fn requested(drain: *const fl_drain) -> Result<DrainRequest<'static>, fl_error> {
    let drain = check::pointer(drain.cast_mut())?.cast::<State>();
    // SAFETY: by the contract. The first word is a number whatever it holds; the rest was
    // written together with it.
    unsafe {
        if (*drain.as_ptr()).tag != REQUESTED {
            return Err(FL_NOT_CREATED);
        }
        Ok((*drain.as_ptr()).request.assume_init())
    }
}

/// Stores the frames that CPUs cache whose drain is pending in `pending_frames`: 0 once all have
/// drained.
///
/// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Any CPU, at any time after fl_request_drain.
///
/// # Safety
/// `drain` is null, misaligned, or points to what fl_request_drain stored; `pending_frames` is, or
/// points to a number of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_drain_pending_frames(
    drain: *const fl_drain,
    pending_frames: *mut u64,
) -> fl_error {
    code((|| {
        let pending = check::pointer(pending_frames)?;
        // SAFETY: by the contract; `pending` is not null, and aligned.
        unsafe { pending.write(requested(drain)?.pending_frames()) };
        Ok(())
    })())
}

/// The first CPU from number `from` on whose drain is pending, or FL_NO_CPU; also a CPU that
/// caches nothing, for in the middle of a call it may do so in a moment. FL_NO_CPU where `drain`
/// is NULL, not aligned, or holds no request. Any CPU, at any time after fl_request_drain.
///
/// # Safety
/// `drain` is null, misaligned, or points to what fl_request_drain stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_drain_next_cpu(drain: *const fl_drain, from: u32) -> u32 {
    // SAFETY: by the contract.
    let Ok(request) = (unsafe { requested(drain) }) else {
        return FL_NO_CPU;
    };
    let mut pending = request.cpus().filter_map(|cpu| u32::try_from(cpu).ok());
    pending.find(|cpu| *cpu >= from).unwrap_or(FL_NO_CPU)
}
