//! `firstlight bench`: what we cost, beside rivals.

mod alloc;
mod descriptors;
mod zero;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use firstlight_pool_cli::Program;

/// Measure on this machine, beside rivals in the same run
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Alloc(alloc::Options),
    Descriptors(descriptors::Options),
    Pool(firstlight_pool_cli::bench::Options),
    Zero(zero::Options),
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    match &options.command {
        Command::Alloc(options) => alloc::run(options, output),
        Command::Descriptors(options) => descriptors::run(options, output),
        Command::Pool(options) => Ok(firstlight_pool_cli::bench::run(
            options,
            Program::Firstlight,
            output,
        )?),
        Command::Zero(options) => zero::run(options, output),
    }
}
