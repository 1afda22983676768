//! `firstlight bench`: what we cost, beside rivals.

mod alloc;
mod descriptors;
mod pool;
mod zero;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

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
    Pool(pool::Options),
    Zero(zero::Options),
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    match &options.command {
        Command::Alloc(options) => alloc::run(options, output),
        Command::Descriptors(options) => descriptors::run(options, output),
        Command::Pool(options) => pool::run(options, output),
        Command::Zero(options) => zero::run(options, output),
    }
}
