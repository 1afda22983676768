//! What can be had without waiting.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::AsFd;

/// Whether there is something to read now, or the other end is gone.
///
/// # Errors
/// The operating system's refusal.
pub fn to_read(file: impl AsFd) -> io::Result<bool> {
    poll(file, PollFlags::IN)
}

/// Whether the other end is gone, whatever is left to read.
///
/// # Errors
/// The operating system's refusal.
pub fn hung_up(file: impl AsFd) -> io::Result<bool> {
    poll(file, PollFlags::empty())
}

fn poll(file: impl AsFd, wanted: PollFlags) -> io::Result<bool> {
    let mut wanted = [PollFd::new(&file, wanted)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut wanted, Some(&now)))?;
    Ok(ready > 0)
}
