//! The process at the other end of a Unix socket, as the kernel saw it connect.
//!
//! User, group and process are what they were when the connection was made;
//! the cgroup is read from `/proc`, and left out when that process is gone,
//! because its number may be another's by then.

use super::ready;
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

/// The other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Process that connected; 0 where it cannot be seen from here.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// The user that it counts as: the owner of its range of subordinate users, else `uid`.
    pub user: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its cgroup: the unified hierarchy's path, or the memory controller's.
    pub cgroup: Option<String>,
}

impl Peer {
    /// Whether it is a member of the group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// What the kernel says of the process that connected, without what takes longer to read.
#[derive(Debug, Clone, Copy)]
pub struct Credentials {
    pid: u32,
    /// Its effective user.
    pub uid: u32,
    gid: u32,
}

impl Credentials {
    /// Those of the process at the other end of `socket`. Not by `rustix`, for which no process is
    /// number 0.
    ///
    /// # Errors
    /// The operating system's refusal: no Unix socket, for example.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: libc::uid_t::MAX,
            gid: libc::gid_t::MAX,
        };
        let room = size_of::<libc::ucred>();
        let mut bytes = libc::socklen_t::try_from(room).unwrap_or(0);
        // SAFETY: the kernel writes at most `bytes` bytes, for which there is room.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut bytes,
            )
        };
        if answer == 0 {
            Ok(Self {
                pid: credentials.pid.unsigned_abs(),
                uid: credentials.uid,
                gid: credentials.gid,
            })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// What is known of that process without more: neither groups nor cgroup, and as which user it counts.
    #[must_use]
    pub fn alone(self) -> Peer {
        Peer {
            pid: self.pid,
            uid: self.uid,
            user: self.uid,
            gid: self.gid,
            groups: Vec::new(),
            cgroup: None,
        }
    }

    /// All of that process, which counts as `user`; with its cgroup, which has to be looked up in
    /// `/proc`, or without.
    ///
    /// # Errors
    /// As [`Credentials::of`].
    pub fn peer(self, socket: impl AsFd, user: u32, with_cgroup: bool) -> io::Result<Peer> {
        let socket = socket.as_fd();
        let Self { pid, uid, gid } = self;
        Ok(Peer {
            pid,
            uid,
            user,
            gid,
            groups: groups(socket)?,
            cgroup: if with_cgroup {
                cgroup(socket, pid)
            } else {
                None
            },
        })
    }
}

/// The peer's supplementary groups.
fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let room = size_of_val(groups.as_slice());
        let mut bytes = libc::socklen_t::try_from(room).unwrap_or(libc::socklen_t::MAX);
        // SAFETY: the kernel writes at most `bytes` bytes into the list, which
        // has as many, and the number of them into `bytes`.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let needed = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<libc::gid_t>();
        if answer == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= groups.len() {
            return Err(error);
        }
        groups.resize(needed, 0);
    }
}

/// Options of Linux that the C library's headers do not name everywhere.
const SO_PEERGROUPS: libc::c_int = 59;
const SO_PEERPIDFD: libc::c_int = 77;

/// The cgroup of the process that connected, if it still lives.
fn cgroup(socket: BorrowedFd<'_>, pid: u32) -> Option<String> {
    let process = peer_process(socket)?;
    let text = process_file(pid, "cgroup")?;
    // Of a process whose first thread has ended, or does so now, the kernel names a cgroup that the others need not be in.
    let state = process_file(pid, "stat")?;
    if has_ended(&state)? {
        return None;
    }
    // Still alive after the file was read: the number was its own all the time.
    is_alive(&process).then(|| path_of(&text)).flatten()
}

/// What a process's file says; nothing if that has to be waited for: these files are the process's
/// own user's, who may have a lease on them, which an open breaks after 45 s.
fn process_file(pid: u32, name: &str) -> Option<String> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = options.open(format!("/proc/{pid}/{name}")).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A descriptor of the very process that connected, whatever its number means now.
fn peer_process(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?;
    // SAFETY: the kernel writes one integer, for which there is room.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut bytes,
        )
    };
    if answer != 0 || descriptor < 0 {
        return None;
    }
    // SAFETY: the kernel made this descriptor for us just now.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Whether a process's first thread has ended, or begun to, by its `/proc/PID/stat`: state and flags stand behind
/// the name, which may have any letters.
fn has_ended(stat: &str) -> Option<bool> {
    /// The kernel's `PF_EXITING`: the thread may go on ending for as long as it has files to close.
    const ENDS: u32 = 4;
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace();
    let state = fields.next()?;
    let flags: u32 = fields.nth(5)?.parse().ok()?;
    Some(matches!(state, "Z" | "X" | "x") || flags & ENDS != 0)
}

fn is_alive(process: &OwnedFd) -> bool {
    ready::to_read(process).is_ok_and(|has_ended| !has_ended)
}

/// The path in the lines of `/proc/PID/cgroup`.
fn path_of(text: &str) -> Option<String> {
    let with = |controller: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let named = parts.next()?.split(',').any(|name| name == controller);
            let path = parts.next()?;
            named.then(|| path.to_owned())
        })
    };
    // Where the unified hierarchy is not used all processes are at its root.
    let unified = with("");
    let used = unified.clone().filter(|path| path != "/");
    used.or_else(|| with("memory")).or(unified)
}

/// The number of a group, by its name as this machine knows it.
///
/// # Errors
/// The operating system's refusal; `None` where there is no such group.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    with_space(name, lookup_group)
}

