//! What the log of a Linux that booted says of memory and time: [`tell`] puts it
//! into a record, [`verdict`] says whether it booted at all.
//!
//! | file | concept |
//! |---|---|
//! | `time` | milestones and phases, by the kernel's own clock |
//! | `memory` | map, nodes, zones |
//! | `verdict` | which end is a good one, and which death is QEMU's fault |

mod memory;
mod time;
pub mod verdict;

use crate::log::{self, KernelLog, Line};
use crate::record::Record;

/// Remarks on lines that could not be understood.
const MOST_PROBLEMS: usize = 20;

/// Fills `record` with what `log` says. What it does not say stays `None`.
pub fn tell(log: &[u8], record: &mut Record) {
    let rows: KernelLog = log::read(log);
    let lines: Vec<Line> = log::lines(log);
    memory::tell(&rows, record);
    time::tell(&lines, record);
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
    if let Some(oops) = verdict::oops(&lines) {
        record
            .notes
            .push(format!("the kernel went on after \"{oops}\""));
    }
}
