//! The command `firstlight`: arguments in, a report or a JSON document out.
//!
//! Each subcommand is a module that gathers its input, lets the engine work
//! and hands back a record; [`output`] prints it, [`failure`] maps what went
//! wrong to the exit codes `--help` documents.

mod bench;
mod bisect;
mod blocks;
mod boot;
mod compare;
mod demo;
mod doctor;
mod doors;
mod failure;
mod gate;
mod groups;
mod history;
mod layout;
mod machine;
mod matrix;
mod predict;
mod published;
mod report;
#[cfg(test)]
mod schemas;
mod show;
mod stick;
mod up;
mod watch;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use firstlight_host::clock::Clock;
use firstlight_pool_cli::{Problem, Program, manual, output, text};
use std::process::ExitCode;

/// From a firmware memory map to memory that can be allocated.
#[derive(Parser)]
#[command(name = "firstlight", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    output: output::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Options),
    Up(up::Options),
    Boot(boot::Options),
    Watch(watch::Options),
    Bench(bench::Options),
    Compare(compare::Options),
    Pool(firstlight_pool_cli::Options),
    Layout(layout::Options),
    Blocks(blocks::Options),
    Gate(gate::Options),
    Bisect(bisect::Options),
    History(history::Options),
    Matrix(matrix::Options),
    Stick(stick::Options),
    Report(show::Options),
    Doctor(doctor::Options),
    Predict(predict::Options),
    #[command(hide = true)]
    Manual(manual::Options),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the machine cannot be brought up: its description makes no sense, or shows no usable memory;
     records are none; bisect: the bad end is no slower, or an end cannot be measured
  2  wrong usage
  3  a file cannot be read, the output cannot be written, or QEMU does not run the machine;
     watch: the console is gone
  4  the engine failed its own checks: please report it
  5  the pool cannot do what was asked
  6  the guest hung, died, met a processor fault or printed rubbish; matrix, watch: a boot failed
  7  gate: B is slower than A, or does not boot
  8  the pool: the daemon refuses
  9  the pool: its configuration is missing or wrong
  10  the pool: no daemon answers
  11  gate: unclear whether B is slower: too few runs, some that are missing, or not confirmed
  12  doctor: a log has a finding of --fail-on
  13  watch: the command of --power-cycle failed
  130  stopped by Ctrl-C";

/// What `firstlight(1)` has besides.
const CONTENTS: manual::Contents<'static> = manual::Contents {
    groups: &groups::GROUPS,
    examples: include_str!("examples.txt"),
    see_also: &[("firstlight-pool", "1"), ("pool.toml", "5")],
};

fn main() -> ExitCode {
    // First, so that milestones count from the start of the process.
    let clock = Clock::start();
    if std::env::args_os().len() <= 1 {
        return doors::show();
    }
    let matches = groups::listed(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut output = output::Output::new(&arguments.output, Program::Firstlight);
    let result = match &arguments.command {
        Command::Bench(options) => bench::run(options, &mut output),
        Command::Up(options) => up::run(options, clock, &mut output),
        Command::Demo(options) => demo::run(options, clock, &mut output),
        Command::Boot(options) => boot::run(options, &mut output),
        Command::Watch(options) => watch::run(options, &mut output),
        Command::Compare(options) => compare::run(options, &mut output),
        Command::Blocks(options) => blocks::run(options, &mut output),
        Command::Layout(options) => layout::run(options, &mut output),
        Command::Report(options) => show::run(options, &mut output),
        Command::Bisect(options) => bisect::run(options, &mut output),
        Command::Matrix(options) => matrix::run(options, &mut output),
        Command::Stick(options) => stick::run(options, &mut output),
        Command::History(options) => history::run(options, &mut output),
        Command::Gate(options) => gate::run(options, &mut output),
        Command::Predict(options) => predict::run(options, &mut output),
        Command::Manual(options) => {
            manual::write(options, Arguments::command(), &CONTENTS).map_err(Failure::from)
        }
        Command::Doctor(options) => doctor::run(options, &mut output),
        Command::Pool(options) => options.run(&mut output).map_err(Failure::from),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Pool(firstlight_pool_cli::Failure::Closed)) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
