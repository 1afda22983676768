//! A giant frame, or more, zeroed by several CPUs: [`zero`].

use super::Memory;
use crate::addr::FrameRange;
use crate::node::NodeId;
use crate::parallel::{Chunking, Job, JobError, Report, WorkRange, Worker, Workers, run};

/// Zeroes `range`, memory of `node`, on the CPUs of `workers`, which `threads` starts: in chunks of
/// 128 MiB, so a giant frame by up to eight. A kernel's
/// [`Hooks::zero`](crate::frames::Hooks::zero) calls it for large blocks.
///
/// ```
/// use firstlight_frames::addr::{Frame, FrameRange, Order};
/// use firstlight_frames::node::NodeId;
/// use firstlight_memmap::parallel::{Worker, Workers};
/// use firstlight_workers::zeroing::{self, Memory};
///
/// /// What a kernel's hook does with a giant frame, on the CPUs that are idle.
/// fn zero_giant(memory: &impl Memory, frame: Frame, idle: &mut [Worker], start: &impl Workers) {
///     let range = FrameRange::block(frame, Order::GIANT).unwrap();
///     // SAFETY: the hook was called for it; no other code has it yet.
///     let done = unsafe { zeroing::zero_on_cpus(memory, NodeId(0), range, idle, start) };
///     if done.is_err() {
///         // No CPU is idle. SAFETY: as above.
///         unsafe { memory.zero(range) };
///     }
/// }
/// ```
///
/// # Safety
/// As for [`Memory::zero`]: no other code uses the frames meanwhile.
///
/// # Errors
/// [`JobError::NoThreads`] without workers: nothing was zeroed.
pub unsafe fn zero<M: Memory + ?Sized, W: Workers + ?Sized>(
    memory: &M,
    node: NodeId,
    range: FrameRange,
    workers: &mut [Worker],
    threads: &W,
) -> Result<Report, JobError> {
    let mut ranges = [WorkRange::new(node, range)];
    let job = Job::sections(Chunking::Stealing);
    run(&job, &mut ranges, workers, threads, &|chunk| {
        // SAFETY: a part of `range`, which the caller gave up.
        unsafe { memory.zero(chunk) }
    })
}
