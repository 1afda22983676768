//! The socket clients connect to: received from the service manager, or made.

use super::ServeError;
use crate::lease::quota::Rules;
use crate::os::acl::{self, Others};
use crate::os::{folder, passrights};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Connections that may wait to be accepted; others wait for a place. Few, so that a flood is
/// not long in front of the next client.
const BACKLOG: i32 = 4;

/// The pool's socket, as what lies beside it is found: its name, and the folder, in which no other user puts another
/// file in its place.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    pub(super) path: PathBuf,
    pub(super) folder: Arc<OwnedFd>,
}

/// The file of a socket.
#[derive(Debug)]
struct Place {
    beside: Beside,
    file: OwnedFd,
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    /// None where the service manager listens at a name of no file. What is at the name later is not changed.
    place: Option<Place>,
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
        let find = |path: PathBuf| {
            let find = Beside::find(&path).and_then(Place::find);
            find.map_err(|error| at(&path, error))
        };
        let place = path_of(&socket).map_err(failed)?.map(find).transpose()?;
        let listener = Self {
            socket,
            place,
            made: false,
        };
        listener.admit(rules)?;
        Ok(listener)
    }

    /// One at `path`, in place of one at which no process listens any more.
    pub(super) fn make(path: &Path, rules: &Rules) -> Result<Self, ServeError> {
        let failed = |error| at(path, error);
        let beside = Beside::make(path).map_err(failed)?;
        let listener = Self {
            socket: bind(&beside.folder, path).map_err(failed)?,
            place: Some(Place::find(beside).map_err(failed)?),
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
        let Some(place) = &self.place else {
            return Ok(());
        };
        admit(&place.name(), rules).map_err(|error| at(&place.beside.path, error))
    }

    /// Ends it but for its descriptor, which goes with this process.
    pub(super) fn leave(self) {
        self.end();
        std::mem::forget(self);
    }

    /// No process is to connect here any more, or only to the next daemon.
    fn end(&self) {
        let Some(place) = &self.place else {
            return;
        };
        if self.made {
            place.remove();
        } else {
            // The service manager listens on: whom the next configuration admits is not known, and each
            // client starts the daemon that reads it.
            let _ = open_by_mode(&place.name(), 0o666);
        }
    }

    /// A connection that waits; `None` where there is none.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        accept(&self.socket)
    }

    /// Where it is, if its name is one of a file.
    pub(super) fn beside(&self) -> Option<Beside> {
        self.place.as_ref().map(|place| place.beside.clone())
    }
}

impl Beside {
    #[cfg(test)]
    pub(super) fn of(path: PathBuf, folder: Arc<OwnedFd>) -> Self {
        Self { path, folder }
    }

    /// With the folder of a path, which is made where there is none.
    fn make(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            folder: Arc::new(folder::make_passable(above(path))?),
        })
    }

    /// With the folder of a path that is there.
    fn find(path: &Path) -> io::Result<Self> {
        let folder = folder::look_at_passable(above(path))?.ok_or(Errno::NOENT)?;
        Ok(Self {
            path: path.to_owned(),
            folder: Arc::new(folder),
        })
    }
}

impl Place {
    /// That of a socket that is there, whichever user's: a service manager makes one for any (`SocketUser=`).
    fn find(beside: Beside) -> io::Result<Self> {
        let file = folder::open_socket(&beside.folder, name_in_folder(&beside.path))?;
        Ok(Self { beside, file })
    }

    /// By which its mode, owner and list are changed; without `/proc` the path, in which no other user changes anything.
    fn name(&self) -> PathBuf {
        let name = name_of(&self.file);
        if rustix::fs::stat(&name).is_ok() {
            return name;
        }
        self.beside.path.clone()
    }

    /// Removes the file, unless another one has its name by now.
    fn remove(&self) {
        let Beside { path, folder } = &self.beside;
        let name = name_in_folder(path);
        if folder::is_at(&self.file, folder, name) {
            let _ = unlinkat(folder, name, AtFlags::empty());
        }
    }
}

