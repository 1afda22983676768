//! A job from start to end: [`run`].

use super::queue::Queue;
use super::{Job, JobError, Report, WorkRange, Worker, Workers};
use crate::addr::FrameRange;

/// Does `work` once for every chunk of `ranges` on the CPUs of `workers`, which
/// `threads` starts.
///
/// With one worker this is a direct call on the calling CPU.
///
/// ```
/// use firstlight_frames::addr::FrameRange;
/// use firstlight_frames::node::NodeId;
/// use firstlight_memmap::parallel::{Chunking, Job, WorkRange, Worker, Workers, run};
///
/// struct Threads;
/// impl Workers for Threads {
///     fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
///         std::thread::scope(|scope| {
///             for index in 0..workers.len() {
///                 scope.spawn(move || work(index));
///             }
///         });
///     }
/// }
///
/// let mut ranges = [WorkRange::new(NodeId(0), FrameRange::new(0, 1 << 18).unwrap())];
/// let mut workers = [Worker::new(NodeId(0)), Worker::new(NodeId(0))];
/// let frames = std::sync::atomic::AtomicU64::new(0);
/// let work = |chunk: FrameRange| {
///     frames.fetch_add(chunk.count(), std::sync::atomic::Ordering::Relaxed);
/// };
/// let job = Job::sections(Chunking::Stealing);
/// let report = run(&job, &mut ranges, &mut workers, &Threads, &work)?;
/// assert_eq!((report.chunks, frames.into_inner()), (8, 1 << 18));
/// # Ok::<(), firstlight_memmap::parallel::JobError>(())
/// ```
///
/// # Errors
/// [`JobError`]: a job without threads, or whose chunks cut sections; nothing was
/// done then.
pub fn run<W: Workers + ?Sized>(
    job: &Job,
    ranges: &mut [WorkRange],
    workers: &mut [Worker],
    threads: &W,
    work: &(dyn Fn(FrameRange) + Sync),
) -> Result<Report, JobError> {
    let queue = Queue::prepare(job, ranges, workers)?;
    if let [_] = queue.workers() {
        queue.work(0, work);
    } else {
        threads.run(queue.workers(), &|index| queue.work(index, work));
    }
    Ok(queue.finish(work))
}
