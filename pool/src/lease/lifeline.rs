//! The lifeline: a pipe whose writing end goes out with the memory.
//!
//! Whoever uses the memory holds a copy of that end, by inheritance if need be;
//! the reading end hears when the last copy is closed. A process number would
//! not do: launchers fork, and numbers are used again.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The reading end.
#[derive(Debug)]
pub struct Lifeline(OwnedFd);

impl Lifeline {
    /// A lifeline and the end that goes out.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (ours, theirs) = rustix::pipe::pipe_with(flags)?;
        Ok((Self(ours), theirs))
    }

    /// Whether all copies of the other end are closed. What was written to it
    /// means nothing and is left where it is.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn is_cut(&self) -> io::Result<bool> {
        let mut wanted = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut wanted, Some(&now)))?;
        Ok(wanted
            .iter()
            .any(|end| end.revents().contains(PollFlags::HUP)))
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_cut_by_the_last_copy_and_by_nothing_else() {
        let (ours, theirs) = Lifeline::new().unwrap();
        let copy = theirs.try_clone().unwrap();
        assert!(!ours.is_cut().unwrap());
        rustix::io::write(&theirs, b"noise").unwrap();
        drop(theirs);
        assert!(!ours.is_cut().unwrap());
        drop(copy);
        assert!(ours.is_cut().unwrap());
    }
}