/// Where a socket that the service manager opened is, if its name is one of a file; another name is looked up in a folder
/// that is known to the manager alone.
pub(super) fn path_of(socket: &OwnedFd) -> rustix::io::Result<Option<PathBuf>> {
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(socket)?)?;
    let path = address.path();
    let path = path.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    Ok(path.filter(|path| path.is_absolute()))
}

/// The folder of a socket.
pub(super) fn above(socket: &Path) -> &Path {
    socket.parent().unwrap_or(socket)
}

fn name_in_folder(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}

fn at(path: &Path, error: io::Error) -> ServeError {
    ServeError::socket(format!("listen at {}", path.display()), error)
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
pub(super) fn bind(folder: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = new()?;
    let address = SocketAddrUnix::new(path)?;
    let name = name_in_folder(path);
    let is_socket = |file: Stat| FileType::from_raw_mode(file.st_mode) == FileType::Socket;
    if statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_socket) {
        match rustix::net::connect(new()?, &address) {
            Err(Errno::CONNREFUSED | Errno::NOENT) => {}
            // Without a place for one more client, also where it hangs.
            Ok(()) | Err(Errno::AGAIN) => {
                let text = "another process listens there already";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            Err(error) => {
                let text = format!(
                    "a socket is there, and whether a process listens at it is not known ({error}): remove it, or set another `socket`"
                );
                return Err(io::Error::new(error.kind(), text));
            }
        }
        unlinkat(&folder, name, AtFlags::empty())?;
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
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
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
            set(&folder, open);
            let made = Listener::make(&path, &Rules::default()).map(drop);
            assert_eq!(made.is_ok(), is_used, "{open:o}");
            if let Err(error) = made {
                assert!(error.to_string().contains("others may write"), "{error}");
            }
        }
        let (secret, moved) = (folder.join("secret"), folder.join("moved"));
        fs::write(&secret, "").unwrap();
        set(&secret, 0o640);
        let listener = Listener::make(&path, &Rules::default()).unwrap();
        fs::rename(&path, &moved).unwrap();
        set(&moved, 0o666);
        symlink(&secret, &path).unwrap();
        listener.admit(&Rules::default()).unwrap();
        assert_eq!((mode(&secret), mode(&moved)), (0o640, 0o600));
        let place = || Beside::find(&path).and_then(Place::find).map(drop);
        let find = || place().unwrap_err().to_string();
        assert!(find().contains("another file"), "{}", find());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert!(find().contains("another file"), "{}", find());
        fs::rename(&moved, &path).unwrap();
        place().unwrap();
        if rustix::process::geteuid().is_root() {
            // As `SocketUser=` has it.
            chown(&path, Some(70_001), None).unwrap();
            place().unwrap();
            chown(&folder, Some(70_001), None).unwrap();
            assert!(find().contains("user 70001's"), "{}", find());
        }
    }

    #[test]
    fn no_socket_but_the_one_that_was_made_is_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let [above, away] = ["run", "away"].map(|name| folder.path().join(name));
        let path = above.join("socket");
        let listener = Listener::make(&path, &Rules::default()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(listener);
        fs::remove_file(&path).unwrap();
        // In the folder that it is in, whatever has its name.
        let listener = Listener::make(&path, &Rules::default()).unwrap();
        fs::rename(&above, &away).unwrap();
        fs::create_dir(&above).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(listener);
        assert!(path.exists());
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_is_replaced_only_if_no_process_listens_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let make = || Listener::make(&path, &Rules::default());
        let first = make().unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let address = SocketAddrUnix::new(&path).unwrap();
        let connect = || {
            let kind = SocketType::SEQPACKET;
            let client = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
            let client = client.unwrap();
            rustix::net::connect(&client, &address).map(|()| client)
        };
        // It accepts none of them, until there is no place for another.
        let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).collect();
        assert_eq!(connect().unwrap_err(), Errno::AGAIN);
        let error = make().map(drop).unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");
        drop((waiting, first));
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = make().map(drop).unwrap_err().to_string();
        assert!(error.contains("set another `socket`"), "{error}");
        assert!(path.exists());
        drop(other);
        make().unwrap();
    }
}
