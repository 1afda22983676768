//! The daemon's own folder: the file that one daemon locks, the journal, and lease pipes. It is closed to all others.

use super::StoreError;
use crate::os::{folder, owner};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, fchmod, fstat, statat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The file that one daemon locks.
const LOCK: &str = "lock";
/// The journal.
pub const JOURNAL: &str = "leases";
/// The journal that is being written as a whole.
pub const NEW_JOURNAL: &str = "leases.new";
/// What names of lease pipes begin with.
pub const PIPE: &str = "lease-";

/// The folder of a daemon that lives.
#[derive(Debug)]
pub(super) struct Directory {
    folder: OwnedFd,
    /// Held while the daemon lives: one daemon a folder.
    _lock: OwnedFd,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Directory {
    /// Takes the folder over; what the operator should know of it.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<String>), StoreError> {
        let failed = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| StoreError::Directory { what, path, error }
        };
        let (folder, note) = take(path).map_err(failed("use the folder", path))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&folder, LOCK, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| failed("write", &path.join(LOCK))(error.into()))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StoreError::Taken(path.to_owned()))?;
        let directory = Self {
            folder,
            _lock: lock,
        };
        Ok((directory, note))
    }
}

/// Makes the folder, or takes one that is there, closed to others, and says if it was not. One with anything else in it is
/// not ours to close, and what others may have put into it is not taken for ours.
fn take(path: &Path) -> io::Result<(OwnedFd, Option<String>)> {
    let found = folder::own(path)?;
    let mode = fstat(&found)?.st_mode & 0o7777;
    if mode & 0o077 == 0 {
        return Ok((found, None));
    }
    // One that is not ours stays as it is: where we lack a capability its mode does not come back.
    is_for_us(&found, mode)?;
    fchmod(&found, Mode::RWXU)?;
    // Again: what it is seen to have now is all that it has.
    if let Err(error) = is_for_us(&found, mode) {
        return Err(match fchmod(&found, Mode::from_raw_mode(mode)) {
            Ok(()) => error,
            Err(failed) => io::Error::other(format!(
                "{error}; it has mode 700 now, and {mode:03o} does not come back: {failed}"
            )),
        });
    }
    let note = format!(
        "{} was open to others, with mode {mode:03o}; it has 700 now",
        path.display()
    );
    Ok((found, Some(note)))
}

/// What a daemon that starts says of the folder, which is not changed.
///
/// # Errors
/// What it refuses.
pub fn look(path: &Path) -> io::Result<Option<String>> {
    let Some(found) = folder::look_at_own(path)? else {
        return Ok(None);
    };
    let mode = fstat(&found)?.st_mode & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(None);
    }
    is_for_us(&found, mode)?;
    Ok(Some(format!(
        "{} is open to others, with mode {mode:03o}; a daemon that starts gives it 700",
        path.display()
    )))
}

/// Refuses a folder that was open to others, unless all in it is a daemon's; if others wrote to it, unless it is empty.
fn is_for_us(found: &OwnedFd, mode: u32) -> io::Result<()> {
    for entry in Dir::read_from(found)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let stat = statat(found, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_such = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => [LOCK, JOURNAL, NEW_JOURNAL].contains(&&*name),
            FileType::Fifo => name.starts_with(PIPE),
            _ => false,
        };
        if !is_such || stat.st_uid != owner::us() || mode & 0o022 != 0 {
            return Err(io::Error::other(format!(
                "its mode is {mode:03o}, where 700 is expected, and `{name}` is in it: \
                 `chmod 700` it if all in it is the daemon's, or set another `directory`"
            )));
        }
    }
    Ok(())
}
