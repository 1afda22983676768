//! Subcommands of the pool: `firstlight-pool serve`, and the same as `firstlight pool serve`.
//!
//! The pool's library has the logic; here are arguments and what is printed. `firstlight`
//! prints with [`output`] and [`text`] too.

pub mod bench;
pub mod failure;
pub mod manual;
pub mod output;
pub mod progress;
#[cfg(feature = "schema")]
pub mod schemas;
pub mod text;

mod change;
mod check;
mod clean;
mod daemon;
pub mod emulator;
mod export;
mod fill;
mod grant;
mod injector;
mod input;
mod libvirt;
mod plan;
mod run;
mod serve;
mod start;
mod status;

pub use failure::{Failure, Problem};

use clap::{Args, Command, Subcommand};
use output::Output;

/// Allocate pre-zeroed memory to virtual machines, so that they never wait for it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Subcommands,
}

impl Options {
    /// Runs the subcommand as one of `firstlight pool`.
    ///
    /// # Errors
    /// What it could not do.
    pub fn run(&self, output: &mut Output) -> Result<(), Failure> {
        self.command.run(Program::Firstlight, output)
    }
}

/// What can be done with a pool.
#[derive(Subcommand)]
#[expect(
    missing_docs,
    reason = "the options' own words are what `--help` shows"
)]
pub enum Subcommands {
    Serve(serve::Options),
    Check(check::Options),
    Run(run::Options),
    Status(status::Options),
    Export(export::Options),
    Resize(change::ResizeOptions),
    Fill(fill::Options),
    Drain(change::DrainOptions),
    Grant(grant::GrantOptions),
    Revoke(grant::RevokeOptions),
    Libvirt(libvirt::Options),
    Plan(plan::Options),
    #[command(hide = true)]
    Injector,
    #[command(hide = true)]
    Mapper(serve::MapperOptions),
}

const EXAMPLES: &str = "\
As root; docs/pool.md has more:
  echo 4096 > /proc/sys/vm/nr_hugepages                     8 GiB in huge pages of 2 MiB
  firstlight pool serve --config pool/example.toml &        slabs of 2 and 4 GiB; go on at `filled`
  firstlight pool run --memory 2G -- qemu-system-x86_64 ... a machine that starts on one
  firstlight pool drain                                     the daemon ends with the last machine
  echo 0 > /proc/sys/vm/nr_hugepages                        gives the huge pages back

Exit codes: see firstlight --help";

impl Subcommands {
    /// Runs the subcommand, as one of `program`.
    ///
    /// # Errors
    /// What it could not do.
    pub fn run(&self, program: Program, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Check(options) => check::run(options, output),
            Self::Export(options) => export::run(options, program),
            Self::Drain(options) => change::drain(options, output),
            Self::Fill(options) => fill::run(options, output),
            Self::Grant(options) => grant::grant(options, output),
            Self::Resize(options) => change::resize(options, output),
            Self::Revoke(options) => grant::revoke(options, output),
            Self::Injector => injector::run(),
            Self::Mapper(options) => serve::map(options),
            Self::Libvirt(options) => libvirt::run(options, output),
            Self::Plan(options) => plan::run(options, output),
            Self::Run(options) => run::run(options, program, output),
            Self::Serve(options) => serve::run(options, program),
            Self::Status(options) => status::run(options, program, output),
        }
    }
}

/// The program whose subcommands these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `firstlight pool ...`
    Firstlight,
    /// `firstlight-pool ...`
    Pool,
}

impl Program {
    /// Its subcommands, as they are typed.
    fn name(self) -> &'static str {
        match self {
            Self::Firstlight => "firstlight pool",
            Self::Pool => "firstlight-pool",
        }
    }

    /// `text` with commands as they are typed for it.
    fn words(self, text: String) -> String {
        match self {
            Self::Firstlight => text,
            Self::Pool => {
                let text = text.replace("firstlight pool", "firstlight-pool");
                let text = text.replace("firstlight bench pool", "firstlight-pool bench");
                text.replace("firstlight --help", "firstlight-pool --help")
            }
        }
    }

    /// What comes before a subcommand.
    fn prefix(self) -> &'static [&'static str] {
        match self {
            Self::Firstlight => &["pool"],
            Self::Pool => &[],
        }
    }
}

/// `command` with its examples written for `program`.
#[must_use]
pub fn named(command: Command, program: Program) -> Command {
    if program == Program::Firstlight {
        return command;
    }
    let examples = command
        .get_after_help()
        .map(|help| program.words(help.to_string()));
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(|subcommand| named(subcommand, program))
}
