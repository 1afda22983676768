//! The process beside a VMM that was started with `--inject`.
//!
//! It answers the VMM's calls, so it lives as long as the VMM: no
//! terminal, no signal from one, no reader of its output may end it. It is
//! this command again, with one end of a pair of sockets as standard input.

use crate::Program;
use crate::failure::Failure;
use firstlight_pool::client::Allocated;
use firstlight_pool::launch::Need;
use firstlight_pool::launch::inject::{self, HandOverError};
use firstlight_pool::os::inherited;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Starts it, hands it the files, and returns the lease pipes: what is to become
/// the VMM has no other part of the memory.
pub(crate) fn start(
    program: Program,
    needs: &[Need],
    allocated: Vec<Allocated>,
) -> Result<Vec<OwnedFd>, HandOverError> {
    let harmless = |error| HandOverError {
        watched: false,
        error,
    };
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)
        .map_err(|error| harmless(error.into()))?;
    let mut command = Command::new(std::env::current_exe().map_err(harmless)?);
    command
        // This program may have been started under QEMU's name.
        .arg0("firstlight")
        .args(program.prefix())
        .arg("injector")
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    // What the VMM is to inherit, such as libvirt's socket to it, would stay open with this.
    inherited::only_standard(&mut command);
    command.spawn().map_err(harmless)?;
    inject::hand_over(&ours, needs, allocated)
}

/// Runs the process.
pub(crate) fn run() -> Result<(), Failure> {
    inject::serve(io::stdin().as_fd())
        .map_err(|error| Failure::Pool(format!("beside the VMM: {error}")))
}
