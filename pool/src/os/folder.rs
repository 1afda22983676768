//! Folders that other users do not change: the daemon's own, which none may enter, and that of its socket.
//!
//! A process that lists a folder keeps all waiting that change it, for as long as it likes. All here is done by
//! descriptors: in another user's folder a name means another file the next moment.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a folder of this process's user, by no link.
///
/// # Errors
/// That it is another user's; the operating system's refusal.
pub fn open(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(at, name, flags, Mode::empty())?;
    let (owner, us) = (fstat(&folder)?.st_uid, us());
    if owner != us {
        return Err(io::Error::other(format!(
            "it is another user's, {owner}, where {us} is expected"
        )));
    }
    Ok(folder)
}

/// Opens a folder of this process's user, which is closed to all others from now on.
///
/// # Errors
/// As of [`open`].
pub fn open_private(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let folder = open(at, name)?;
    if fstat(&folder)?.st_mode & 0o077 != 0 {
        fchmod(&folder, Mode::RWXU)?;
    }
    Ok(folder)
}

/// As [`open_private`], of a folder that is made where there is none, with those above it, which the socket may lie in.
/// One that is there is not made again: that would wait for a process that lists the folder above.
///
/// # Errors
/// As of [`open`].
pub fn make_private(folder: &Path) -> io::Result<OwnedFd> {
    match (open_private(CWD, folder), folder.file_name()) {
        (Err(error), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            let above = make_passable(folder.parent().unwrap_or(folder))?;
            make(above, Path::new(name), Mode::RWXU)
        }
        (opened, _) => opened,
    }
}

/// Opens a folder. Where there is none it is made so that every user may pass it: clients reach the socket through it. None
/// may list it. One that is there stays as it is.
///
/// # Errors
/// That another user may change what is made; the operating system's refusal.
pub fn make_passable(folder: &Path) -> io::Result<OwnedFd> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match (openat(CWD, here, flags, Mode::empty()), folder.file_name()) {
        (Err(rustix::io::Errno::NOENT), Some(name)) => {
            let above = make_passable(folder.parent().unwrap_or(folder))?;
            check_unchanged(&above)?;
            make(above, Path::new(name), Mode::from_raw_mode(0o711))
        }
        (opened, _) => Ok(opened?),
    }
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

/// Refuses a folder in which another user may put a file in the place of ours.
///
/// # Errors
/// What was found, and what to do.
pub fn check_unchanged(folder: impl AsFd) -> io::Result<()> {
    let stat = fstat(folder)?;
    if !is_trusted(&stat) {
        return Err(io::Error::other(format!(
            "its folder is user {}'s, where root's or the daemon's is expected: choose another",
            stat.st_uid
        )));
    }
    let mode = stat.st_mode & 0o7777;
    // In a sticky one a file is its owner's alone to remove.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Err(io::Error::other(format!(
            "others may write to its folder, which has mode {mode:03o}: `chmod go-w` it, or choose another"
        )));
    }
    Ok(())
}

/// Opens a socket's file to change its mode, by no link. It has the name `/proc/self/fd/` with the descriptor's number.
///
/// # Errors
/// That another file is in its place; the operating system's refusal.
pub fn open_socket(at: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(at, name, flags, Mode::empty())?;
    let stat = fstat(&socket)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || !is_trusted(&stat) {
        return Err(io::Error::other(
            "another file is in the place of its socket, where one is expected",
        ));
    }
    Ok(socket)
}

/// Whether a file of ours with this name is in a folder.
#[must_use]
pub fn has(folder: impl AsFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_uid == us()
    })
}

fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == us()
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}
