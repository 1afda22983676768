//! Linux's threads as the engine's workers: [`Pinned`].

use crate::threads::pin_current;
use firstlight::parallel::{Worker, Workers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// A thread for each worker, worker `i` on CPU `i` of a list, round and round;
/// worker 0 is the calling thread, which is not pinned.
///
/// Workers belong to nodes of the machine that the engine works on, which may be
/// synthetic; CPUs are this machine's. A thread that panics is lost, as a CPU that
/// dies would be; one that cannot be started never comes. The engine finds and does
/// the work of either.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use firstlight::node::NodeId;
/// use firstlight::parallel::{Workers, Worker};
/// use firstlight_host::workers::Pinned;
///
/// let cpus = firstlight_host::threads::allowed_cpus()?;
/// let workers = [0, 1, 2].map(|node| Worker::new(NodeId(node)));
/// let sum = AtomicUsize::new(0);
/// Pinned::new(&cpus).run(&workers, &|index| {
///     sum.fetch_add(index + 1, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 6);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'a> {
    cpus: &'a [u32],
}

impl<'a> Pinned<'a> {
    /// Threads on `cpus`; anywhere if there are none.
    #[must_use]
    pub fn new(cpus: &'a [u32]) -> Self {
        Self { cpus }
    }
}

impl Workers for Pinned<'_> {
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        let done = |index| {
            // The engine does the work that a thread left when it panicked.
            let _ = catch_unwind(AssertUnwindSafe(|| work(index)));
        };
        thread::scope(|scope| {
            for index in 1..workers.len() {
                let cpu = self.cpus.get(index % self.cpus.len().max(1)).copied();
                let builder = thread::Builder::new().name(format!("worker{index}"));
                // One that cannot be started never comes.
                let _ = builder.spawn_scoped(scope, move || {
                    if let Some(cpu) = cpu {
                        // Refused where a container may not: it runs anywhere.
                        let _ = pin_current(cpu);
                    }
                    done(index);
                });
            }
            done(0);
        });
    }
}