/// The number of a user, by its name as this machine knows it.
///
/// # Errors
/// The operating system's refusal; `None` where there is no such user.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    with_space(name, lookup_user)
}

/// Looks a name up with more and more space for its entry.
fn with_space(
    name: &str,
    lookup: fn(&CStr, usize) -> io::Result<Option<u32>>,
) -> io::Result<Option<u32>> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut room = 1 << 10;
    loop {
        match lookup(&name, room) {
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && room < 1 << 24 => {
                room *= 4;
            }
            answer => return answer,
        }
    }
}

/// `getgrnam_r`, `getpwnam_r`: finds the entry of a name.
type Find<T> = unsafe extern "C" fn(
    *const libc::c_char,
    *mut T,
    *mut libc::c_char,
    libc::size_t,
    *mut *mut T,
) -> libc::c_int;

fn lookup_group(name: &CStr, room: usize) -> io::Result<Option<u32>> {
    // SAFETY: libc's own function for entries of this type.
    unsafe {
        lookup_entry(name, room, libc::getgrnam_r, |group: &libc::group| {
            group.gr_gid
        })
    }
}

fn lookup_user(name: &CStr, room: usize) -> io::Result<Option<u32>> {
    // SAFETY: libc's own function for entries of this type.
    unsafe {
        lookup_entry(name, room, libc::getpwnam_r, |user: &libc::passwd| {
            user.pw_uid
        })
    }
}

/// The number of a name's entry, whose strings have `room` bytes.
///
/// # Safety
/// `find` writes an entry and its strings within the bytes it is given, and sets the last pointer to that entry or null.
unsafe fn lookup_entry<T>(
    name: &CStr,
    room: usize,
    find: Find<T>,
    number: fn(&T) -> u32,
) -> io::Result<Option<u32>> {
    let mut strings: Vec<libc::c_char> = vec![0; room];
    let mut entry = std::mem::MaybeUninit::<T>::uninit();
    let mut found = ptr::null_mut();
    // SAFETY: name ends in zero; entry and strings have room for what is
    // written, whose size is told; found points to entry or is null.
    let answer = unsafe {
        find(
            name.as_ptr(),
            entry.as_mut_ptr(),
            strings.as_mut_ptr(),
            strings.len(),
            &raw mut found,
        )
    };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    // SAFETY: where it is not null, it points to the entry that was just written.
    Ok(unsafe { found.as_ref() }.map(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn we_are_our_own_peer() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = Credentials::of(&one).unwrap();
        let peer = credentials.peer(&one, credentials.uid, true).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        assert!(peer.in_group(rustix::process::getgid().as_raw()));
        let mut groups: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        groups.sort_unstable();
        let mut seen = peer.groups.clone();
        seen.sort_unstable();
        assert_eq!(seen, groups);
    }

    #[test]
    fn a_process_that_has_a_lease_on_its_files_is_not_waited_for() {
        let process = std::process::id();
        assert!(process_file(process, "cgroup").is_some());
        let held = fs::File::open(format!("/proc/{process}/cgroup")).unwrap();
        // An opening of it has the kernel send us a signal: one that is ignored, not one that ends us.
        const F_SETSIG: libc::c_int = 10;
        // SAFETY: both calls take integers alone.
        let is_leased = unsafe {
            libc::fcntl(held.as_raw_fd(), F_SETSIG, libc::SIGURG);
            libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0
        };
        // A kernel that refuses such a lease needs nothing here. One that is waited for is read after 45 s.
        assert!(!is_leased || process_file(process, "cgroup").is_none());
        drop(held);
        assert!(process_file(process, "cgroup").is_some());
    }

    #[test]
    fn the_state_stands_behind_a_name_of_any_letters() {
        for (stat, ended) in [
            ("7 (a) S 1 7 7 0 -1 4194304 9", Some(false)),
            ("7 (a) R 1 7 7 0 -1 4194308 9", Some(true)),
            ("7 (a) Z 1 7 7 0 -1 4194304 9", Some(true)),
            ("7 (a) Z (b) R 1 7 7 0 -1 4194304 9", Some(false)),
            ("7 () Z) X 1 7 7 0 -1 4194304 9", Some(true)),
            ("7 (a) S 1 7", None),
            ("7", None),
        ] {
            assert_eq!(has_ended(stat), ended, "{stat}");
        }
    }

    #[test]
    fn groups_and_users_have_numbers() {
        assert_eq!(group_id("root").unwrap(), Some(0));
        assert_eq!(group_id("no such group here").unwrap(), None);
        assert!(group_id("a\0b").is_err());
        assert_eq!(user_id("root").unwrap(), Some(0));
        assert_eq!(user_id("no such user here").unwrap(), None);
    }

    #[test]
    fn the_unified_hierarchy_first_then_memory() {
        for (text, path) in [
            ("0::/a.slice/b\n", Some("/a.slice/b")),
            ("4:cpu,memory:/old\n0::/new\n", Some("/new")),
            ("4:memory:/old\n0::/\n", Some("/old")),
            ("1:name=systemd:/x\n0::/\n", Some("/")),
            ("4:cpu,memory:/old:with:colons\n", Some("/old:with:colons")),
            ("1:name=systemd:/x\n", None),
            ("", None),
        ] {
            assert_eq!(path_of(text).as_deref(), path, "{text}");
        }
    }
}
