//! From which line on a kernel's clock runs: [`clock_start`]; and whether it is one clock at all:
//! [`disorder`].
//!
//! It runs late: until a kernel knows how fast the time stamp counter is, stamps are
//! 0.000000, or ticks of a timer that are forgotten when the counter takes over.

use super::line::Line;
use super::problem::LogProblem;

/// A step back of the clock by less is one CPU's against another's.
const SKEW_NS: u64 = 1_000_000;
/// A clock that takes over has just been set to zero.
const FRESH_NS: u64 = 100_000_000;

/// The line before which only one CPU prints.
pub(crate) const SMP: &str = "smp: Bringing up secondary CPUs";

/// Index of the first line of `lines` with the clock that runs on; stamps before it, and
/// those that are zero, are no times.
///
/// ```
/// use firstlight_lab::log::{clock_start, lines};
/// let log = lines(b"[0.0480] tsc: using HPET\n[0.0003] clocksource: tsc-early\n[0.0009] a\n");
/// assert_eq!(clock_start(&log), 1);
/// ```
#[must_use]
pub fn clock_start(lines: &[Line<'_>]) -> usize {
    let alone = lines.iter().position(|line| line.text.starts_with(SMP));
    let (mut start, mut latest) = (0, 0);
    for (at, line) in lines.iter().enumerate().take(alone.unwrap_or(lines.len())) {
        let Some(ns) = line.stamp_ns else { continue };
        if ns.saturating_add(SKEW_NS) < latest && ns < FRESH_NS {
            start = at;
        }
        latest = ns;
    }
    start
}

/// A step back that no two CPUs and no correction of a clock explain.
const STEP_NS: u64 = 10_000_000;
/// With as many the lines are not in the order in which they were printed.
const MOST_STEPS: usize = 3;

/// A clock that goes back although it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disorder {
    /// Index of the first line before which it does.
    first: usize,
    /// Nanoseconds by which it does there.
    back_ns: u64,
    /// How often it does.
    steps: usize,
}

impl Disorder {
    /// The time between two lines says nothing: several logs are mixed, or lines moved.
    pub(crate) fn hides_time(self) -> bool {
        self.steps >= MOST_STEPS
    }

    /// The remark on it.
    pub(super) fn problem(self, lines: &[Line<'_>]) -> LogProblem {
        let (number, text) = lines
            .get(self.first)
            .map_or((1, ""), |line| (line.number, &*line.text));
        let ms = self.back_ns / 1_000_000;
        let what = match self.steps {
            1 => format!("the clock goes back by {ms} ms"),
            steps if self.hides_time() => format!(
                "the clock goes back by {ms} ms here and {} times more: lines of several logs, or not in order; no time between lines is taken",
                steps - 1
            ),
            _ => format!("the clock goes back by {ms} ms, and again later"),
        };
        LogProblem::new(number, what, text)
    }
}

/// Where the clock of `lines` goes back once it runs; `None` for one that doesn't.
pub(crate) fn disorder(lines: &[Line<'_>]) -> Option<Disorder> {
    let start = clock_start(lines);
    let up = lines.iter().position(|line| line.text.starts_with(SMP));
    // The clocks of CPUs that come up may be behind.
    let coming = up.map(|begin| {
        let rest = lines.iter().skip(begin);
        begin
            ..begin
                + rest
                    .take_while(|line| !line.text.contains("Brought up"))
                    .count()
    });
    let mut found: Option<Disorder> = None;
    let mut before_ns = 0;
    for (at, line) in lines.iter().enumerate().skip(start) {
        let stamp_ns = line.stamp_ns.filter(|ns| *ns > 0 && !line.coarse);
        let Some(ns) =
            stamp_ns.filter(|_| coming.as_ref().is_none_or(|range| !range.contains(&at)))
        else {
            continue;
        };
        let back_ns = std::mem::replace(&mut before_ns, ns).saturating_sub(ns);
        if back_ns > STEP_NS {
            let found = found.get_or_insert(Disorder {
                first: at,
                back_ns,
                steps: 0,
            });
            found.steps += 1;
        }
    }
    found
}
