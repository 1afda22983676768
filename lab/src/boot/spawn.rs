//! A child process that cannot outlive this one, even if this one is killed and
//! can no longer clean up. The one unsafe block of this crate is here.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Starts `command` in a process group of its own, with `inherited` open in it
/// under the numbers they have here. They are closed here.
///
/// The kernel kills the child when the *thread* that called this ends; whoever
/// calls it must wait for the child before it returns.
pub(super) fn spawn(mut command: Command, inherited: Vec<OwnedFd>) -> io::Result<Child> {
    let parent = getpid();
    // A signal from the terminal is ours to hear, not the child's.
    command.process_group(0);
    let prepare = move || prepare(parent, &inherited);
    // SAFETY: `prepare` runs between fork and exec, where only what is
    // async-signal-safe may be done: it makes system calls and touches memory that
    // was there before, and neither allocates, locks nor panics.
    unsafe {
        command.pre_exec(prepare);
    }
    // `command` owns the closure and with it the descriptors; both go here.
    command.spawn()
}

/// What the child does before it becomes another program.
fn prepare(parent: Pid, inherited: &[OwnedFd]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before that is not heard of any more.
    if getppid() != Some(parent) {
        return Err(io::Error::from(io::ErrorKind::Interrupted));
    }
    for descriptor in inherited {
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    Ok(())
}
