//! Jobs over frame ranges, done by many CPUs: [`run`].
//!
//! A kernel has ranges of frames (its [`Share`]s, each of a node), CPUs to
//! spare (its [`Seat`]s, each on a node) and a way to make them work (its
//! [`Crew`]). A [`Job`] says how ranges are cut into chunks and who may take
//! which:
//!
//! - [`Chunking::Padata`] does as Linux does: a range belongs to the CPUs of
//!   its node, the number of threads and the size of a chunk follow a formula;
//! - [`Chunking::Stealing`] is ours: one queue over all nodes. A thread does
//!   its own node's chunks first, then helps the others, so that nodes without
//!   CPUs are served and nobody waits for the slowest node.
//!
//! A thread that dies leaves its chunk behind: the caller of [`run`] does it
//! again once the others are through, so work must bear being done twice.
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | how many threads, how large a chunk: pure functions |
//! | `queue` | shares, seats, and taking a chunk, once, from any CPU |
//! | `error` | what is refused, and why |
#![deny(unsafe_code)]

mod error;
mod plan;
mod queue;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use error::JobError;
pub use plan::{Chunking, Job, Plan};
pub use queue::{Seat, Share};

use crate::addr::FrameRange;
use queue::Queue;

/// CPUs that can be made to work; what the kernel provides.
pub trait Crew {
    /// Runs `work(index)` for each of `seats`, all at the same time, each on a
    /// CPU of that seat's node if there is one, and returns when every thread
    /// has returned or died: unwound, out of `work`. What they wrote is seen by
    /// who called. A crew may run fewer threads than asked, none
    /// even: what nobody did, the caller of [`run`] does.
    fn run(&self, seats: &[Seat], work: &(dyn Fn(usize) + Sync));
}

/// No other CPU: all of the work is done where it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Crew for Alone {
    fn run(&self, seats: &[Seat], work: &(dyn Fn(usize) + Sync)) {
        for index in 0..seats.len() {
            work(index);
        }
    }
}

/// What a job came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Frames in all shares.
    pub frames: u64,
    /// Chunks they were cut into.
    pub chunks: u64,
    /// Threads that took at least one chunk; the caller that did left-over
    /// chunks is not among them.
    pub threads: u32,
    /// Chunks whose thread died, done again by the caller.
    pub redone_chunks: u64,
    /// Chunks that no thread came for, done by the caller.
    pub left_chunks: u64,
}

/// Does `work` once for every chunk of `shares` on the CPUs of `crew`.
///
/// With one seat this is a direct call on the calling CPU.
///
/// ```
/// use firstlight::addr::FrameRange;
/// use firstlight::node::NodeId;
/// use firstlight::parallel::{Chunking, Crew, Job, Seat, Share, run};
///
/// struct Threads;
/// impl Crew for Threads {
///     fn run(&self, seats: &[Seat], work: &(dyn Fn(usize) + Sync)) {
///         std::thread::scope(|scope| {
///             for index in 0..seats.len() {
///                 scope.spawn(move || work(index));
///             }
///         });
///     }
/// }
///
/// let mut shares = [Share::new(NodeId(0), FrameRange::new(0, 1 << 18).unwrap())];
/// let mut seats = [Seat::new(NodeId(0)), Seat::new(NodeId(0))];
/// let frames = std::sync::atomic::AtomicU64::new(0);
/// let work = |chunk: FrameRange| {
///     frames.fetch_add(chunk.count(), std::sync::atomic::Ordering::Relaxed);
/// };
/// let report = run(&Job::sections(Chunking::Stealing), &mut shares, &mut seats, &Threads, &work)?;
/// assert_eq!((report.chunks, frames.into_inner()), (8, 1 << 18));
/// # Ok::<(), firstlight::parallel::JobError>(())
/// ```
///
/// # Errors
/// [`JobError`]: a job that makes no sense; nothing was done then.
pub fn run<C: Crew + ?Sized>(
    job: &Job,
    shares: &mut [Share],
    seats: &mut [Seat],
    crew: &C,
    work: &(dyn Fn(FrameRange) + Sync),
) -> Result<Report, JobError> {
    let queue = Queue::prepare(job, shares, seats)?;
    if let [_] = queue.seats() {
        queue.work(0, work);
    } else {
        crew.run(queue.seats(), &|index| queue.work(index, work));
    }
    Ok(queue.finish(work))
}
