//! Linux's threads as the engine's crew: [`Pinned`].

use crate::threads::pin_current;
use firstlight::parallel::{Worker, Workers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// A thread for each seat, the one in seat `i` on CPU `i` of a list, round and
/// round; seat 0 is the caller's own thread, which stays where it is.
///
/// Seats are nodes of the machine the engine works on, which may be made up;
/// CPUs are this machine's. A thread that panics is gone, as a CPU that dies
/// would be, and no more; one that cannot be started never comes.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use firstlight::node::NodeId;
/// use firstlight::parallel::{Workers, Worker};
/// use firstlight_host::crew::Pinned;
///
/// let cpus = firstlight_host::threads::allowed_cpus()?;
/// let seats = [0, 1, 2].map(|node| Worker::new(NodeId(node)));
/// let ran = AtomicUsize::new(0);
/// Pinned::new(&cpus).run(&seats, &|index| {
///     ran.fetch_add(index + 1, Ordering::Relaxed);
/// });
/// assert_eq!(ran.into_inner(), 6);
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
    fn run(&self, seats: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        let done = |index| {
            // What a thread that died left is found and done by the engine.
            let _ = catch_unwind(AssertUnwindSafe(|| work(index)));
        };
        thread::scope(|scope| {
            for index in 1..seats.len() {
                let cpu = self.cpus.get(index % self.cpus.len().max(1)).copied();
                let builder = thread::Builder::new().name(format!("seat{index}"));
                // A thread that cannot be had is one that never comes.
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
