//! A service manager for one daemon: what systemd does with notifications and with
//! its store of descriptors.

use super::kit::{Daemon, serve, until, write_config};
use firstlight_pool::client::Client;
use firstlight_pool::os::need::skip;
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::cell::Cell;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A process that does not outlive its test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon on a socket that the service manager listens on, once it answers.
pub(crate) fn activated(folder: &Path, socket: &Path, config: &str) -> Option<Killed> {
    activated_by(folder, socket, config, || {})
}

/// A daemon as by [`activated`], after `first` has connected while none runs.
pub(crate) fn activated_by(
    folder: &Path,
    socket: &Path,
    config: &str,
    first: impl FnOnce(),
) -> Option<Killed> {
    write_config(folder, config);
    let child = Command::new("systemd-socket-activate")
        .arg("--seqpacket")
        .arg(format!("--listen={}", socket.display()))
        .arg(env!("CARGO_BIN_EXE_firstlight"))
        .args(["pool", "serve", "--config"])
        .arg(folder.join("pool.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child.map(Killed) else {
        skip("systemd", "no systemd-socket-activate");
        return None;
    };
    until("the activator listens", || socket.exists());
    first();
    until("a daemon answers", || {
        Client::connect(socket).is_ok_and(|mut pool| pool.status().is_ok())
    });
    Some(child)
}

/// What it was notified of, and what it keeps.
#[derive(Default)]
struct Heard {
    messages: Vec<String>,
    store: Vec<(String, OwnedFd)>,
}

impl Heard {
    /// Does with a message what systemd does.
    fn heed(&mut self, text: String, file: Option<OwnedFd>) {
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        if let Some(name) = name {
            if text.contains("FDSTOREREMOVE=1") {
                self.store.retain(|(kept, _)| kept != name);
            } else if let Some(file) = file {
                self.store.push((name.into(), file));
            }
        }
        self.messages.push(text);
    }
}

/// The manager: a thread listens, as long as there is a daemon to be heard.
pub(crate) struct Manager {
    folder: tempfile::TempDir,
    heard: Arc<Mutex<Heard>>,
    rounds: Cell<u32>,
}

impl Manager {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let theirs = Arc::downgrade(&heard);
        thread::spawn(move || {
            while let Some((text, file)) = hear(&socket)
                && let Some(heard) = theirs.upgrade()
            {
                heard.lock().unwrap().heed(text, file);
            }
        });
        Self {
            folder,
            heard,
            rounds: Cell::new(0),
        }
    }

    pub(crate) fn variable(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// The names of what it keeps, in order.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.catch_up();
        let heard = self.heard.lock().unwrap();
        let mut names: Vec<_> = heard.store.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Hands what it keeps to the next daemon in the other order.
    pub(crate) fn reverse(&self) {
        self.heard.lock().unwrap().store.reverse();
    }

    /// Keeps something that no daemon gave it.
    pub(crate) fn keep(&self, name: &str, file: impl Into<OwnedFd>) {
        let mut heard = self.heard.lock().unwrap();
        heard.store.push((name.into(), file.into()));
    }

    /// Waits until all `words` were heard, one message for each.
    pub(crate) fn until(&self, words: &[&str]) {
        until(&format!("{words:?}"), || {
            let heard = self.heard.lock().unwrap();
            let mut messages: Vec<_> = heard.messages.iter().collect();
            words.iter().all(|word| {
                let at = messages.iter().position(|message| message.contains(word));
                at.map(|at| messages.swap_remove(at)).is_some()
            })
        });
    }

    /// Does something while it reads nothing, and others have filled its socket.
    pub(crate) fn while_deaf<T>(&self, act: impl FnOnce() -> T) -> T {
        // The thread waits for it with the first message.
        let _heard = self.heard.lock().unwrap();
        let others = UnixDatagram::unbound().unwrap();
        others.set_nonblocking(true).unwrap();
        let mut refusals = 0;
        until("its socket is full", || {
            let is_refused = others.send_to(b"others", self.variable()).is_err();
            refusals = if is_refused { refusals + 1 } else { 0 };
            refusals == 50
        });
        act()
    }

    /// Waits until what was said up to now was heard.
    fn catch_up(&self) {
        self.rounds.set(self.rounds.get() + 1);
        let word = format!("round {}", self.rounds.get());
        let socket = UnixDatagram::unbound().unwrap();
        socket.send_to(word.as_bytes(), self.variable()).unwrap();
        self.until(&[&word]);
    }

    /// Starts another daemon with all that is kept.
    pub(crate) fn start_again(&self, daemon: &mut Daemon) {
        self.catch_up();
        daemon.replace(self.command(daemon.path()).spawn().unwrap());
        daemon.until_it_answers();
    }

    /// The daemon's command with the descriptors: they begin at 3.
    fn command(&self, folder: &Path) -> Command {
        let mut names = Vec::new();
        let mut redirects = String::new();
        let heard = self.heard.lock().unwrap();
        for (at, (name, file)) in heard.store.iter().enumerate() {
            rustix::io::fcntl_setfd(file, FdFlags::empty()).unwrap();
            names.push(name.clone());
            redirects += &format!(" {}<&{}", at + 3, file.as_raw_fd() + 1000);
        }
        // Moved out of the way first, or one would take another's place.
        let moved: String = heard
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
            .env("LISTEN_FDS", heard.store.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env("NOTIFY_SOCKET", self.variable())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell
    }
}

/// The next message and the file that came with it; `None` without the socket.
fn hear(socket: &UnixDatagram) -> Option<(String, Option<OwnedFd>)> {
    let mut message = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut message)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let bytes = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)
        .ok()?
        .bytes;
    let file = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
    Some((text, file))
}
