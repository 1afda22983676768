//! Lines by the host's clock: [`heard`].
//!
//! A console prints what was said before it was there all at once, when it is enabled. These
//! lines have no time. An early console is there a moment after the kernel's first line.

use super::line::Line;

/// `lines` with the time at which the host had each, instead of the kernel's own; `ends_ns`
/// has a time for each line of the log, counted from 1. Lines that a console printed late
/// have none.
///
/// ```
/// use firstlight_lab::log::{heard, lines};
/// let log = lines(b"[0.1] a\n[0.2] printk: console [ttyS0] enabled\n[0.3] b\n");
/// let times: Vec<_> = heard(&log, &[7, 7, 9]).iter().map(|line| line.stamp_ns).collect();
/// assert_eq!(times, [None, Some(7), Some(9)]);
/// ```
#[must_use]
pub fn heard<'t>(lines: &[Line<'t>], ends_ns: &[u64]) -> Vec<Line<'t>> {
    let enabled = lines.iter().position(|line| enables_console(&line.text));
    let late = enabled.filter(|at| {
        let line = lines.get(*at);
        line.is_some_and(|line| !line.text.contains("bootconsole"))
    });
    let first = late.unwrap_or(0);
    let timed = lines.iter().enumerate().map(|(at, line)| {
        let end_ns = line.number.checked_sub(1).and_then(|at| ends_ns.get(at));
        Line {
            stamp_ns: end_ns.copied().filter(|_| at >= first),
            coarse: false,
            ..line.clone()
        }
    });
    timed.collect()
}

/// `printk: legacy console [ttyS0] enabled`, or an early one.
fn enables_console(text: &str) -> bool {
    text.contains("console [") && text.ends_with("] enabled")
}

#[cfg(test)]
mod tests {
    use super::super::line::lines;
    use super::*;

    #[test]
    fn an_early_console_leaves_no_line_without_a_time() {
        let log = lines(
            b"[0.0] Linux version 6.12\n[0.0] printk: legacy bootconsole [earlyser0] enabled\n\
              [0.2] printk: legacy console [ttyS0] enabled\n",
        );
        let times = |ends: &[u64]| -> Vec<_> {
            let heard = heard(&log, ends);
            heard.iter().map(|line| line.stamp_ns).collect()
        };
        assert_eq!(times(&[5, 5, 8]), [Some(5), Some(5), Some(8)]);
        // A record whose times were cut off.
        assert_eq!(times(&[5]), [Some(5), None, None]);
    }
}
