//! Several boots in one log: [`boots`] tells them apart.

use super::clock::disorder;
use super::kernel_log::KernelLog;
use super::line::{self, Line};
use super::problem::LogProblem;
use super::reader::Rows;

/// One boot of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot<'t> {
    /// Its messages, those before its kernel's first among them.
    pub lines: Vec<Line<'t>>,
    /// What its kernel said of the machine.
    pub log: KernelLog,
    /// Lines that a kernel printed for certain: by their stamp, their logger, or a row they are.
    pub kernel_lines: usize,
}

impl Boot<'_> {
    /// Numbers lines from the one after `before`, as a log of this boot alone does.
    pub(crate) fn count_from(&mut self, before: usize) {
        let lines = self.lines.iter_mut().map(|line| &mut line.number);
        let problems = self
            .log
            .problems
            .iter_mut()
            .map(|problem| &mut problem.line);
        for number in lines.chain(problems) {
            *number = number.saturating_sub(before);
        }
    }
}

/// All boots of `text`, in the order of their lines; at least one.
///
/// ```
/// let log = b"[    0.0000] Linux version 6.1\n[    5.2000] up\n\
///             [    0.0000] Linux version 6.12\n[    4.8000] up\n";
/// let boots = firstlight_lab::log::boots(log);
/// assert_eq!(boots.len(), 2);
/// assert_eq!(boots[1].log.release.as_deref(), Some("6.12"));
/// assert_eq!(boots[1].lines[0].number, 3);
/// ```
#[must_use]
pub fn boots(text: &[u8]) -> Vec<Boot<'_>> {
    let mut boots = Vec::new();
    each_boot(text, |boot| boots.push(boot));
    boots
}

/// Calls `each` with every boot of `text`, one at a time, in the order of their lines; at
/// least once.
pub fn each_boot<'t>(text: &'t [u8], mut each: impl FnMut(Boot<'t>)) {
    let mut lines: Vec<Line<'t>> = Vec::new();
    let mut boundary = Boundary::default();
    let mut problems = Vec::new();
    line::messages(text, &mut problems, |line, problems| {
        if let Some(number) = boundary.another_begins(&line) {
            let at = lines.partition_point(|line| line.number < number);
            let next = lines.split_off(at);
            let has_version = next.iter().chain([&line]).any(is_version);
            boundary = Boundary::new_boot(has_version, line.stamp_ns);
            each(boot(std::mem::replace(&mut lines, next), problems));
        }
        lines.push(line);
        true
    });
    each(boot(lines, &mut problems));
}

/// What a kernel said in `lines`; of `problems` those that are in them.
fn boot<'t>(lines: Vec<Line<'t>>, problems: &mut Vec<LogProblem>) -> Boot<'t> {
    let mut rows = Rows::default();
    let mut kernel_lines = 0;
    for line in &lines {
        let row = rows.take(line);
        kernel_lines += usize::from(row || line.kernel);
    }
    let last = lines.last().map_or(usize::MAX, |line| line.number);
    let own = problems.partition_point(|problem| problem.line <= last);
    rows.log.problems.extend(problems.drain(..own));
    rows.log
        .problems
        .extend(disorder(&lines).map(|found| found.problem(&lines)));
    Boot {
        lines,
        log: rows.finish(),
        kernel_lines,
    }
}

/// The first words of a kernel.
fn is_version(line: &Line<'_>) -> bool {
    line.text.starts_with("Linux version ")
}

