//! Under a service manager: its socket, its notifications, its store of files.

use super::kit::{Daemon, M, take, take_soon, until, write_config};
use firstlight_pool::client::Client;
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 2
";

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The manager's end: what it was told, and what it was given to keep.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self { folder, socket }
    }

    fn variable(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// The next message and the file that came with it.
    fn hear(&self) -> (String, Option<OwnedFd>) {
        let mut message = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let bytes = rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags)
            .expect("the daemon says something")
            .bytes;
        let file = control.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
        (text, file)
    }

    /// Listens until all `words` were heard; files by the names they came under.
    fn until(&self, words: &[&str]) -> Vec<(String, OwnedFd)> {
        let mut missing: Vec<_> = words.to_vec();
        let mut files = Vec::new();
        while !missing.is_empty() {
            let (text, file) = self.hear();
            if let Some(at) = missing.iter().position(|word| text.contains(word)) {
                missing.remove(at);
            }
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
            if let (Some(file), Some(name)) = (file, name) {
                files.push((name.to_owned(), file));
            }
        }
        files
    }
}

#[test]
fn it_says_when_it_is_ready_and_alive_and_about_to_end() {
    let manager = Manager::new();
    let variables = [
        ("NOTIFY_SOCKET", &*manager.variable()),
        ("WATCHDOG_USEC", "100000"),
    ];
    let mut daemon = Daemon::with_variables("", &variables);
    manager.until(&["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    assert_eq!(daemon.stop(), 0);
    manager.until(&["STOPPING=1"]);
}

#[test]
fn clean_files_are_kept_over_a_crash_and_lent_ones_never() {
    let manager = Manager::new();
    let mut daemon = Daemon::with_variables(POOL, &[("NOTIFY_SOCKET", &manager.variable())]);
    let mut files = manager.until(&["FDSTORE=1", "FDSTORE=1"]);
    assert_eq!(files.len(), 2);
    // One is lent: the manager is told to let go of it. It does not.
    let borrowed = take_soon(&daemon, 2 * M);
    manager.until(&["FDSTOREREMOVE=1"]);
    daemon.kill();
    let mut names: Vec<String> = Vec::new();
    let mut redirects = String::new();
    // And something that is no slab at all comes along.
    files.push(("slab-77".into(), tempfile::tempfile().unwrap().into()));
    for (at, (name, file)) in files.iter().enumerate() {
        rustix::io::fcntl_setfd(file, FdFlags::empty()).unwrap();
        names.push(name.clone());
        redirects += &format!(" {}<&{}", at + 3, file.as_raw_fd());
    }
    write_config(
        daemon.path(),
        &POOL.replace("rate = \"0\"", "rate = 1, batch = 1"),
    );
    let script = format!("LISTEN_PID=$$ exec \"$0\" pool serve --config \"$1\"{redirects}");
    let child = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_firstlight")])
        .arg(daemon.path().join("pool.toml"))
        .env("LISTEN_FDS", files.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(_child) = child.map(Killed) else {
        eprintln!("skipped: no bash");
        return;
    };
    drop(files);
    daemon.until_it_answers();
    let status = daemon.status();
    assert_eq!(
        status.pools[0].clean_slabs, 1,
        "the one that was never lent"
    );
    assert_eq!(status.counters.zeroed_bytes, 0);
    // The one that was lent is with its borrower, and nowhere else.
    let next = daemon.connect().take(take(1)).unwrap();
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    assert_ne!(inode(&next.memory), inode(&borrowed.memory));
}

#[test]
fn a_socket_from_the_manager_is_used() {
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), POOL);
    let socket = folder.path().join("theirs.sock");
    let child = Command::new("systemd-socket-activate")
        .arg("--seqpacket")
        .arg(format!("--listen={}", socket.display()))
        .arg(env!("CARGO_BIN_EXE_firstlight"))
        .args(["pool", "serve", "--config"])
        .arg(folder.path().join("pool.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(_child) = child.map(Killed) else {
        eprintln!("skipped: no systemd-socket-activate");
        return;
    };
    until("the activator listens", || socket.exists());
    until("a daemon answers", || {
        Client::connect(&socket).is_ok_and(|mut pool| pool.status().is_ok())
    });
    assert!(
        !folder.path().join("pool.sock").exists(),
        "it made one of its own"
    );
}
