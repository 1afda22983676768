//! Stepping aside: filling pauses for a moment after memory was allocated.
//!
//! A VMM that was just given memory touches it, or has it pinned. For each touch of a huge
//! page hugetlbfs takes one of a few locks, eight for each CPU, and it holds one of them while
//! it zeroes a page of any file: mapping 8 GiB that are ready took 2 ms, and 29 ms while
//! another file was filled (16 locks, two CPUs).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From the allocation until a VMM has mapped the memory: it starts, then maps.
const PAUSE: Duration = Duration::from_millis(40);

/// When filling pauses; times count from any one moment.
///
/// At least as long as a pause was, filling goes on after it, however often memory is
/// allocated: a client that allocates and gives back in a loop halves the rate at most.
///
/// One thread notes allocations, and workers only read: without a lock, since a worker that
/// waits for an idle CPU would keep it.
#[derive(Debug, Default)]
pub(super) struct Aside {
    until_ns: AtomicU64,
    again_at_ns: AtomicU64,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Aside {
    /// Memory was allocated.
    pub(super) fn allocated(&self, now: Duration) {
        if ns(now) >= self.again_at_ns.load(Ordering::Relaxed) {
            self.until_ns.store(ns(now + PAUSE), Ordering::Relaxed);
            let again_at = ns(now + 2 * PAUSE);
            self.again_at_ns.store(again_at, Ordering::Relaxed);
        }
    }

    /// How long filling has to pause yet.
    pub(super) fn left(&self, now: Duration) -> Duration {
        let until = Duration::from_nanos(self.until_ns.load(Ordering::Relaxed));
        until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_after_an_allocation_and_half_of_the_time_at_most() {
        let ms = Duration::from_millis;
        let aside = Aside::default();
        assert!(aside.left(ms(0)).is_zero(), "nothing was allocated");
        aside.allocated(ms(1000));
        assert_eq!(aside.left(ms(1000)), PAUSE);
        assert_eq!(aside.left(ms(1010)), PAUSE - ms(10));
        assert!(aside.left(ms(1000) + PAUSE).is_zero());
        // One allocation each millisecond.
        let aside = Aside::default();
        let paused = (0..10_000).filter(|at| {
            aside.allocated(ms(*at));
            !aside.left(ms(*at)).is_zero()
        });
        assert_eq!(paused.count(), 5_000);
    }
}