/// Reads a kernel log: any bytes, any age of kernel, stamps or none.
///
/// Only the first boot in a log is read; where another one begins is a problem listed.
///
/// ```
/// let log = firstlight_lab::log::read(
///     b"[    0.000000] BIOS-e820: [mem 0x0000000000100000-0x00000000bffdffff] usable\r\n\
///       [    0.000000] BIOS-e820: [mem 0x00000000c0000000-0x00000000bfffffff] usable\r\n",
/// );
/// assert_eq!(log.e820.len(), 1);
/// assert_eq!(log.e820[0].span.last, 0xbffd_ffff);
/// assert_eq!(log.problems[0].line, 2); // ends before it starts
/// ```
pub fn read(text: &[u8]) -> KernelLog {
    let mut rows = Rows::default();
    let mut boundary = Boundary::default();
    let mut problems = Vec::new();
    line::messages(text, &mut problems, |line, cut| {
        rows.log.problems.append(cut);
        if let Some(number) = boundary.another_begins(&line) {
            let what = "another boot begins here; only the first one was read";
            let problem = LogProblem::new(number, what, &line.text);
            rows.log.problems.push(problem);
            return false;
        }
        rows.take(&line);
        true
    });
    rows.log.problems.append(&mut problems);
    rows.finish()
}

/// Tells one boot of a log from the next.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    latest_ns: Option<u64>,
    lines_seen: bool,
    version_seen: bool,
    /// Line of a version that may be the next boot's, in a log without stamps of its kernel.
    version_again: Option<usize>,
}

impl Boundary {
    /// For a boot that has just begun.
    pub(crate) fn new_boot(version_seen: bool, latest_ns: Option<u64>) -> Self {
        Self {
            latest_ns,
            lines_seen: true,
            version_seen,
            version_again: None,
        }
    }

    /// The line a further boot begins with, once `line` shows that there is one.
    ///
    /// Journals say so. With a kernel's stamps, the clock goes back. Without them, or with those
    /// of the calendar, a version may also be the content of `/proc/version`; what a boot prints
    /// next decides.
    pub(crate) fn another_begins(&mut self, line: &Line<'_>) -> Option<usize> {
        let version = is_version(line);
        let repeated = version && self.version_seen;
        self.version_seen |= version;
        let back = line
            .stamp_ns
            .is_some_and(|ns| self.latest_ns.is_none_or(|last| ns < last));
        self.latest_ns = self.latest_ns.max(line.stamp_ns);
        let lines_seen = std::mem::replace(&mut self.lines_seen, true);
        let journal = line.text.starts_with("-- Reboot --")
            || (line.text.starts_with("-- Boot ") && line.text.ends_with("--"));
        if (repeated && back) || (journal && lines_seen) {
            return Some(line.number);
        }
        if repeated {
            self.version_again = Some(line.number);
        }
        let next = [
            "Command line:",
            "BIOS-provided physical RAM map",
            "e820: BIOS-provided",
        ];
        if next.iter().any(|start| line.text.starts_with(start)) {
            self.version_again
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_lines(text: &str) -> Vec<usize> {
        let boots = boots(text.as_bytes());
        let first = |boot: &Boot<'_>| boot.lines.first().map_or(0, |line| line.number);
        boots.iter().map(first).collect()
    }

    #[test]
    fn boots_end_where_the_next_begins() {
        let stamps = "[0.0000] Linux version 1\n[2.0000] a\n[0.0000] Linux version 2\n[1.0000] b\n\
            [0.0000] Linux version 3\n";
        assert_eq!(first_lines(stamps), [1, 3, 5]);
        let bare = "Linux version 1\nCommand line: a\nb\nLinux version 2\nCommand line: c\nd\n";
        assert_eq!(first_lines(bare), [1, 4]);
        let journal =
            "-- Boot 1 --\n[0.0000] Linux version 1\n-- Boot 2 --\n[0.0000] Linux version 1\n";
        assert_eq!(first_lines(journal), [1, 3]);
        let proc_version = "Linux version 1\nCommand line: a\nLinux version 1\nb\n";
        assert_eq!(first_lines(proc_version), [1]);
        assert_eq!(first_lines(""), [0]);
    }

    #[test]
    fn a_clock_that_goes_back_is_no_boot() {
        let skew = "[0.0000] Linux version 1\n[0.9000] a\n[0.0000] b\n[1.0000] c\n";
        assert_eq!(first_lines(skew), [1]);
    }
}
