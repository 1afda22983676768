//! Pacing: background work at a rate, whatever the speed of the machine.
//!
//! A [`Pacer`] is a bucket that fills with bytes at a rate and holds at most one
//! burst. Work is asked for in batches before it is done; a batch that the
//! bucket cannot pay for yet is told how long to wait. The clock is the
//! caller's, so the same decisions can be tested without one.

use std::time::Duration;

/// Billions of a byte: what one nanosecond adds at one byte a second.
const PARTS: u128 = 1_000_000_000;

/// How fast background work may go.
///
/// ```
/// use firstlight_pool::os::pacing::Pacer;
/// use std::time::Duration;
///
/// let mut pacer = Pacer::new(Some(1 << 30), 64 << 20); // 1 GiB a second, 64 MiB at once
/// assert_eq!(pacer.wait(64 << 20, 0), Duration::ZERO);
/// assert_eq!(pacer.wait(64 << 20, 0), Duration::from_micros(62_500));
/// assert_eq!(pacer.wait(64 << 20, 62_500_000), Duration::ZERO);
/// ```
#[derive(Debug, Clone)]
pub struct Pacer {
    /// `None`: no limit.
    bytes_per_second: Option<u64>,
    burst_bytes: u64,
    /// What may be spent, in billionths of a byte.
    credit: u128,
    /// When `credit` was last brought up to date.
    at_ns: u64,
}

impl Pacer {
    /// At most `bytes_per_second` over time and `burst_bytes` at once; the first
    /// burst is free. A rate of zero never lets anything through.
    #[must_use]
    pub fn new(bytes_per_second: Option<u64>, burst_bytes: u64) -> Self {
        Self {
            bytes_per_second,
            burst_bytes,
            credit: u128::from(burst_bytes) * PARTS,
            at_ns: 0,
        }
    }

    /// Another rate from now on; what was saved up stays.
    pub fn set_rate(&mut self, bytes_per_second: Option<u64>) {
        self.bytes_per_second = bytes_per_second;
    }

    /// Zero, and the batch is paid for; or how long to wait before asking again.
    ///
    /// A batch larger than a burst costs one burst at the door and the rest
    /// afterwards, so that no batch waits for ever.
    pub fn wait(&mut self, bytes: u64, now_ns: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else {
            return Duration::ZERO;
        };
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let most = u128::from(self.burst_bytes.max(bytes)) * PARTS;
        let earned = u128::from(passed_ns) * u128::from(rate);
        self.credit = (self.credit + earned).min(most);
        let price = u128::from(bytes) * PARTS;
        if let Some(rest) = self.credit.checked_sub(price) {
            self.credit = rest;
            return Duration::ZERO;
        }
        let missing = price - self.credit;
        // Rounded up: asking again after exactly this long succeeds.
        let missing_ns = match rate {
            0 => u128::MAX,
            rate => missing.div_ceil(u128::from(rate)),
        };
        u64::try_from(missing_ns).map_or(MOST_WAIT, |ns| Duration::from_nanos(ns).min(MOST_WAIT))
    }
}

/// No worker sleeps longer at a time, so that a new rate is noticed.
const MOST_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Does as many batches as it may until `end_ns`; the clock jumps as told.
    fn work(pacer: &mut Pacer, batch_bytes: u64, end_ns: u64) -> u64 {
        let (mut now_ns, mut done) = (0u64, 0);
        while now_ns <= end_ns {
            let wait = pacer.wait(batch_bytes, now_ns);
            if wait.is_zero() {
                done += batch_bytes;
            }
            now_ns += u64::try_from(wait.as_nanos()).unwrap();
        }
        done
    }

    #[test]
    fn over_time_no_more_than_the_rate_and_one_burst_and_no_less() {
        for (rate, burst, batch) in [
            (1 << 30, 64 << 20, 64 << 20),
            (1 << 30, 64 << 20, 2 << 20),
            (3 << 20, 2 << 20, 2 << 20),
            (1_000_003, 7, 4096),
            (1, 1, 1),
        ] {
            let done = work(&mut Pacer::new(Some(rate), burst), batch, 10_000_000_000);
            let fair = rate * 10;
            assert!(
                done <= fair + burst.max(batch),
                "{rate} {burst} {batch}: {done}"
            );
            assert!(done + batch >= fair, "{rate} {burst} {batch}: {done}");
        }
    }

    #[test]
    fn waiting_as_told_is_enough() {
        let mut pacer = Pacer::new(Some(999_999_937), 4096);
        let mut now_ns = 5;
        for _ in 0..1000 {
            let wait = pacer.wait(4096, now_ns);
            if !wait.is_zero() {
                now_ns += u64::try_from(wait.as_nanos()).unwrap();
                assert_eq!(pacer.wait(4096, now_ns), Duration::ZERO);
            }
        }
    }

    #[test]
    fn idle_time_saves_up_one_burst_only() {
        let mut pacer = Pacer::new(Some(1 << 30), 64 << 20);
        let hour_ns = 3_600_000_000_000;
        assert_eq!(pacer.wait(64 << 20, hour_ns), Duration::ZERO);
        assert!(!pacer.wait(64 << 20, hour_ns).is_zero());
    }

    #[test]
    fn no_limit_never_waits_and_rate_zero_always_does() {
        let mut free = Pacer::new(None, 1);
        assert_eq!(work(&mut Pacer::new(Some(0), 8), 8, 5_000_000_000), 8);
        for _ in 0..10 {
            assert_eq!(free.wait(u64::MAX, 0), Duration::ZERO);
        }
        free.set_rate(Some(0));
        assert_eq!(free.wait(u64::MAX, u64::MAX), MOST_WAIT);
    }

    #[test]
    fn a_clock_that_steps_back_earns_nothing() {
        let mut pacer = Pacer::new(Some(1000), 1000);
        assert!(pacer.wait(1000, 1_000_000_000).is_zero());
        assert!(!pacer.wait(1000, 0).is_zero());
        assert!(!pacer.wait(1000, 999_999_999).is_zero());
        assert!(pacer.wait(1000, 2_000_000_000).is_zero());
    }
}
