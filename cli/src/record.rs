//! `firstlight record`: the run record of a boot of which there is a kernel log and
//! nothing else; the reader is the [lab's](firstlight_lab::boot::linux::records).

use crate::boot::render;
use crate::failure::Failure;
use crate::file;
use crate::output::Output;
use clap::Args;
use firstlight_lab::boot::linux;
use std::path::PathBuf;

/// Make a record of a kernel log: milestones, phases, gaps, machine
///
/// Any dialect: serial lines, dmesg (-d, -T, -x, --reltime), journals, system logs,
/// quoted mail. Of a log with several boots, --boot picks one.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A kernel log
    log: PathBuf,
    /// Which boot of the log
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    boot: u32,
    /// Show every region, node, zone, correction and gap
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight record boot.log                    phases and the longest gaps
  firstlight record journal.txt --boot 2        the second boot in it
  firstlight record boot.log --json > old.json  for compare, gate, report and history

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let name = options.log.display().to_string();
    let mut records = linux::records(&name, &file::read(&options.log)?);
    let count = records.len();
    let at = options.boot as usize - 1;
    if at >= count {
        return Err(Failure::Usage(format!(
            "--boot {}: {name} has {count}; expected a number from 1 to {count}",
            options.boot
        )));
    }
    let mut record = records.swap_remove(at);
    if count > 1 {
        let note = format!("boot {} of the {count} in this log", options.boot);
        record.notes.insert(0, note);
    }
    output.print(&record, |record| render::report(record, options.full))
}
