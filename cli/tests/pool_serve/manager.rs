//! A service manager for one daemon: what systemd does with notifications and with
//! its store of descriptors.

use super::kit::{Daemon, serve};
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that does not outlive its test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The manager's end: what it was notified of, and what it keeps.
pub(crate) struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
    store: Vec<(String, OwnedFd)>,
}

impl Manager {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self {
            folder,
            socket,
            store: Vec::new(),
        }
    }

    pub(crate) fn variable(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// The names of what it keeps, in order.
    pub(crate) fn kept(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.store.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Keeps something that no daemon gave it.
    pub(crate) fn keep(&mut self, name: &str, file: impl Into<OwnedFd>) {
        self.store.push((name.into(), file.into()));
    }

    /// The next message and the file that came with it.
    fn hear(&self) -> std::io::Result<(String, Option<OwnedFd>)> {
        let mut message = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let bytes = rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags)?.bytes;
        let file = control.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
        Ok((text, file))
    }

    /// Does with a message what systemd does.
    fn heed(&mut self, text: &str, file: Option<OwnedFd>) {
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let Some(name) = name else { return };
        if text.contains("FDSTOREREMOVE=1") {
            self.store.retain(|(kept, _)| kept != name);
        } else if let Some(file) = file {
            self.store.push((name.into(), file));
        }
    }

    /// Listens until all `words` were heard, one message for each.
    pub(crate) fn until(&mut self, words: &[&str]) {
        let mut missing: Vec<_> = words.to_vec();
        while !missing.is_empty() {
            let (text, file) = self.hear().expect("the daemon says something");
            if let Some(at) = missing.iter().position(|word| text.contains(word)) {
                missing.remove(at);
            }
            self.heed(&text, file);
        }
    }

    /// Takes in what was said up to now.
    pub(crate) fn catch_up(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        while let Ok((text, file)) = self.hear() {
            self.heed(&text, file);
        }
        self.socket.set_nonblocking(false).unwrap();
    }

    /// Starts a daemon anew with all that is kept.
    pub(crate) fn start_again(&mut self, daemon: &mut Daemon) {
        self.catch_up();
        daemon.replace(self.command(daemon.path()).spawn().unwrap());
        daemon.until_it_answers();
        self.catch_up();
    }

    /// The daemon's command with the descriptors: they begin at 3.
    fn command(&self, folder: &Path) -> Command {
        let mut names = Vec::new();
        let mut redirects = String::new();
        for (at, (name, file)) in self.store.iter().enumerate() {
            rustix::io::fcntl_setfd(file, FdFlags::empty()).unwrap();
            names.push(name.clone());
            redirects += &format!(" {}<&{}", at + 3, file.as_raw_fd() + 1000);
        }
        // Moved out of the way first, or one would take another's place.
        let moved: String = self
            .store
            .iter()
            .map(|(_, file)| format!(" {}<&{}", file.as_raw_fd() + 1000, file.as_raw_fd()))
            .collect();
        let command = serve(folder);
        let mut words = vec![command.get_program().to_owned()];
        words.extend(command.get_args().map(ToOwned::to_owned));
        let script = format!(
            "exec{moved}; LISTEN_PID=$$ exec \"$@\"{redirects}",
            moved = moved
        );
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &script, "bash"])
            .args(words)
            .env("LISTEN_FDS", self.store.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env("NOTIFY_SOCKET", self.variable())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell
    }
}
