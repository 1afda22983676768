//! Work that takes time: filling, topping up, emptying, zeroing in place, and
//! putting back what guests gave back (`refill.rs`; what must be reserved for that, a process of its own reserves:
//! `mapper.rs`).
//!
//! A [`Worker`] is a thread with a queue. Workers that fill in the background
//! stay out of everybody's way (`SCHED_IDLE`), take memory from one node, keep
//! to a rate that all of them share, and pause under memory pressure and for a moment after an
//! allocation.
//! The worker for what a client waits for does none of this.
//!
//! In the middle of a page no worker keeps out of the way: the kernel holds locks
//! meanwhile that others wait for, also those that use files of their own
//! (`work.rs`).
//!
//! Zeros come from the kernel (`work.rs`), batch by batch, so that a worker can
//! be told to stop and nothing else waits long for a file's lock.

mod aside;
mod batches;
pub mod mapper;
mod pace;
mod refill;
mod watch;
mod work;

pub use batches::Batches;
pub use mapper::Mapper;
pub use pace::Pace;
pub use refill::{Refill, Scan, Tenure};
pub use watch::Watch;
pub use work::Work;

use crate::os::hugepages::SYS;
use crate::os::threads::Threads;
use crate::os::{background, cpus, memory_file};
use crate::store::NewSlab;
use crate::store::slab::Slab;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What is worked on.
#[derive(Debug)]
pub enum Subject {
    /// A file that is there.
    File(Arc<OwnedFd>),
    /// A slab that is made first.
    New(Box<NewSlab>),
}

impl From<Arc<OwnedFd>> for Subject {
    fn from(file: Arc<OwnedFd>) -> Self {
        Self::File(file)
    }
}

impl Subject {
    /// The file, and the slab if it was made now.
    fn file(self) -> io::Result<(Arc<OwnedFd>, Option<Slab>)> {
        match self {
            Self::File(file) => Ok((file, None)),
            Self::New(new) => new.make().map(|slab| (slab.file(), Some(slab))),
        }
    }
}

/// One piece of work on one file.
#[derive(Debug)]
pub struct Job<T> {
    /// Comes back with the result.
    pub ticket: T,
    /// What it is done to.
    pub subject: Subject,
    /// What to do with it.
    pub work: Work,
    /// Set when it need not be finished.
    pub cancel: Arc<AtomicBool>,
    /// Bytes done so far.
    pub done_bytes: Arc<AtomicU64>,
    /// A lease that is over: what was under way for it comes to its end first.
    pub after: Option<Arc<Tenure>>,
}

impl<T> Job<T> {
    /// Work that is to be done in any case, from the beginning.
    #[must_use]
    pub fn new(ticket: T, subject: impl Into<Subject>, work: Work) -> Self {
        Self {
            ticket,
            subject: subject.into(),
            work,
            cancel: Arc::default(),
            done_bytes: Arc::default(),
            after: None,
        }
    }
}

/// What became of it.
#[derive(Debug)]
pub struct Done<T> {
    /// The job's.
    pub ticket: T,
    /// Bytes the kernel zeroed.
    pub zeroed_bytes: u64,
    /// Of these, bytes that were zeroed twice.
    pub zeroed_twice_bytes: u64,
    /// Time spent on them, waiting left out.
    pub zeroing_ns: u64,
    /// Of a [`Refill`], the pages that were holes.
    pub refilled_pages: Vec<u64>,
    /// Of [`Work::Empty`] and [`Work::ZeroInPlace`], whether no other process has the file then. One of
    /// which the kernel says nothing counts as held.
    pub is_alone: bool,
    /// The slab that was made for it.
    pub made: Option<Slab>,
    /// Whether all of it was done.
    pub result: io::Result<()>,
}

/// How a worker behaves.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Runs only where a CPU has nothing else to do, at this pace.
    pub background: Option<Arc<Pace>>,
    /// Works on memory that others use meanwhile: where it could not come back
    /// for a page, it does not keep out of the way at all.
    pub shared: bool,
    /// Takes memory from this node only, and runs on its CPUs; without one, memory comes
    /// from all nodes in turn.
    pub node: Option<u32>,
    /// Runs on these CPUs instead; on any when empty.
    pub cpus: Vec<usize>,
    /// In the background an ordinary thread of this weight, instead of one that runs only
    /// where a CPU has nothing else to do.
    pub nice: Option<u8>,
    /// Bytes asked of the kernel at once.
    pub batch_bytes: u64,
    /// Maps files of clients.
    pub mapper: Arc<Mapper>,
}

