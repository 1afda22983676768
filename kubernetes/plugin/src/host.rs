//! The machine on which either way serves.

use std::path::PathBuf;

/// What there is on it.
#[derive(Debug, Clone)]
pub struct Host {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// kubelet's folder.
    pub kubelet: PathBuf,
    /// The folder of the links that are mounted.
    pub links: PathBuf,
    /// The program that containers get.
    pub client: Option<PathBuf>,
}
