//! The longest spans between two lines of a log, which phases do not show: [`longest`].

use std::ops::Range;

use crate::log::{Line, SMP, clock_start, disorder};
use crate::record::{Gap, Phase, Said};

/// Gaps kept of one boot.
pub const MOST: usize = 10;
/// Seconds of the calendar differ by up to one although no time passed.
const COARSE_NS: u64 = 1_000_000_000;

fn said(line: &Line<'_>, stamp_ns: u64) -> Said {
    Said {
        line: line.number,
        stamp_ns,
        text: line.text.to_string(),
    }
}

/// The time between each line of `lines` that has one and the next: index of both, nanoseconds.
///
/// Stamps that are no times are left out, and so is the time before a line that does not
/// follow the one before it in the log. Where the clock goes back, time begins to count again
/// where it was; where it does so again and again there is no telling how much passed.
pub fn spans<'l>(lines: &'l [Line<'_>]) -> impl Iterator<Item = (usize, usize, u64)> + 'l {
    let mixed = disorder(lines).is_some_and(|found| found.hides_time());
    let start = if mixed {
        lines.len()
    } else {
        clock_start(lines)
    };
    let (others, floor_ns) = other_cpus(lines);
    let mut before: Option<(usize, u64)> = None;
    let span = move |(at, line): (usize, &Line<'_>)| {
        let ns = line
            .stamp_ns
            .filter(|ns| at >= start && (*ns > 0 || line.coarse))?;
        if others.contains(&at) && ns < floor_ns {
            return None;
        }
        let (from, from_ns) = before.unwrap_or((at, ns));
        let passed = ns.checked_sub(from_ns)?;
        let first = before.replace((at, ns)).is_none();
        if first || line.torn {
            return None;
        }
        let passed = if line.coarse {
            passed.saturating_sub(COARSE_NS)
        } else {
            passed
        };
        Some((from, at, passed))
    };
    lines.iter().enumerate().filter_map(span)
}

/// The lines while other CPUs come up, whose clocks may be behind, and the time at which
/// that begins.
fn other_cpus(lines: &[Line<'_>]) -> (Range<usize>, u64) {
    let begins = lines.iter().position(|line| line.text.starts_with(SMP));
    let Some(begin) = begins else {
        return (0..0, 0);
    };
    let rest = lines.iter().skip(begin);
    let count = rest
        .take_while(|line| !line.text.contains("Brought up"))
        .count();
    let stamp_ns = lines.get(begin).and_then(|line| line.stamp_ns);
    (begin..begin + count, stamp_ns.unwrap_or(0))
}

/// The ten longest of `lines`, the longest first, with the phase of each.
///
/// ```
/// use firstlight_lab::{gaps, log};
/// let lines = log::lines(b"[0.026875] Normal zone\n[2.028450] ACPI: PM-Timer\n");
/// let gaps = gaps::longest(&lines, &[]);
/// assert_eq!((gaps[0].ns, gaps[0].before.line), (2_001_575_000, 1));
/// ```
#[must_use]
pub fn longest(lines: &[Line<'_>], phases: &[Phase]) -> Vec<Gap> {
    let mut longest: Vec<(usize, usize, u64)> = Vec::with_capacity(MOST + 1);
    for span in spans(lines).filter(|span| span.2 > 0) {
        let full = longest.len() == MOST;
        if full && longest.last().is_some_and(|last| span.2 <= last.2) {
            continue;
        }
        let at = longest.partition_point(|other| other.2 >= span.2);
        longest.insert(at, span);
        longest.truncate(MOST);
    }
    let gap = |(from, to, ns): (usize, usize, u64)| {
        let (from, to) = (lines.get(from)?, lines.get(to)?);
        let (before, after) = (said(from, from.stamp_ns?), said(to, to.stamp_ns?));
        Some(Gap {
            ns,
            phase: phase(phases, before.stamp_ns, after.stamp_ns),
            before,
            after,
        })
    };
    longest.into_iter().filter_map(gap).collect()
}

/// The phase with the largest part of the span.
fn phase(phases: &[Phase], start_ns: u64, end_ns: u64) -> Option<String> {
    let shared = |phase: &Phase| {
        let end = phase.end_ns.min(end_ns);
        end.saturating_sub(phase.start_ns.max(start_ns))
    };
    let phase = phases.iter().max_by_key(|phase| shared(phase))?;
    (shared(phase) > 0).then(|| phase.name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines;

    fn told(log: &str) -> Vec<(u64, usize, usize)> {
        let gaps = longest(&lines(log.as_bytes()), &[]);
        let told = gaps
            .iter()
            .map(|gap| (gap.ns / 1_000_000, gap.before.line, gap.after.line));
        told.collect()
    }

    #[test]
    fn time_that_is_none_is_no_gap() {
        // Stamps of zero, and what was left out of a log.
        assert_eq!(
            told("[0.000000] a\n[5.0000] b\n[5.1000] c\n"),
            [(100, 2, 3)]
        );
        assert_eq!(
            told("[1.0000] a\n...\n[6.0000] b\n[6.2000] c\n"),
            [(200, 3, 4)]
        );
        let torn = "Aug 13 16:07:02 h kernel: [1.0000] a\nAugddb kernel: [9.0000] b\n";
        assert_eq!(told(torn), []);
        assert_eq!(told("h:~# dmesg | grep SEV\n[1.0000] a\n[9.0000] b\n"), []);
        // Lines without a time stand between, and count as nothing.
        assert_eq!(told("[1.0000] a\nx\n[1.5000] b\n"), [(500, 1, 3)]);
    }

    #[test]
    fn clocks_of_other_cpus_that_are_behind_are_no_time() {
        let log = "[0.7000] smp: Bringing up secondary CPUs ...\n[0.3000] other CPU's words\n\
                   [1.1000] smp: Brought up 1 node, 2 CPUs\n";
        assert_eq!(told(log), [(400, 1, 3)]);
    }

    #[test]
    fn the_time_between_lines_counts_as_well() {
        let since = "[  +0.004528] a\n[  +0.000099] b\n[  +0.543926] c\n";
        assert_eq!(told(since)[0], (543, 2, 3));
        let calendar = "[Mon Nov 21 07:00:00 2026] a\n[Mon Nov 21 07:00:07 2026] b\n";
        assert_eq!(told(calendar), [(6000, 1, 2)]);
    }

    #[test]
    fn the_phase_is_the_one_with_most_of_it() {
        let phase = |name: &'static str, start_ns, end_ns| Phase {
            name: name.into(),
            start_ns,
            end_ns,
        };
        let phases = [
            phase("a", 0, 1_100_000_000),
            phase("b", 1_100_000_000, 9_000_000_000),
        ];
        let gaps = longest(&lines(b"[1.0000] a\n[3.0000] b\n"), &phases);
        assert_eq!(gaps[0].phase.as_deref(), Some("b"));
    }
}
