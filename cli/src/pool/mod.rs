//! `firstlight pool`: memory that is zero before a virtual machine asks for it.

mod status;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use firstlight_pool::client::{Client, default_socket};
use std::path::PathBuf;

/// Lend pre-zeroed memory to virtual machines, so that they never wait for it
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Options),
}

/// Which daemon is meant.
#[derive(Args)]
struct Daemon {
    /// The daemon's socket [default: what FIRSTLIGHT_POOL says, else /run/firstlight/pool.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    fn connect(&self) -> Result<Client, Failure> {
        let socket = self.socket.clone().unwrap_or_else(default_socket);
        Client::connect(&socket).map_err(Failure::pool)
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    match &options.command {
        Command::Status(options) => status::run(options, output),
    }
}
