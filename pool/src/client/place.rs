//! The folder of a socket, held by a client that is connected through it: what is looked at afterwards is where the socket is.

use crate::os::folder;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Connects a socket to that at `path` through its folder, which is returned. By `/proc`, which strangers may keep waiting:
/// only where another user listens.
pub(super) fn connect_through(path: &Path, end: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let above = match path.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, above, flags, Mode::empty())?;
    // This thread's: it may have descriptors of its own.
    let held = format!("/proc/thread-self/fd/{}", folder.as_raw_fd());
    connect(end, &SocketAddrUnix::new(Path::new(&held).join(name))?)?;
    Ok(folder)
}

/// Whether a socket of this user's, which was connected to through `folder`, is in a folder where such a one is to be.
pub(super) fn is_for(folder: &OwnedFd, path: &Path, user: u32) -> bool {
    let path = std::path::absolute(path);
    path.is_ok_and(|path| folder::is_for_socket_of(folder, &path, user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const STRANGER: u32 = 65_062;

    fn end() -> OwnedFd {
        socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap()
    }

    fn listener(path: &Path) -> OwnedFd {
        let listener = end();
        bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
        listen(&listener, 4).unwrap();
        listener
    }

    /// In a folder where any user makes names, a stranger's socket, and afterwards a folder of root's at its place.
    #[test]
    fn a_folder_that_comes_in_the_place_of_another_says_nothing_of_what_is_connected_to() {
        if !rustix::process::geteuid().is_root() {
            return crate::os::need::skip("root", "only root can make files of others");
        }
        let top = tempfile::tempdir().unwrap();
        let [public, run, away] =
            ["public", "public/run", "public/away"].map(|name| top.path().join(name));
        fs::create_dir_all(&run).unwrap();
        fs::set_permissions(&public, PermissionsExt::from_mode(0o1777)).unwrap();
        let socket = run.join("pool.sock");
        let theirs = listener(&socket);
        chown(&run, Some(STRANGER), None).unwrap();
        let is_theirs = |folder: &OwnedFd| is_for(folder, &socket, STRANGER);
        let folder = connect_through(&socket, end()).unwrap();
        assert!(!is_theirs(&folder));
        fs::rename(&run, &away).unwrap();
        fs::create_dir(&run).unwrap();
        let _ours = listener(&socket);
        assert!(!is_theirs(&folder), "another folder");
        assert!(is_theirs(&connect_through(&socket, end()).unwrap()));
        // A link in a folder of root's does not say where it leads to.
        fs::remove_file(&socket).unwrap();
        symlink(away.join("pool.sock"), &socket).unwrap();
        assert!(!is_theirs(&connect_through(&socket, end()).unwrap()));
        drop(theirs);
    }

    #[test]
    fn a_path_without_a_socket_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let socket = top.path().join("pool.sock");
        drop(listener(&socket));
        for (path, error) in [
            (top.path().join("none/pool.sock"), Errno::NOENT),
            (top.path().join("none"), Errno::NOENT),
            ("/".into(), Errno::ISDIR),
            (top.path().to_owned(), Errno::CONNREFUSED),
            (socket, Errno::CONNREFUSED),
            (top.path().join("b".repeat(105)), Errno::NAMETOOLONG),
        ] {
            assert_eq!(
                connect_through(&path, end()).unwrap_err(),
                error,
                "{path:?}"
            );
        }
    }
}
