//! Threads that begin together, each on its CPU and timed by its own clock: [`Workers`].

use firstlight_host::clock::thread_cpu_ns;
use firstlight_host::threads::on_cpus;
use firstlight_workloads::pace::Pace;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait of a thread for the others; one may have failed to start.
const MOST_WAIT: Duration = Duration::from_millis(500);
/// Time of a portion of work, long beside a reading of the clock.
const PORTION_NS: u64 = 20_000;

/// The time of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    start: Instant,
    ns: u64,
    by_one: bool,
}

impl Limit {
    /// `ns` from now.
    pub(super) fn new(ns: u64) -> Self {
        let start = Instant::now();
        let by_one = false;
        Self { start, ns, by_one }
    }

    /// Checked after every operation if need be: for more threads than CPUs.
    pub(super) fn by_one(self, by_one: bool) -> Self {
        Self { by_one, ..self }
    }

    /// Nanoseconds since the beginning.
    pub(super) fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that are left.
    pub(super) fn left_ns(&self) -> u64 {
        self.ns.saturating_sub(self.elapsed_ns())
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.elapsed_ns() >= self.ns
    }

    /// One of `of` equal parts of the time that is left.
    pub(super) fn part(&self, of: u64) -> Self {
        let elapsed = self.elapsed_ns();
        let ns = elapsed + self.ns.saturating_sub(elapsed) / of.max(1);
        Self { ns, ..*self }
    }

    /// Work in portions, until the limit.
    pub(super) fn pace(&self) -> Pace<impl Fn() -> u64 + use<>> {
        let this = *self;
        let pace = Pace::new(move || this.elapsed_ns(), self.ns, PORTION_NS);
        if self.by_one { pace.by_one() } else { pace }
    }
}

/// Operations of a thread between two readings of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Operations.
    pub(super) operations: usize,
    /// CPU time of the thread.
    pub(super) cpu_ns: u64,
}

impl Part {
    /// Times `work`, which returns how many operations it did.
    #[inline]
    pub(super) fn of(work: impl FnOnce() -> usize) -> Self {
        let before = thread_cpu_ns();
        let operations = work();
        let cpu_ns = thread_cpu_ns().saturating_sub(before);
        Self { operations, cpu_ns }
    }

    /// The parts of several threads together.
    pub(super) fn sum(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            operations: sum.operations + part.operations,
            cpu_ns: sum.cpu_ns + part.cpu_ns,
        })
    }

    /// Nanoseconds an operation; `None` without operations.
    pub(super) fn ns_per_operation(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
        let ns = self.cpu_ns as f64 / self.operations as f64;
        ns.is_finite().then_some(ns)
    }
}

/// Where threads wait for each other before they begin.
#[derive(Debug)]
pub(super) struct Gate {
    expected: usize,
    arrived: AtomicUsize,
}

impl Gate {
    /// Waits for all others, at most [`MOST_WAIT`].
    pub(super) fn pass(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let since = Instant::now();
        while self.arrived.load(Ordering::Acquire) < self.expected && since.elapsed() < MOST_WAIT {
            thread::yield_now();
        }
    }
}

/// Threads, the one with index `i` on CPU `i` of a list, round and round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers<'c> {
    /// CPUs of this machine; not none.
    pub(super) cpus: &'c [u32],
    /// How many threads.
    pub(super) threads: usize,
}

impl Workers<'_> {
    /// Whether there are more threads than CPUs.
    pub(super) fn outnumber_cpus(&self) -> bool {
        self.threads > self.cpus.len()
    }

    /// The part of `all` that each thread may do at a time, so that together they do no
    /// more than one on each CPU would.
    pub(super) fn part_of(&self, all: usize) -> usize {
        (all * self.cpus.len() / self.threads.max(1)).clamp(1, all)
    }

    /// Runs `work(index, gate)` on all threads at once; each passes the gate once, when
    /// it is ready.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub(super) fn run<T: Send>(
        &self,
        work: impl Fn(usize, &Gate) -> T + Sync,
    ) -> io::Result<Vec<T>> {
        let cpus = self.cpus.iter().copied().cycle();
        let cpus: Vec<u32> = cpus.take(self.threads).collect();
        let gate = Gate {
            expected: cpus.len(),
            arrived: AtomicUsize::new(0),
        };
        let outcomes = on_cpus(&cpus, |index, _| work(index, &gate))?;
        Ok(outcomes.into_iter().map(|outcome| outcome.value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cpus_do_less_at_a_time() {
        for (cpus, threads, outnumber, part) in [
            (2, 1, false, 256),
            (2, 2, false, 256),
            (2, 3, true, 170),
            (2, 256, true, 2),
            (1, 256, true, 1),
            (1, 300, true, 1),
        ] {
            let cpus = vec![0; cpus];
            let workers = Workers {
                cpus: &cpus,
                threads,
            };
            assert_eq!(workers.outnumber_cpus(), outnumber, "{threads}");
            assert_eq!(workers.part_of(256), part, "{threads}");
        }
    }
}
