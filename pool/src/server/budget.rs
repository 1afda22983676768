//! How much of the daemon's time a user may have: a bucket of processor time.
//!
//! A request is handled whatever is left, and what it took is subtracted; a user that is
//! in debt waits until the debt is repaid. So a flood costs the machine no more than its
//! share of one CPU, and the process behind it sleeps meanwhile.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Of each second, the part that one user may have: an eighth. Waking up for it costs the
/// daemon about as much again.
const SHARE: u32 = 8;

/// What a user may have at once after a pause: some hundred requests.
pub(super) const BURST: Duration = Duration::from_millis(20);

/// How long a user waits for its next turn at most, however much it has had.
pub(super) const MOST_DEBT: Duration = Duration::from_secs(1);

/// What is left to one user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// When the bucket is full, if nothing more is spent.
    full_at: Instant,
}

impl Budget {
    pub(super) fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Subtracts what a request took. What exceeds the largest debt is given to the user: a
    /// flood does not shut those out for long that share its number.
    pub(super) fn spend(&mut self, spent: Duration, now: Instant) {
        let most = now + BURST * SHARE + MOST_DEBT;
        self.full_at = (self.full_at.max(now) + spent * SHARE).min(most);
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// When the user is out of debt; `None` if it is not in debt.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let due = self.full_at.checked_sub(BURST * SHARE)?;
        (due > now).then_some(due)
    }
}

/// What this thread has used of the processor: what others take from it is no client's cost.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_once_then_an_eighth_of_the_time() {
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let mut budget = Budget::full(begin);
        assert!(budget.is_full(begin));
        budget.spend(BURST, begin);
        assert_eq!(budget.due(begin), None, "a burst is no debt");
        budget.spend(ms(1), begin);
        assert_eq!(budget.due(begin), Some(begin + ms(8)));
        assert_eq!(budget.due(begin + ms(8)), None, "repaid");
        // A request each 10 ms that takes 1 ms is within the share for ever.
        let mut now = begin + ms(8);
        for _ in 0..1000 {
            now += ms(10);
            budget.spend(ms(1), now);
            assert_eq!(budget.due(now), None);
        }
        assert!(budget.is_full(now + ms(8)));
        // What was not used is not kept beyond a burst.
        now += Duration::from_secs(3600);
        assert!(budget.is_full(now));
        budget.spend(BURST + ms(1), now);
        assert_eq!(budget.due(now), Some(now + ms(8)));
        budget.spend(ms(60_000), now);
        assert_eq!(budget.due(now), Some(now + MOST_DEBT));
    }
}
