//! Nanoseconds since the process began.
//!
//! The kernel stamps a process's start in ticks of 10 ms, too coarse for
//! milestones of microseconds. [`Clock::start`] is therefore called as the
//! first statement of `main`; the loader's time before that is not counted.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// A monotonic clock (`CLOCK_MONOTONIC`) with its zero at [`Clock::start`].
///
/// ```
/// let clock = firstlight_host::clock::Clock::start();
/// let first = clock.now_ns();
/// assert!(clock.now_ns() >= first);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that counts from now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Nanoseconds since the start; saturates after 584 years.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// CPU time of the calling thread in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`): while
/// other threads have its CPU, this clock stands still.
///
/// ```
/// let first = firstlight_host::clock::thread_cpu_ns();
/// std::thread::sleep(std::time::Duration::from_millis(20));
/// let slept = firstlight_host::clock::thread_cpu_ns() - first;
/// assert!(slept < 20_000_000);
/// ```
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}
