//! The option that names a daemon, and the way to it.

use crate::failure::Failure;
use clap::Args;
use firstlight_pool::client::{Client, default_socket};
use std::path::PathBuf;

/// Which daemon is meant.
#[derive(Args)]
pub(crate) struct Daemon {
    /// The daemon's socket [default: what FIRSTLIGHT_POOL says, else /run/firstlight/pool.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_socket)
    }

    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.socket()).map_err(Failure::from)
    }
}
