//! From which line on a kernel's clock runs: [`clock_start`].
//!
//! It runs late: until a kernel knows how fast the time stamp counter is, stamps are
//! 0.000000, or ticks of a timer that are forgotten when the counter takes over.

use super::Line;

/// A step back of the clock by less is one CPU's against another's.
const SKEW_NS: u64 = 1_000_000;

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
pub fn clock_start(lines: &[Line]) -> usize {
    let alone = lines.iter().position(|line| line.text.starts_with(SMP));
    let (mut start, mut latest) = (0, 0);
    for (at, line) in lines.iter().enumerate().take(alone.unwrap_or(lines.len())) {
        let Some(ns) = line.stamp_ns else { continue };
        if ns.saturating_add(SKEW_NS) < latest {
            start = at;
        }
        latest = ns;
    }
    start
}
