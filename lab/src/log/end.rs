//! Where the boot of a log ends: [`End`]. What comes later took its time for other reasons.

use super::line::Line;

/// A line with which a boot, or a part of it, is over; the later the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// The kernel frees what it needed for itself to begin.
    Freed,
    /// It runs the first program.
    Init,
    /// systemd has started everything.
    Started,
}

impl End {
    const ALL: [Self; 3] = [Self::Freed, Self::Init, Self::Started];

    fn is(self, text: &str) -> bool {
        text.starts_with(match self {
            Self::Freed => "Freeing unused kernel",
            Self::Init => "Run /",
            // Not that of a user's, who comes when it pleases him.
            Self::Started => "systemd[1]: Startup finished",
        })
    }

    /// The index of its line, if that has a time.
    pub(crate) fn at(self, lines: &[Line<'_>]) -> Option<usize> {
        let is = |line: &Line<'_>| self.is(&line.text) && line.stamp_ns.is_some_and(|ns| ns > 0);
        lines.iter().position(is)
    }

    /// How many of the lines are of the boot: up to what systemd has started; where the log does not show that, up to
    /// the first silence of five minutes once the kernel hands over.
    pub(crate) fn of_boot(lines: &[Line<'_>]) -> usize {
        const SILENCE_NS: u64 = 300_000_000_000;
        if let Some(at) = Self::Started.at(lines) {
            return at + 1;
        }
        let begin = Self::Init.at(lines).or_else(|| Self::Freed.at(lines));
        let mut latest_ns = None;
        for (at, line) in lines.iter().enumerate().skip(begin.unwrap_or(lines.len())) {
            let Some(ns) = line.stamp_ns else { continue };
            if ns.saturating_sub(latest_ns.unwrap_or(ns)) >= SILENCE_NS {
                return at;
            }
            latest_ns = latest_ns.max(Some(ns));
        }
        lines.len()
    }

    /// The latest that all of `logs` show, of those that show any.
    pub(crate) fn common<'l>(logs: &[&'l [Line<'l>]]) -> Option<Self> {
        let shows = |log: &&&[Line<'_>]| Self::ALL.iter().any(|end| end.at(log).is_some());
        let logs: Vec<_> = logs.iter().filter(shows).collect();
        let mut ends = Self::ALL.into_iter().rev().filter(|_| !logs.is_empty());
        ends.find(|end| logs.iter().all(|log| end.at(log).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines;

    #[test]
    fn what_a_machine_says_hours_later_is_not_of_its_boot() {
        let boot = "[    1.000000] a\n[  400.000000] b\n[  401.000000] Run /init as init process\n[  402.000000] c\n";
        for (rest, of_boot) in [
            ("[  600.000000] d\n[  700.000000] e\n", 6),
            ("[  703.000000] d\n[  704.000000] e\n", 4),
            (
                "[  410.000000] systemd[1]: Startup finished in 9s.\n[  411.000000] d\n",
                5,
            ),
            ("", 4),
        ] {
            let text = format!("{boot}{rest}");
            assert_eq!(End::of_boot(&lines(text.as_bytes())), of_boot, "{rest}");
        }
    }
}
