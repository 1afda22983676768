//! What the log of a Linux that booted says of memory and time: [`tell`] puts it
//! into a record, [`records`] makes one of each boot in a log.
//!
//! | file | concept |
//! |---|---|
//! | `time` | milestones and phases, by the host's clock or the kernel's own |
//! | `memory` | map, nodes, zones |

mod memory;
mod time;

pub(crate) use time::tell_console;
pub use time::tell_heard;

use crate::gaps;
use crate::log::{self, Boot, Line, Named};
use crate::record::{Gap, MOST_STEPS, Phase, Record, Step, Totals};

/// Remarks on lines that could not be understood.
const MOST_PROBLEMS: usize = 20;

/// Fills `record` with what the first boot of `log` says. What it does not say stays `None`.
pub fn tell(log: &[u8], record: &mut Record) {
    let boots = log::boots(log);
    if let [first, second, ..] = boots.as_slice() {
        tell_boot(first, record);
        let line = second.lines.first().map_or(0, |line| line.number);
        record.notes.push(format!(
            "another boot begins at line {line}; only the first one was read"
        ));
    } else if let Some(boot) = boots.first() {
        tell_boot(boot, record);
    }
}

/// The slowest initcalls and services that `lines` name.
pub(crate) fn tell_steps(lines: &[Line<'_>], record: &mut Record) {
    record.initcalls = slowest(log::initcalls(lines));
    // Where lines are mixed the time between two of them says nothing.
    if !log::disorder(lines).is_some_and(|found| found.hides_time()) {
        record.services = slowest(log::services(lines));
    }
}

/// Fills `record` with what `boot` says. What it does not say stays `None`.
pub fn tell_boot(boot: &Boot<'_>, record: &mut Record) {
    let (rows, lines) = (&boot.log, &boot.lines);
    memory::tell(rows, record);
    time::tell(lines, record);
    tell_steps(lines, record);
    record.totals = Totals::of(lines);
    if let Some(kernel) = &mut record.source.kernel {
        kernel.release.clone_from(&rows.release);
    }
    if let Some(line) = &rows.command_line {
        record.source.command_line.clone_from(line);
    }
    for problem in rows.problems.iter().take(MOST_PROBLEMS) {
        record.notes.push(problem.to_string());
    }
    let more = rows.problems.len().saturating_sub(MOST_PROBLEMS) as u64 + rows.more_problems;
    if more > 0 {
        record.notes.push(format!("and {more} more like these"));
    }
    if let Some(oops) = oops(lines) {
        record
            .notes
            .push(format!("the kernel went on after \"{oops}\""));
    }
}

/// The slowest of `named`, in order; of the same time, the first of the log.
fn slowest(mut named: Vec<Named>) -> Vec<Step> {
    named.sort_by_key(|step| std::cmp::Reverse(step.ns));
    let steps = named.into_iter().take(MOST_STEPS).map(|step| Step {
        name: step.name,
        ns: step.ns,
        line: step.line,
    });
    steps.collect()
}

/// Phases of a boot, of which these are the lines, and the longest spans between two of them.
#[must_use]
pub fn times(lines: &[Line<'_>]) -> (Vec<Phase>, Vec<Gap>) {
    let mut record = Record::new("log", "wall");
    time::tell(lines, &mut record);
    let gaps = gaps::longest(lines, &record.phases);
    (record.phases, gaps)
}

/// A record of each boot in a log and of nothing else; `name` is the file's.
///
/// ```
/// let records = firstlight_lab::boot_log::records("a.log", b"[0.5] x\n[    1.000000] y\n");
/// assert_eq!((records.len(), records[0].kind), (1, "log"));
/// ```
#[must_use]
pub fn records(name: &str, log: &[u8]) -> Vec<Record> {
    let raw: Vec<&[u8]> = log.split(|byte| *byte == b'\n').collect();
    let boots = log::boots(log);
    let begin = |boot: &Boot<'_>| boot.lines.first().map_or(0, |line| line.number - 1);
    // Lines without a message belong to the boot before them.
    let ends: Vec<usize> = boots.iter().skip(1).map(begin).chain([raw.len()]).collect();
    let mut start = 0;
    let mut records = Vec::new();
    for (mut boot, end) in boots.into_iter().zip(ends) {
        boot.count_from(start);
        let mut record = Record::of_linux("log", name);
        tell_boot(&boot, &mut record);
        record.gaps = gaps::longest(&boot.lines, &record.phases);
        let lines = raw.get(start..end).unwrap_or_default();
        let text = |line: &&[u8]| String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        record.log = lines.iter().map(text).collect();
        if record.log.last().is_some_and(String::is_empty) {
            record.log.pop();
        }
        start = end;
        records.push(record);
    }
    records
}

/// The first line of an oops, if there is one.
#[must_use]
pub fn oops<'l>(lines: &'l [Line<'_>]) -> Option<&'l str> {
    lines
        .iter()
        .find(|line| is_oops(&line.text))
        .map(|line| &*line.text)
}

/// Whether a line is the first of an oops.
pub(crate) fn is_oops(text: &str) -> bool {
    const HEADS: [&str; 6] = [
        "Oops: ",
        "int3: ",
        "invalid opcode: ",
        "general protection fault",
        "BUG: unable to handle",
        "kernel BUG at ",
    ];
    HEADS.iter().any(|head| text.starts_with(head))
}
