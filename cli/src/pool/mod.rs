//! `firstlight pool`: memory that is zero before a virtual machine asks for it.

mod change;
mod check;
mod daemon;
pub(crate) mod emulator;
mod export;
mod injector;
mod libvirt;
mod run;
mod serve;
mod start;
mod status;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};

/// Allocate pre-zeroed memory to virtual machines, so that they never wait for it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Options),
    Check(check::Options),
    Run(run::Options),
    Status(status::Options),
    Export(export::Options),
    Resize(change::ResizeOptions),
    Drain(change::DrainOptions),
    Libvirt(libvirt::Options),
    #[command(hide = true)]
    Injector,
}

const EXAMPLES: &str = "\
Three steps, as root; docs/pool.md has more:
  echo 4096 > /proc/sys/vm/nr_hugepages                     8 GiB in huge pages of 2 MiB
  firstlight pool serve --config pool/example.toml &        keeps slabs of 2 and 4 GiB zeroed
  firstlight pool run --memory 2G -- qemu-system-x86_64 ... a machine that starts on one

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    match &options.command {
        Command::Check(options) => check::run(options, output),
        Command::Export(options) => export::run(options),
        Command::Drain(options) => change::drain(options, output),
        Command::Resize(options) => change::resize(options, output),
        Command::Injector => injector::run(),
        Command::Libvirt(options) => libvirt::run(options, output),
        Command::Run(options) => run::run(options, output),
        Command::Serve(options) => serve::run(options),
        Command::Status(options) => status::run(options, output),
    }
}
