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

    /// The latest that all of `logs` show, of those that show any.
    pub(crate) fn common<'l>(logs: &[&'l [Line<'l>]]) -> Option<Self> {
        let shows = |log: &&&[Line<'_>]| Self::ALL.iter().any(|end| end.at(log).is_some());
        let logs: Vec<_> = logs.iter().filter(shows).collect();
        let mut ends = Self::ALL.into_iter().rev().filter(|_| !logs.is_empty());
        ends.find(|end| logs.iter().all(|log| end.at(log).is_some()))
    }
}