/// A thread that works through a queue until the queue is dropped.
#[derive(Debug)]
pub struct Worker<T> {
    queue: Sender<Job<T>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts one, on a thread that is ready; `report` is called there after each job.
    ///
    /// # Errors
    /// No thread is ready.
    pub fn start(
        threads: &Threads,
        name: &str,
        policy: Policy,
        report: impl Fn(Done<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel();
        threads.start(name, move || serve(jobs, &policy, &report))?;
        Ok(Self { queue })
    }

    /// One for a test.
    #[cfg(test)]
    pub(crate) fn alone(
        policy: Policy,
        report: impl Fn(Done<T>) + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(&Threads::new()?, "test", policy, report)
    }

    /// Appends a job.
    ///
    /// # Errors
    /// The job itself, where the worker is no more.
    pub fn send(&self, job: Job<T>) -> Result<(), Job<T>> {
        self.queue.send(job).map_err(|refused| refused.0)
    }
}

/// Works through jobs on this thread, which behaves in this way from then on.
pub fn serve<T>(
    jobs: impl IntoIterator<Item = Job<T>>,
    policy: &Policy,
    report: &impl Fn(Done<T>),
) {
    // Refused where a container forbids it: then it is an ordinary thread that
    // keeps to its rate. So is one that could not come back for a page.
    // The thread that started this one may have more weight.
    let _ = background::run_nicely(0);
    let comes_back = policy.background.is_some() && background::may_come_back();
    let is_idle = match policy.nice {
        _ if policy.background.is_none() => false,
        Some(nice) => {
            // Refused, it has the usual weight.
            let _ = background::run_nicely(nice);
            false
        }
        None => (!policy.shared || comes_back) && background::run_when_idle().is_ok(),
    };
    stay_near(policy);
    let bound = take_memory(policy.node);
    let mut paid = batches::Paid::new();
    for job in jobs {
        let mut batches = Batches::new(policy, &job.cancel, &job.done_bytes, &mut paid);
        batches.comes_back = is_idle && comes_back;
        if let Some(tenure) = &job.after {
            tenure.settle();
        }
        let looks = job.work.ends_with_a_look();
        let is_new = matches!(job.subject, Subject::New(_));
        if is_new && batches.comes_back {
            // All that is mounted waits for one that is being made. Aside again behind the slab's first page: a CPU was
            // idle for both.
            let _ = background::run_as_usual();
        }
        let (result, is_alone, made) = match job.subject.file() {
            Err(error) => (Err(error), false, None),
            Ok((file, made)) => {
                let result = match &bound {
                    Err(error) if policy.node.is_some() => Err(io::Error::other(format!(
                        "cannot take memory from node {}: {error}",
                        policy.node.unwrap_or_default()
                    ))),
                    _ => job.work.run(&file, &mut batches),
                };
                // Here, where a look may wait: any process can hold the lock that it needs.
                let is_alone = looks && memory_file::has_no_other_holder(&*file).unwrap_or(false);
                // The file is let go of before others hear of it.
                (result, is_alone, made)
            }
        };
        if is_new && batches.comes_back {
            let _ = background::run_when_idle();
        }
        let (zeroed_bytes, zeroing_ns) = batches.spent();
        let zeroed_twice_bytes = batches.twice_bytes();
        let refilled_pages = batches.take_refilled();
        report(Done {
            ticket: job.ticket,
            zeroed_bytes,
            zeroed_twice_bytes,
            zeroing_ns,
            refilled_pages,
            is_alone,
            made,
            result,
        });
    }
}

/// To the CPUs that the memory is near to. Refused, as in a container, it runs anywhere.
fn stay_near(policy: &Policy) {
    let near = match policy.node {
        _ if !policy.cpus.is_empty() => Some(&policy.cpus),
        Some(node) => nodes().get(&node),
        None => None,
    };
    if let Some(near) = near.filter(|near| !near.is_empty()) {
        let _ = cpus::stay_on(near);
    }
}

/// Nodes that have memory, and their CPUs, as they were when this was first asked: any process can keep all waiting that
/// look for a file of `/sys`.
pub fn nodes() -> &'static BTreeMap<u32, Vec<usize>> {
    static NODES: OnceLock<BTreeMap<u32, Vec<usize>>> = OnceLock::new();
    let with_cpus = |node| {
        (
            node,
            cpus::of_node(Path::new(SYS), node).unwrap_or_default(),
        )
    };
    NODES.get_or_init(|| {
        let nodes = cpus::nodes(Path::new(SYS));
        nodes.into_iter().map(with_cpus).collect()
    })
}

/// From one node, or from all of them in turn, so that none is emptied before the others.
fn take_memory(node: Option<u32>) -> io::Result<()> {
    let nodes = nodes();
    if node.is_none() && nodes.len() > 1 {
        // Refused, it comes from wherever the kernel takes it.
        let _ = background::take_memory_in_turn_from(&nodes.keys().copied().collect::<Vec<_>>());
        return Ok(());
    }
    background::take_memory_from(node)
}

/// Whether the moment has passed.
fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

#[cfg(test)]
mod refill_tests;
#[cfg(test)]
mod tests;
