//! A number of operations, or as many as there is time for: [`Pace`].

use core::ops::Range;

/// Operations between two readings of the clock, at first.
const LEAST: usize = 16;
/// And at most: readings should not be noticed beside a fast allocator.
const MOST: usize = 1 << 14;

/// A time limit that is checked between portions of work.
///
/// A portion grows while it takes little time and shrinks when it takes much, so that
/// neither readings of the clock distort the figure nor the limit is much exceeded.
#[derive(Clone, Debug)]
pub struct Pace<C> {
    clock: C,
    end: u64,
    portion_time: u64,
    least: usize,
}

impl<C: Fn() -> u64> Pace<C> {
    /// Until `clock` reaches `end`; a portion should take about `portion_time`.
    pub fn new(clock: C, end: u64, portion_time: u64) -> Self {
        Self {
            clock,
            end,
            portion_time,
            least: LEAST,
        }
    }

    /// Begins with, and shrinks to, one operation: where there are more
    /// threads than CPUs, an operation may wait for many of them, and a portion for as
    /// many times that.
    ///
    /// ```
    /// use firstlight_workloads::pace::Pace;
    /// let over = Pace::new(|| 1, 0, 10);
    /// assert_eq!(over.run(1000, |portion| portion.len()), 16);
    /// assert_eq!(over.by_one().run(1000, |portion| portion.len()), 1);
    /// ```
    #[must_use]
    pub fn by_one(self) -> Self {
        Self { least: 1, ..self }
    }

    /// Passes `0..total` to `work` in portions and returns how many were done. `work`
    /// returns how many of a portion it did; fewer than all end the run.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use firstlight_workloads::pace::Pace;
    /// let now = Cell::new(0);
    /// let tick = || { now.set(now.get() + 10); now.get() };
    /// let pace = Pace::new(tick, 35, 10);
    /// assert_eq!(pace.run(1000, |portion| portion.len()), 16 * 3);
    /// assert_eq!(pace.run(5, |portion| portion.len()), 5);
    /// assert_eq!(pace.run(5, |_| 2), 2);
    /// ```
    #[inline]
    pub fn run(&self, total: usize, mut work: impl FnMut(Range<usize>) -> usize) -> usize {
        let (mut at, mut portion) = (0, self.least);
        let mut before = (self.clock)();
        while at < total {
            let wanted = portion.min(total - at);
            let done = work(at..at + wanted);
            at += done;
            let now = (self.clock)();
            if done < wanted || now >= self.end {
                break;
            }
            let took = now.saturating_sub(before);
            if took < self.portion_time {
                portion = (portion * 2).min(MOST);
            } else if took > 2 * self.portion_time {
                portion = (portion / 2).max(self.least);
            }
            before = now;
        }
        at
    }
}
