//! The socket clients connect to: received from the service manager, or made.

use super::ServeError;
use crate::lease::quota::Rules;
use crate::os::acl::{self, Others};
use crate::os::{folder, passrights};
use rustix::fs::{Gid, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Connections that may wait to be accepted; others wait for a place. Few, so that a flood is
/// not long in front of the next client.
const BACKLOG: i32 = 4;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    /// Its name, and the file there; none where the service manager listens at a name of no file. What is at the name
    /// later is not changed.
    file: Option<(PathBuf, OwnedFd)>,
    /// Whether the name is the daemon's own, to be removed at the end.
    made: bool,
}

impl Listener {
    /// One that the service manager opened.
    pub(super) fn received(socket: OwnedFd, rules: &Rules) -> Result<Self, ServeError> {
        let failed =
            |error: rustix::io::Errno| ServeError::socket("use the socket received", error);
        let kind = sockopt::socket_type(&socket).map_err(failed)?;
        let listens = sockopt::socket_acceptconn(&socket).map_err(failed)?;
        let unix = sockopt::socket_domain(&socket).map_err(failed)? == AddressFamily::UNIX;
        if kind != SocketType::SEQPACKET || !listens || !unix {
            let text = "it is none of Unix SOCK_SEQPACKET that listens (ListenSequentialPacket=)";
            let error = io::Error::new(io::ErrorKind::InvalidInput, text);
            return Err(ServeError::socket("use the socket received", error));
        }
        set_nonblocking(&socket).map_err(failed)?;
        // Those that came before are looked at for descriptors, as all are where the kernel is older.
        let _ = passrights::refuse(&socket);
        // As many as wait where the daemon listens itself.
        rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
        let address = rustix::net::getsockname(&socket).map_err(failed)?;
        let address = SocketAddrUnix::try_from(address).map_err(failed)?;
        let path = address
            .path()
            .map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
        let listener = Self {
            socket,
            file: path.map(with_file).transpose()?,
            made: false,
        };
        listener.admit(rules)?;
        Ok(listener)
    }

    /// One at `path`, in place of one at which no process listens any more.
    pub(super) fn make(path: &Path, rules: &Rules) -> Result<Self, ServeError> {
        let failed = |error| at(path, error);
        if let Some(above) = path.parent() {
            let made = folder::make_passable(above);
            made.and_then(folder::check_unchanged).map_err(failed)?;
        }
        let listener = Self {
            socket: bind(path).map_err(failed)?,
            file: Some(with_file(path.to_owned())?),
            made: true,
        };
        // Before any client can connect: nothing listens yet.
        listener.admit(rules)?;
        serve(&listener.socket).map_err(failed)?;
        Ok(listener)
    }

    /// Opens the socket to those that the rules know, so that the kernel refuses all others:
    /// their connections cost the daemon nothing. What a client may do is decided for each
    /// connection.
    pub(super) fn admit(&self, rules: &Rules) -> Result<(), ServeError> {
        let Some((path, file)) = &self.file else {
            return Ok(());
        };
        admit(&name_of(file), rules).map_err(|error| at(path, error))
    }

    /// Ends it but for its descriptor, which goes with this process.
    pub(super) fn leave(self) {
        self.end();
        std::mem::forget(self);
    }

    /// No process is to connect here any more, or only to the next daemon.
    fn end(&self) {
        let Some((path, file)) = &self.file else {
            return;
        };
        if self.made {
            let _ = fs::remove_file(path);
        } else {
            // The service manager listens on: whom the next configuration admits is not known, and each
            // client starts the daemon that reads it.
            let _ = open_by_mode(&name_of(file), 0o666);
        }
    }

    /// A connection that waits; `None` where there is none.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        accept(&self.socket)
    }

    /// Its name, where that is one of a file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| &**path)
    }
}

fn at(path: &Path, error: io::Error) -> ServeError {
    ServeError::socket(format!("listen at {}", path.display()), error)
}

/// The name of a socket with its file, which lies in a folder where no other user puts one in its place.
fn with_file(path: PathBuf) -> Result<(PathBuf, OwnedFd), ServeError> {
    let find = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = path.parent().unwrap_or(&path);
        let above = rustix::fs::open(above, flags, Mode::empty())?;
        folder::check_unchanged(&above)?;
        folder::open_socket(above, Path::new(path.file_name().unwrap_or_default()))
    };
    let file = find().map_err(|error| at(&path, error))?;
    Ok((path, file))
}

