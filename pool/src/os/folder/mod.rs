//! Folders that other users do not change: the daemon's own, which none may enter, and that of its socket.
//!
//! A process that lists a folder keeps all waiting that change it, for as long as it likes. All here is done by
//! descriptors: in another user's folder a name means another file the next moment. `walk.rs` has whole paths.

mod walk;

use super::owner;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat, statat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
pub use walk::PASSABLE;
use walk::{Missing, walk, walk_with};

/// Opens a folder of this process's user, by no link.
///
/// # Errors
/// That it is another user's, or that another user may have moved it there; the operating system's refusal.
pub fn open(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&at, name, flags, Mode::empty())?;
    let stat = fstat(&folder)?;
    is_ours(&stat)?;
    if fstat(at)?.st_mode & 0o022 != 0 {
        walk::no_other_writes(&stat, name)?;
    }
    Ok(folder)
}

/// Opens a folder of this process's user, which is closed to all others from now on.
///
/// # Errors
/// As of [`open`].
pub fn open_private(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let folder = open(at, name)?;
    close(&folder)?;
    Ok(folder)
}

/// Opens a folder of this process's user by its whole path, to read it. Where there is none it is made, closed to all
/// others, with those above it, which the socket may lie in.
/// One that is there is not made again: that would wait for a process that lists the folder above.
///
/// # Errors
/// That another user may put another one in its place; as of [`open`].
pub fn own(path: &Path) -> io::Result<OwnedFd> {
    let found = walk(path, Missing::Made(Mode::RWXU))?;
    to_read(found)
}

/// As [`own`], of a folder that is closed to all others from now on.
///
/// # Errors
/// As of [`own`].
pub fn make_private(path: &Path) -> io::Result<OwnedFd> {
    let folder = own(path)?;
    close(&folder)?;
    Ok(folder)
}

/// Opens a folder by its whole path. Where there is none it is made so that every user may pass it: clients reach the
/// socket through it. None may list it. One that is there stays as it is.
///
/// # Errors
/// That another user may change what is in it, or put another one in its place; the operating system's refusal.
pub fn make_passable(path: &Path) -> io::Result<OwnedFd> {
    let folder = walk(path, Missing::Made(PASSABLE))?;
    walk::check(&folder, path)?;
    Ok(folder)
}

/// Opens a folder by its whole path, if there is one, to look at it. Whether others may change what is in it is not asked.
///
/// # Errors
/// That another user may put another one in its place; the operating system's refusal.
pub fn look_at(path: &Path) -> io::Result<Option<OwnedFd>> {
    match walk(path, Missing::Stays) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Whether a socket that a user listens at is that user's, or root's, to make: `folder`, by which it was reached, is that of
/// its path, on which all is root's, this process's user's or that user's; and it is that user's own, or no other user makes
/// names in it.
#[must_use]
pub fn is_for_socket_of(folder: impl AsFd, path: &Path, user: u32) -> bool {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let found = walk_with(above, Missing::Stays, Some(user)).and_then(|found| {
        // No link leads elsewhere.
        open_socket(&found, Path::new(name))?;
        Ok((fstat(found)?, fstat(folder)?))
    });
    found.is_ok_and(|(found, reached)| {
        let is_closed = found.st_mode & 0o022 == 0;
        let is_theirs = found.st_uid == user || is_closed && is_trusted(found.st_uid, false);
        is_theirs && is_one(&found, &reached)
    })
}

/// As [`look_at`], of one in which a socket is to be.
///
/// # Errors
/// As of [`make_passable`].
pub fn look_at_passable(path: &Path) -> io::Result<Option<OwnedFd>> {
    let found = look_at(path)?;
    if let Some(folder) = &found {
        walk::check(folder, path)?;
    }
    Ok(found)
}

/// As [`look_at`], of one of this process's user, to read it.
///
/// # Errors
/// As of [`own`].
pub fn look_at_own(path: &Path) -> io::Result<Option<OwnedFd>> {
    look_at(path)?.map(to_read).transpose()
}

/// Whether a folder is another one, or lies in it at any depth.
///
/// # Errors
/// The operating system's refusal.
pub fn lies_in(folder: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let other = fstat(other)?;
    let mut at = openat(folder, ".", flags, Mode::empty())?;
    loop {
        let here = fstat(&at)?;
        if is_one(&here, &other) {
            return Ok(true);
        }
        at = openat(&at, "..", flags, Mode::empty())?;
        if is_one(&here, &fstat(&at)?) {
            return Ok(false);
        }
    }
}

fn to_read(found: OwnedFd) -> io::Result<OwnedFd> {
    is_ours(&fstat(&found)?)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(found, ".", flags, Mode::empty())?)
}

/// Closes a folder of this process's user to all others.
///
/// # Errors
/// The operating system's refusal.
pub fn close(folder: &OwnedFd) -> io::Result<()> {
    if fstat(folder)?.st_mode & 0o077 != 0 {
        fchmod(folder, Mode::RWXU)?;
    }
    Ok(())
}

fn is_ours(stat: &Stat) -> io::Result<()> {
    let (owner, us) = (stat.st_uid, owner::us());
    if owner == us {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is another user's, {owner}, where {us} is expected"
    )))
}

/// Makes a folder, whatever mask we have. One that another process of ours has made meanwhile is it.
///
/// # Errors
/// The operating system's refusal.
pub fn make(at: impl AsFd, name: &Path, mode: Mode) -> io::Result<OwnedFd> {
    match mkdirat(&at, name, mode) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = open(at, name)?;
    fchmod(&made, mode)?;
    Ok(made)
}

/// Opens a socket's file to change its mode, by no link. It has the name `/proc/self/fd/` with the descriptor's number.
///
/// # Errors
/// That another file is in its place; the operating system's refusal.
pub fn open_socket(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(at, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::Error::other(
            "another file is in the place of its socket, where one is expected",
        ));
    }
    Ok(socket)
}

/// Whether a file is at this name still.
#[must_use]
pub fn is_at(file: impl AsFd, folder: impl AsFd, name: &Path) -> bool {
    let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    there.is_ok_and(|there| fstat(file).is_ok_and(|file| is_one(&there, &file)))
}

fn is_one(file: &Stat, other: &Stat) -> bool {
    (file.st_dev, file.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether root or this process's user owns a file. What this user namespace has no number for may be root's, but where
/// any user makes names.
fn is_trusted(user: u32, is_made_by_any: bool) -> bool {
    user == 0 || user == owner::us() || (!is_made_by_any && owner::unmapped() == Some(user))
}
