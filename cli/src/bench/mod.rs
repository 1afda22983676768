//! `firstlight bench`: what waiting for memory costs, beside its rival.

mod pool;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

/// Measure on this machine, beside a rival in the same run
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pool(pool::Options),
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    match &options.command {
        Command::Pool(options) => pool::run(options, output),
    }
}
