//! The lease pipe: its writing end goes out with the memory.
//!
//! Every process that uses the memory holds a copy of that end, by inheritance if need
//! be; the reading end is notified when the last copy is closed. A process number would
//! not do: launchers fork, and numbers are used again. A byte written to any copy ends the lease, too: to
//! hold one is the right to. The pipe has a name in the daemon's
//! folder, so that the next daemon finds it, with a service manager or without.

use super::Serial;
use crate::os::ready;
use crate::store::directory::PIPE;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The reading end.
#[derive(Debug)]
pub struct LeasePipe {
    end: OwnedFd,
    /// Whether only the end of its last copy counts.
    until_closed: bool,
}

impl LeasePipe {
    /// That of a lease whose memory cannot be taken away: a byte does not end it, since its client has the memory still.
    #[must_use]
    pub fn until_closed(self) -> Self {
        Self {
            until_closed: true,
            ..self
        }
    }

    /// Whether a byte ends the lease.
    #[must_use]
    pub fn heeds_bytes(&self) -> bool {
        !self.until_closed
    }

    /// Whether the lease is over: all copies of the other end are closed, or somebody wrote to one that heeds that.
    ///
    /// It only polls. A process that writes to a pipe can hold its lock for ever (out of memory that the kernel must
    /// ask a process for), and what reads, opens or closes it waits for that.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn is_over(&self) -> io::Result<bool> {
        if self.until_closed {
            return ready::hung_up(&self.end);
        }
        ready::to_read(&self.end)
    }

    /// Its descriptor, to be closed by a thread that may wait.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.end
    }
}

impl AsFd for LeasePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// The folder of all lease pipes.
#[derive(Debug)]
pub struct Pipes(OwnedFd);

impl Pipes {
    /// In a folder that only the daemon may enter, and that can be read.
    #[must_use]
    pub fn new(folder: OwnedFd) -> Self {
        Self(folder)
    }

    /// A new pipe, and the end that goes out.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn make(&self, serial: Serial) -> io::Result<(LeasePipe, OwnedFd)> {
        let name = name(serial);
        rustix::fs::mknodat(&self.0, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let ours = self.end(&name, OFlags::RDONLY)?;
        let theirs = self.end(&name, OFlags::WRONLY)?;
        let pipe = LeasePipe {
            end: ours,
            until_closed: false,
        };
        Ok((pipe, theirs))
    }

    /// The pipe of a lease from an earlier daemon, also with a byte in it; `None` where its last copy is closed.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn find(&self, serial: Serial) -> io::Result<Option<LeasePipe>> {
        let name = name(serial);
        let end = match self.end(&name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            end => end?,
        };
        // A pipe that is opened after its last copy was closed does not say so by itself: only what is closed
        // after that shows.
        drop(self.end(&name, OFlags::WRONLY)?);
        if ready::hung_up(&end)? {
            return Ok(None);
        }
        Ok(Some(LeasePipe {
            end,
            until_closed: false,
        }))
    }

    /// The lease is over.
    pub fn remove(&self, serial: Serial) {
        // One that stays is found and removed by the next daemon.
        let _ = rustix::fs::unlinkat(&self.0, name(serial), AtFlags::empty());
    }

    /// Removes the pipes of all leases but those that `keep` names.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn retain(&self, keep: impl Fn(Serial) -> bool) -> io::Result<()> {
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let number = entry.file_name().to_bytes().strip_prefix(PIPE.as_bytes());
            let number = number.and_then(|number| std::str::from_utf8(number).ok());
            if let Some(serial) = number.and_then(|number| number.parse().ok())
                && !keep(serial)
            {
                self.remove(serial);
            }
        }
        Ok(())
    }

    fn end(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?)
    }
}

fn name(serial: Serial) -> String {
    format!("{PIPE}{serial}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipes() -> (tempfile::TempDir, Pipes) {
        let folder = tempfile::tempdir().unwrap();
        let pipes = Pipes::new(std::fs::File::open(folder.path()).unwrap().into());
        (folder, pipes)
    }

    #[test]
    fn it_is_over_by_the_last_copy_that_is_closed_or_by_a_byte() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        let copy = theirs.try_clone().unwrap();
        drop(theirs);
        assert!(!ours.is_over().unwrap());
        drop(copy);
        assert!(ours.is_over().unwrap());
        pipes.make(7).unwrap_err();

        let ((ours, theirs), (other, _others)) = (pipes.make(8).unwrap(), pipes.make(9).unwrap());
        rustix::io::write(&theirs, b"x").unwrap();
        assert!(ours.is_over().unwrap());
        assert!(!other.is_over().unwrap());
    }

    #[test]
    fn the_next_daemon_finds_it_open_or_not_at_all() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        drop(ours);
        let found = pipes.find(7).unwrap().unwrap();
        assert!(!found.is_over().unwrap());
        drop(theirs);
        assert!(found.is_over().unwrap());
        drop(found);
        assert!(pipes.find(7).unwrap().is_none(), "closed while none looked");
        assert!(pipes.find(8).unwrap().is_none());
    }

    #[test]
    fn one_that_was_written_to_is_found_until_its_last_copy_is_closed() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(9).unwrap();
        rustix::io::write(&theirs, b"x").unwrap();
        drop(ours);
        let found = pipes.find(9).unwrap().unwrap();
        assert!(found.heeds_bytes() && found.is_over().unwrap());
        let found = found.until_closed();
        assert!(!found.is_over().unwrap() && !found.heeds_bytes());
        rustix::io::write(&theirs, b"y").unwrap();
        assert!(!found.is_over().unwrap());
        drop(theirs);
        assert!(found.is_over().unwrap());
        assert!(pipes.find(9).unwrap().is_none());
    }

    #[test]
    fn what_is_written_to_it_is_not_read() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        rustix::io::write(&theirs, &[1; 4096]).unwrap();
        // A process that writes on and on could have a daemon that starts read for ever.
        assert!(pipes.find(7).unwrap().unwrap().is_over().unwrap());
        assert_eq!(rustix::io::ioctl_fionread(&ours.end).unwrap(), 4096);
    }

    #[test]
    fn pipes_of_leases_that_are_over_are_removed() {
        let (folder, pipes) = pipes();
        let _ends: Vec<_> = (0..3).map(|serial| pipes.make(serial).unwrap()).collect();
        std::fs::write(folder.path().join("lock"), "").unwrap();
        pipes.retain(|serial| serial == 1).unwrap();
        pipes.remove(99);
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["lease-1", "lock"]);
    }
}
