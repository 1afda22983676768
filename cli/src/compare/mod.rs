//! `firstlight compare`: two set-ups booted in turns, or read from records, beside
//! each other. The comparison is the [lab's](firstlight_lab::compare); here are the
//! options, the [sides](sides) and the [report](render).

mod render;
pub(crate) mod sides;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_lab::compare::{in_turns, of_sides};
use firstlight_lab::file::read;
use firstlight_lab::run::is_record;
use sides::sides;
use std::path::Path;

/// Boot two set-ups in turns and show their milestones and phases beside each other
///
/// A and B are each a quoted list of options of `boot`, a file with what
/// `boot --json` printed, or a kernel log (two logs are for `doctor`). Each figure has
/// its median, its MAD (the median distance from it) and its range; the ratio is B over A.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Options of boot in quotes, a record file or a kernel log
    #[arg(value_name = "A", allow_hyphen_values = true)]
    a: String,
    /// What it is compared with: B over A is the ratio
    #[arg(value_name = "B", allow_hyphen_values = true)]
    b: String,
    /// Boots of each; else 5, and 1 on the instruction clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
}

const EXAMPLES: &str = "\
Examples (make linux fetches the kernels):
  firstlight compare \"--memory 16G --append descriptors=lazy\" \"--memory 16G --append descriptors=eager\"
  firstlight compare \"--memory 16G --clock instructions --append descriptors=early\" \\
                     \"--memory 16G --clock instructions --kernel target/linux/6.12/vmlinuz\"
  firstlight boot --memory 16G --json > before.json; firstlight compare before.json \"--memory 16G\"

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    two_logs([&options.a, &options.b])?;
    let (sides, boots) = sides(&options.a, &options.b)?;
    let runs = in_turns(&sides, options.runs, &mut |request| boots.run(request))?;
    let comparison = of_sides(&sides, &runs)?;
    output.print(&comparison, render::report)
}

/// Refuses two kernel logs, which `doctor` puts beside each other.
fn two_logs(given: [&str; 2]) -> Result<(), Failure> {
    let log = |name: &str| read(Path::new(name)).is_ok_and(|content| !is_record(&content));
    if given.into_iter().all(log) {
        let [a, b] = given;
        let text = format!("{a} and {b} are kernel logs; expected firstlight doctor {a} {b}");
        return Err(Failure::Usage(text));
    }
    Ok(())
}
