//! When a worker zeroes, and how much: [`Policy`], a pure function of what it has [`Seen`].
//!
//! *The stock of known-zero memory follows the demand, between two marks.* The target is twice what
//! was requested zeroed in the last period of `delay_ms` (a burst counts half in each period after
//! it), at least `low_bytes`, at most `high_bytes`. A worker begins when the stock is below the
//! mark of `low_bytes` or half the target, and either `wake_bytes` are free and of unknown content
//! or a request found no stock; it stops at the target. While CPUs refill their caches often it
//! backs off, for twice as long each time, up to `delay_ms`.
#![deny(unsafe_code)]

use super::Knobs;

/// The first back-off.
const BACK_OFF_NS: u64 = 1_000_000;
/// Batches of backlog that are worth one more worker.
const WORKER_BATCHES: u64 = 32;

/// A node at one moment. Sums count from any moment on, the same for all looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Nanoseconds, of any clock that does not go back.
    pub now_ns: u64,
    /// Free memory known to be zero.
    pub stock_bytes: u64,
    /// Free memory of unknown content.
    pub unknown_bytes: u64,
    /// Sum of what was requested zeroed.
    pub demand_bytes: u64,
    /// Of this, what was zeroed on the spot.
    pub missed_bytes: u64,
    /// Sum of refills and flushes of CPUs' caches, and of requests past them, if it was counted.
    pub refills: Option<u64>,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing until then, on the clock of [`Seen::now_ns`].
    Wait {
        /// The time.
        until_ns: u64,
    },
    /// A batch.
    Zero {
        /// How much.
        bytes: u64,
    },
}

/// A worker's memory between two looks.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    is_filling: bool,
    target_bytes: u64,
    /// The last look, if there was one.
    last: Option<Seen>,
    /// The look at which the period began.
    period: Seen,
    /// Demand of the last period.
    demand_bytes: u64,
    /// When refills were counted last, and how many there were.
    refills: Option<(u64, u64)>,
    /// The last back-off; 0: it did not.
    back_off_ns: u64,
}

impl Policy {
    /// Before the first look.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to do now.
    pub fn look(&mut self, knobs: &Knobs, seen: Seen) -> Decision {
        let last = self.last.replace(seen);
        if last.is_none() {
            self.period = seen;
        }
        match self.refilled_per_ms(&seen) {
            Some(rate) if knobs.enabled && knobs.busy_per_ms > 0 && rate >= knobs.busy_per_ms => {
                let longer = self.back_off_ns.saturating_mul(2);
                self.back_off_ns = longer.clamp(BACK_OFF_NS, knobs.delay_ns());
                return wait(&seen, self.back_off_ns);
            }
            Some(_) => self.back_off_ns = 0,
            None => {}
        }
        let has_missed = last.is_some_and(|last| seen.missed_bytes != last.missed_bytes);
        self.decide(knobs, &seen, has_missed)
    }

    /// Whether it waits because allocation is busy.
    pub fn is_backing_off(&self) -> bool {
        self.back_off_ns > 0
    }

    /// There was nothing to zero: other calls took it, or what is free is in smaller blocks. When to
    /// look again.
    pub fn exhausted(&mut self, knobs: &Knobs, now_ns: u64) -> u64 {
        self.is_filling = false;
        now_ns.saturating_add(knobs.delay_ns())
    }

    /// The stock that is worth keeping.
    pub fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// Bytes that are missing from the stock, as far as there are such.
    pub fn backlog_bytes(&self) -> u64 {
        let Some(seen) = self.last.filter(|_| self.is_filling) else {
            return 0;
        };
        let missing = self.target_bytes.saturating_sub(seen.stock_bytes);
        missing.min(seen.unknown_bytes)
    }

    /// How many workers of a node there is work for, if `idle` of its CPUs have nothing else to do.
    pub fn workers(backlog_bytes: u64, batch_bytes: u64, idle: u32) -> u32 {
        let more = backlog_bytes / batch_bytes.saturating_mul(WORKER_BATCHES).max(1);
        1 + u32::try_from(more)
            .unwrap_or(u32::MAX)
            .min(idle.saturating_sub(1))
    }

    /// Refills a millisecond since they were counted before, if they are counted now.
    fn refilled_per_ms(&mut self, seen: &Seen) -> Option<u64> {
        let refills = seen.refills?;
        let (ns, before) = self.refills.replace((seen.now_ns, refills))?;
        // Rounded up, so that two looks at the same moment divide by no time.
        let elapsed_ms = seen.now_ns.saturating_sub(ns) / 1_000_000 + 1;
        Some(refills.wrapping_sub(before) / elapsed_ms)
    }

    fn decide(&mut self, knobs: &Knobs, seen: &Seen, has_missed: bool) -> Decision {
        self.follow_demand(knobs, seen);
        if !knobs.enabled {
            self.is_filling = false;
            return wait(seen, knobs.delay_ns());
        }
        let target = self.target_bytes;
        if seen.stock_bytes >= target {
            self.is_filling = false;
        } else if !self.is_filling {
            let low = knobs.low_bytes.min(target).max(target / 2);
            let is_worth = has_missed || seen.unknown_bytes >= knobs.wake_bytes;
            self.is_filling = seen.stock_bytes < low && is_worth;
        }
        if self.is_filling && seen.unknown_bytes > 0 {
            Decision::Zero {
                bytes: knobs.batch_bytes,
            }
        } else {
            self.is_filling = false;
            wait(seen, knobs.delay_ns())
        }
    }

    fn follow_demand(&mut self, knobs: &Knobs, seen: &Seen) {
        let now = seen.demand_bytes.wrapping_sub(self.period.demand_bytes);
        let demand = now.max(self.demand_bytes);
        if seen.now_ns.saturating_sub(self.period.now_ns) >= knobs.delay_ns() {
            self.demand_bytes = now.max(self.demand_bytes / 2);
            self.period = *seen;
        }
        let low = knobs.low_bytes.min(knobs.high_bytes);
        self.target_bytes = demand.saturating_mul(2).clamp(low, knobs.high_bytes);
    }
}

fn wait(seen: &Seen, ns: u64) -> Decision {
    Decision::Wait {
        until_ns: seen.now_ns.saturating_add(ns),
    }
}
