//! The lease pipe: its writing end goes out with the memory.
//!
//! Every process that uses the memory holds a copy of that end, by inheritance if need
//! be; the reading end is notified when the last copy is closed. A process number would
//! not do: launchers fork, and numbers are used again. The pipe has a name in the daemon's
//! folder, so that the next daemon finds it, with a service manager or without.

use super::Serial;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The reading end.
#[derive(Debug)]
pub struct LeasePipe(OwnedFd);

impl LeasePipe {
    /// Whether all copies of the other end are closed. What was written to it
    /// is left where it is.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn is_closed(&self) -> io::Result<bool> {
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

    /// Takes what is in the pipe out of it, and says whether `text` was among it: only processes that
    /// hold a copy of the other end can write there, because the folder in which it has its name is
    /// the daemon's alone.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn had(&self, text: &[u8]) -> io::Result<bool> {
        let mut all = Vec::new();
        self.take(|read| all.extend_from_slice(read))?;
        Ok(!text.is_empty() && all.windows(text.len()).any(|part| part == text))
    }

    /// Reads what is in the pipe, at most as much as it holds: a writer may go on for ever. Whether
    /// that was the end.
    fn take(&self, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut read = [0; 4096];
        let mut left = rustix::pipe::fcntl_getpipe_size(&self.0)?.max(read.len());
        loop {
            match rustix::io::read(&self.0, &mut read) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    each(read.get(..count).unwrap_or_default());
                    left = left.saturating_sub(count);
                    if left == 0 {
                        return Ok(false);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for LeasePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The folder of all lease pipes.
#[derive(Debug)]
pub struct Pipes(OwnedFd);

impl Pipes {
    /// In a folder that only the daemon may enter.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(folder, flags, Mode::empty())?))
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
        Ok((LeasePipe(ours), theirs))
    }

    /// The pipe of a lease from an earlier daemon; `None` where its last copy is closed.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn find(&self, serial: Serial) -> io::Result<Option<LeasePipe>> {
        let ours = match self.end(&name(serial), OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            ours => ours?,
        };
        // A pipe that is opened after its last copy was closed does not say so by itself; its
        // end can be read, behind what was left in it. That is no more than the pipe holds:
        // more was written since, by a writer whose end the kernel reports.
        let pipe = LeasePipe(ours);
        Ok((!pipe.take(|_| {})?).then_some(pipe))
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
            let number = entry.file_name().to_bytes().strip_prefix(PREFIX.as_bytes());
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

const PREFIX: &str = "lease-";

fn name(serial: Serial) -> String {
    format!("{PREFIX}{serial}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipes() -> (tempfile::TempDir, Pipes) {
        let folder = tempfile::tempdir().unwrap();
        let pipes = Pipes::open(folder.path()).unwrap();
        (folder, pipes)
    }

    #[test]
    fn it_is_closed_by_the_last_copy_and_by_nothing_else() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        let copy = theirs.try_clone().unwrap();
        assert!(!ours.is_closed().unwrap());
        rustix::io::write(&theirs, b"noise").unwrap();
        drop(theirs);
        assert!(!ours.is_closed().unwrap());
        drop(copy);
        assert!(ours.is_closed().unwrap());
        pipes.make(7).unwrap_err();
    }

    #[test]
    fn only_what_was_written_to_it_since_was_in_it() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        let (others, _theirs) = pipes.make(8).unwrap();
        let text = b"0123456789abcdef";
        assert!(!ours.had(text).unwrap(), "nothing was written");
        for (written, had) in [
            (&b"0123456789abcdef"[..], true),
            (b"0123456789abcde", false),
            (b"noise 0123456789abcdef noise", true),
        ] {
            rustix::io::write(theirs.try_clone().unwrap(), written).unwrap();
            assert!(!others.had(text).unwrap(), "another pipe");
            assert_eq!(ours.had(text).unwrap(), had);
            assert!(!ours.had(text).unwrap(), "it counts once");
        }
        assert!(!ours.had(b"").unwrap());
        assert!(!ours.is_closed().unwrap());
    }

    #[test]
    fn the_next_daemon_finds_it_open_or_not_at_all() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        rustix::io::write(&theirs, b"noise").unwrap();
        drop(ours);
        let found = pipes.find(7).unwrap().unwrap();
        assert!(!found.is_closed().unwrap());
        drop(theirs);
        assert!(found.is_closed().unwrap());
        drop(found);
        assert!(pipes.find(7).unwrap().is_none(), "closed while none looked");
        assert!(pipes.find(8).unwrap().is_none());
    }

    #[test]
    fn a_client_that_goes_on_writing_does_not_keep_the_next_daemon_from_starting() {
        let (_folder, pipes) = pipes();
        let (ours, theirs) = pipes.make(7).unwrap();
        rustix::io::ioctl_fionbio(&theirs, false).unwrap();
        let (found, finds) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let noise = [7; 1 << 16];
            // Ends with an error once no reader is left.
            while rustix::io::write(&theirs, &noise).is_ok() {}
            theirs
        });
        std::thread::spawn(move || {
            // As soon as it was read from, the writer fills it again.
            let end = pipes.find(7).unwrap().unwrap();
            found.send(end).unwrap();
        });
        let found = finds.recv_timeout(std::time::Duration::from_secs(60));
        let found = found.expect("it reads for ever");
        assert!(!found.is_closed().unwrap());
        drop(ours);
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