/// By which a file's mode, owner and list are changed: no link comes in its place. The folders in it are known to
/// the kernel as long as [`descriptors`](crate::os::memory_file::descriptors) is open.
pub(super) fn name_of(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn admit(path: &Path, rules: &Rules) -> io::Result<()> {
    let group = rules.group();
    if let Some(group) = group {
        rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
    }
    let Some(admitted) = rules.admitted() else {
        return open_by_mode(path, 0o666);
    };
    // Without `group` in the rules the file's is the daemon's own, or one of earlier rules.
    let others = Others {
        group: group.is_some(),
        users: &admitted.users,
        groups: &admitted.groups,
    };
    if acl::read_write(path, &others).is_ok() {
        return Ok(());
    }
    // Not on this file system, or too many to be listed: those that may do nothing are sent away.
    let is_empty = admitted.users.is_empty() && admitted.groups.is_empty();
    let mode = match (is_empty, group) {
        (true, None) => 0o600,
        (true, Some(_)) => 0o660,
        (false, _) => 0o666,
    };
    open_by_mode(path, mode)
}

/// Users that a mode allows may connect, whatever a list of earlier rules says. The mode comes first: with the list
/// goes what it allowed beyond that.
fn open_by_mode(path: &Path, mode: u32) -> io::Result<()> {
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    acl::clear(path)
}

/// A socket at `path`, in place of one at which no process listens any more; no client can connect yet.
pub(super) fn bind(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = new()?;
    let address = SocketAddrUnix::new(path)?;
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        if rustix::net::connect(new()?, &address).is_ok() {
            let text = "another process listens there already";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        fs::remove_file(path)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Lets clients connect, and send no descriptors: where the kernel is older messages are looked at for these.
pub(super) fn serve(socket: &OwnedFd) -> io::Result<()> {
    let _ = passrights::refuse(socket);
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

/// A connection that waits; `None` where there is none.
pub(super) fn accept(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::accept_with(socket, flags) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            let error = io::Error::from(error);
            match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted => Ok(None),
                _ => Err(error),
            }
        }
    }
}

fn set_nonblocking(socket: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(socket)?;
    rustix::fs::fcntl_setfl(socket, flags | rustix::fs::OFlags::NONBLOCK)
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Whom the next configuration admits only the daemon that reads it knows.
    #[test]
    fn a_socket_of_the_manager_is_open_to_all_while_no_daemon_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket(AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, BACKLOG).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let listener = Listener::received(socket, &Rules::default()).unwrap();
        assert_eq!(mode(), 0o600);
        drop(listener);
        assert_eq!(mode(), 0o666);
        // One of the daemon's own is gone with it.
        fs::remove_file(&path).unwrap();
        let listener = Listener::make(&path, &Rules::default()).unwrap();
        assert_eq!(mode(), 0o600);
        drop(listener);
        fs::metadata(&path).unwrap_err();
    }

    #[test]
    fn no_file_but_the_socket_changes_and_no_folder_is_used_that_others_write_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (open, is_used) in [
            (0o777, false),
            (0o775, false),
            (0o1777, true),
            (0o755, true),
        ] {
            set(folder.path(), open);
            let made = Listener::make(&path, &Rules::default()).map(drop);
            assert_eq!(made.is_ok(), is_used, "{open:o}");
            if let Err(error) = made {
                assert!(error.to_string().contains("others may write"), "{error}");
            }
        }
        let (secret, moved) = (folder.path().join("secret"), folder.path().join("moved"));
        fs::write(&secret, "").unwrap();
        set(&secret, 0o640);
        let listener = Listener::make(&path, &Rules::default()).unwrap();
        fs::rename(&path, &moved).unwrap();
        set(&moved, 0o666);
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        listener.admit(&Rules::default()).unwrap();
        assert_eq!((mode(&secret), mode(&moved)), (0o640, 0o600));
        let find = || with_file(path.clone()).map(drop).unwrap_err().to_string();
        assert!(find().contains("another file"), "{}", find());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert!(find().contains("another file"), "{}", find());
        fs::rename(&moved, &path).unwrap();
        with_file(path.clone()).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(70_001), None).unwrap();
            assert!(find().contains("user 70001's"), "{}", find());
        }
    }
}
