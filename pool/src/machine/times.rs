//! How long `take` took: counts in buckets a quarter of a power of two wide, so
//! that a quantile is at most a fifth too high.

use crate::protocol::{TakeBucket, TakeTimes};

/// Buckets for each power of two.
const STEPS: u32 = 4;
/// Buckets up to 2^40 ns, a quarter of an hour.
const BUCKETS: usize = 40 * STEPS as usize;

/// Bounds of the buckets that metrics show, in nanoseconds.
const SHOWN_NS: [u64; 14] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    20_000_000_000,
    60_000_000_000,
];

/// Times seen.
#[derive(Debug, Clone)]
pub(super) struct Times {
    fine: Vec<u64>,
    shown: [u64; SHOWN_NS.len()],
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            fine: vec![0; BUCKETS],
            shown: [0; SHOWN_NS.len()],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Times {
    pub(super) fn record(&mut self, ns: u64) {
        if let Some(bucket) = self.fine.get_mut(bucket(ns)) {
            *bucket += 1;
        }
        for (bound, count) in SHOWN_NS.iter().zip(&mut self.shown) {
            *count += u64::from(ns <= *bound);
        }
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// What a status shows; nothing before the first.
    pub(super) fn summary(&self) -> Option<TakeTimes> {
        (self.count > 0).then(|| TakeTimes {
            p50_ns: self.quantile(50),
            p99_ns: self.quantile(99),
            max_ns: self.max_ns,
            count: self.count,
            sum_ns: self.sum_ns,
            buckets: self.buckets(),
        })
    }

    fn buckets(&self) -> Vec<TakeBucket> {
        let shown = SHOWN_NS.iter().zip(&self.shown);
        shown
            .map(|(most_ns, count)| TakeBucket {
                most_ns: *most_ns,
                count: *count,
            })
            .collect()
    }

    /// The bound that `percent` of all are at or below.
    fn quantile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.fine.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return bound(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(u64::from(STEPS));
    let power = ns.ilog2();
    let step = (ns >> (power - STEPS.ilog2())) & u64::from(STEPS - 1);
    let index = u64::from(power * STEPS) + step;
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The largest time in a bucket.
fn bound(index: usize) -> u64 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let (power, step) = (index / STEPS, index % STEPS);
    let next = u64::from(STEPS + step + 1);
    ((next << power) >> STEPS.ilog2()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_bucket_and_no_other() {
        for ns in [4, 5, 7, 8, 9, 100, 1000, 12_345, 999_999, 1 << 33] {
            let index = bucket(ns);
            assert!(
                ns <= bound(index) && (index == 8 || ns > bound(index - 1)),
                "{ns}"
            );
            assert!(
                bound(index) * 4 < ns * 5,
                "{ns} is shown as {}",
                bound(index)
            );
        }
    }

    #[test]
    fn quantiles_of_known_times() {
        let mut times = Times::default();
        assert_eq!(times.summary(), None);
        for ns in 1..=1000 {
            times.record(ns * 1000);
        }
        let seen = times.summary().unwrap();
        assert!((500_000..625_000).contains(&seen.p50_ns), "{seen:?}");
        assert!((990_000..=1_000_000).contains(&seen.p99_ns), "{seen:?}");
        assert_eq!(seen.max_ns, 1_000_000);
        let count = |at: usize| seen.buckets[at].count;
        assert_eq!(
            (count(0), count(2), count(6), seen.count),
            (10, 50, 1000, 1000)
        );
        assert_eq!(seen.sum_ns, 500_500_000);
        // As slow as the slowest top-up that may be asked for by default, and slower.
        times.record(30_000_000_000);
        let slow = times.summary().unwrap();
        let last: Vec<u64> = slow
            .buckets
            .iter()
            .rev()
            .map(|bucket| bucket.count)
            .take(2)
            .collect();
        assert_eq!(last, [1001, 1000]);
        times.record(u64::MAX);
        assert_eq!(times.summary().unwrap().max_ns, u64::MAX);
    }
}
