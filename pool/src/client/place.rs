//! The socket that a client connects to, by a folder that it holds: what is looked at afterwards is what it is connected to.

use crate::os::folder;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// None where it is not connected to by `/proc`, which is not there or not for us, or where the name is too long for that.
    folder: Option<OwnedFd>,
}

impl Place {
    /// Connects a socket to that at `path`.
    pub(super) fn connect(path: &Path, end: impl AsFd) -> rustix::io::Result<Self> {
        let above = match path.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, above, flags, Mode::empty())?;
        // This thread's: it may have descriptors of its own.
        let held = format!("/proc/thread-self/fd/{}", folder.as_raw_fd());
        let address = SocketAddrUnix::new(Path::new(&held).join(name));
        let folder = match address.and_then(|address| connect(&end, &address)) {
            Ok(()) => Some(folder),
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG,
            ) => {
                connect(&end, &SocketAddrUnix::new(path)?)?;
                None
            }
            Err(error) => return Err(error),
        };
        let path = path.to_owned();
        Ok(Self { path, folder })
    }

    /// Whether a socket of this user's, which is connected to, is in a folder where such a one is to be.
    pub(super) fn is_of(&self, user: u32) -> bool {
        let whole = std::path::absolute(&self.path);
        let folder = self.folder.as_ref().zip(whole.ok());
        folder.is_some_and(|(folder, path)| folder::is_for_socket_of(folder, &path, user))
    }
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
        let place = Place::connect(&socket, end()).unwrap();
        assert!(!place.is_of(STRANGER));
        fs::rename(&run, &away).unwrap();
        fs::create_dir(&run).unwrap();
        let _ours = listener(&socket);
        assert!(!place.is_of(STRANGER), "another folder");
        assert!(Place::connect(&socket, end()).unwrap().is_of(STRANGER));
        // A link in a folder of root's does not say where it leads to.
        fs::remove_file(&socket).unwrap();
        symlink(away.join("pool.sock"), &socket).unwrap();
        let place = Place::connect(&socket, end()).unwrap();
        assert!(!place.is_of(STRANGER));
        drop(theirs);
    }

    #[test]
    fn a_path_that_no_socket_address_holds_is_connected_to() {
        let top = tempfile::tempdir().unwrap();
        let long = top.path().join("a".repeat(100));
        fs::create_dir(&long).unwrap();
        let short = top.path().join("short");
        symlink(&long, &short).unwrap();
        let _listener = listener(&short.join("pool.sock"));
        let place = Place::connect(&long.join("pool.sock"), end()).unwrap();
        assert!(place.folder.is_some());
        for (path, error) in [
            (top.path().join("none/pool.sock"), Errno::NOENT),
            (top.path().join("none"), Errno::NOENT),
            ("/".into(), Errno::ISDIR),
            (short, Errno::CONNREFUSED),
            (top.path().join("b".repeat(105)), Errno::NAMETOOLONG),
        ] {
            assert_eq!(Place::connect(&path, end()).unwrap_err(), error, "{path:?}");
        }
    }
}
