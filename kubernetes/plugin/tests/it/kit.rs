//! A node for one test, and how long things may take.

use crate::daemon::Daemon;
use crate::kubelet::Kubelet;
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::protocol::{RefusalCode, Take};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take that is expected to come, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut come: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !come() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) async fn until_async(what: &str, come: impl AsyncFn() -> bool) {
    let begin = Instant::now();
    while !come().await {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A plugin, ended with the value.
pub(crate) struct Plugin {
    child: Child,
    said: mpsc::Receiver<String>,
}

impl Plugin {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::of(plugin(folder))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (says, said) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| says.send(line))
        });
        Self { child, said }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The code with which it ends at a signal.
    pub(crate) fn end(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// The next line with these words.
    pub(crate) fn says(&self, words: &str) -> String {
        loop {
            let line = self.said.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("waited in vain: {words}"));
            if line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The plugin's command, between a daemon and a kubelet in this folder.
pub(crate) fn plugin(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight-kubernetes"));
    command
        .args(["plugin", "--absent", "1", "--socket"])
        .arg(folder.join("pool.sock"))
        .arg("--kubelet")
        .arg(folder);
    command
}

/// A daemon, a kubelet and a plugin.
pub(crate) struct Node {
    pub(crate) plugin: Plugin,
    pub(crate) kubelet: Kubelet,
    pub(crate) daemon: Daemon,
    pub(crate) folder: TempDir,
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::with(plugin)
    }

    pub(crate) fn with(plugin: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::Builder::new().prefix("node").tempdir().unwrap();
        Self {
            daemon: Daemon::start(folder.path()),
            kubelet: Kubelet::start(folder.path()),
            plugin: Plugin::of(plugin(folder.path())),
            folder,
        }
    }

    /// The plugin is killed, and another one started.
    pub(crate) fn another_plugin(&mut self) {
        self.plugin.kill();
        self.plugin = Plugin::start(self.folder.path());
    }

    /// The socket that a pod's container has.
    pub(crate) fn door(&self, device: &str) -> PathBuf {
        self.folder
            .path()
            .join("kubernetes/thp-2m")
            .join(device)
            .join("pool.sock")
    }

    /// What a pod with this device gets.
    pub(crate) fn take(&self, device: &str) -> Result<Allocated, ClientError> {
        take(&self.door(device))
    }

    /// The grants that there are, as `status` names them.
    pub(crate) fn labels(&self) -> Vec<String> {
        let grants = self.daemon.status().grants.into_iter();
        let mut labels: Vec<_> = grants.map(|row| row.label.unwrap().to_string()).collect();
        labels.sort();
        labels
    }
}

/// What is taken by a socket.
pub(crate) fn take(door: &Path) -> Result<Allocated, ClientError> {
    Client::connect(door)?.take(Take::of(1))
}

/// Why nothing was taken.
pub(crate) fn refusal(taken: Result<Allocated, ClientError>) -> RefusalCode {
    match taken {
        Err(ClientError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?} is no refusal"),
    }
}
