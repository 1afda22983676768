//! A daemon for one test, clients, and huge pages set aside for the test.

use firstlight_figures::random::Random;
use firstlight_pool::client::{self, Client, ClientError};
use firstlight_pool::os::hugepages::{self, SetAside};
use firstlight_pool::os::mapping::Mapping;
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::{Status, Take};
use rustix::process::{Gid, Pid, Signal, Uid, kill_process};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const M: u64 = 1 << 20;

/// How long anything may take that is expected to come: a worker of the idle class has little of a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut come: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !come() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A number of rounds from the environment, for long runs.
pub(crate) fn rounds(variable: &str, otherwise: u32) -> u32 {
    let set = std::env::var(variable).ok();
    set.map_or(otherwise, |text| text.parse().expect("a number of rounds"))
}

/// Whether this is root; else a line that says what is skipped.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("root", "only root can be another user");
    }
    root
}

/// Does something on a thread that is another user, with a group of the same number and
/// no other, which only root can.
pub(crate) fn another_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    user_of_group(uid, uid, act)
}

/// Does something as another user, in this group and no other.
pub(crate) fn user_of_group<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[]).expect("only root can");
        set_thread_res_gid(group, group, group).expect("only root can");
        set_thread_res_uid(user, user, user).expect("only root can");
        act()
    };
    thread::scope(|scope| scope.spawn(run).join().expect("it did"))
}

/// Huge pages for a test, or a line that says why it is skipped.
pub(crate) fn huge_pages(pages: u64) -> Option<SetAside> {
    SetAside::new(2 * M, pages)
        .inspect_err(|error| skip("hugepages", error))
        .ok()
}

/// Huge pages that no process holds.
pub(crate) fn free_pages() -> u64 {
    let counts = hugepages::counts(Path::new(hugepages::SYS), 2 * M, None);
    counts.unwrap().unwrap().free_pages
}

/// A daemon in a folder of its own, ended with the value.
pub(crate) struct Daemon {
    folder: TempDir,
    child: Child,
    /// Set before the daemon is started: variables it gets.
    variables: Vec<(String, String)>,
}

impl Daemon {
    /// Starts one; `config` says what besides the places.
    pub(crate) fn start(config: &str) -> Self {
        Self::with_variables(config, &[])
    }

    pub(crate) fn with_variables(config: &str, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("pool").tempdir().unwrap();
        write_config(folder.path(), config);
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let child = spawn(folder.path(), &variables);
        let daemon = Self {
            folder,
            child,
            variables,
        };
        daemon.until_it_answers();
        daemon
    }

    /// One on a kernel that cannot refuse descriptors for it.
    pub(crate) fn on_an_older_kernel(config: &str) -> Self {
        Self::prepared(config, super::older_kernel::on_an_older_kernel, |_| ()).0
    }

    /// One whose command is prepared, and what is made of its process before it answers.
    pub(crate) fn prepared<T>(
        config: &str,
        prepare: impl FnOnce(&mut Command),
        of: impl FnOnce(&Child) -> T,
    ) -> (Self, T) {
        let folder = tempfile::Builder::new().prefix("pool").tempdir().unwrap();
        write_config(folder.path(), config);
        let mut command = serve(folder.path());
        prepare(&mut command);
        let child = command.spawn().unwrap();
        let made = of(&child);
        let daemon = Self {
            child,
            folder,
            variables: Vec::new(),
        };
        daemon.until_it_answers();
        (daemon, made)
    }

    /// One whose lines are read.
    pub(crate) fn that_says(config: &str) -> (Self, Said) {
        let folder = tempfile::Builder::new().prefix("pool").tempdir().unwrap();
        write_config(folder.path(), config);
        let mut child = serve(folder.path()).stderr(Stdio::piped()).spawn().unwrap();
        let (says, said) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| says.send(line))
        });
        let daemon = Self {
            folder,
            child,
            variables: Vec::new(),
        };
        daemon.until_it_answers();
        (daemon, Said(said))
    }

    pub(crate) fn until_it_answers(&self) {
        until("the daemon answers", || {
            Client::connect(&self.socket()).is_ok_and(|mut pool| pool.status().is_ok())
        });
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("pool.sock")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A daemon that was started otherwise takes the place of this one, which has ended.
    pub(crate) fn replace(&mut self, child: Child) {
        self.child = child;
    }

    /// Another daemon in the same folder, which may not be ready yet.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.folder.path(), &self.variables);
    }

    /// SIGTERM; its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code().unwrap()
    }

    /// Does something while the daemon stands still: it sees all of that at once.
    pub(crate) fn while_stopped(&self, act: impl FnOnce()) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.pid());
        until("all its threads stand still", || {
            std::fs::read_dir(&threads).unwrap().all(|thread| {
                let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") T "))
            })
        });
        act();
        self.signal(Signal::CONT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.connect().status().unwrap()
    }

    /// Waits until its first pool has so many clean slabs.
    pub(crate) fn until_clean(&self, slabs: u32) {
        let last = Cell::new(None);
        until("clean slabs", || {
            let status = self.status();
            let clean = status.pools[0].clean_slabs >= slabs;
            last.set(Some(status));
            clean
        });
    }
}

/// The lines of a daemon.
pub(crate) struct Said(mpsc::Receiver<String>);

impl Said {
    /// The next line with these words.
    pub(crate) fn until(&self, words: &str) -> String {
        loop {
            let line = self.0.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("waited in vain: {words}"));
            if line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn write_config(folder: &Path, config: &str) {
    let places = format!(
        "socket = {:?}\ndirectory = {:?}\n",
        folder.join("pool.sock"),
        folder.join("own")
    );
    std::fs::write(folder.join("pool.toml"), places + config).unwrap();
}

/// The daemon's command.
pub(crate) fn serve(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
    command
        .args(["pool", "serve", "--config"])
        .arg(folder.join("pool.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
        command.env_remove(name);
    }
    command
}

fn spawn(folder: &Path, variables: &[(String, String)]) -> Child {
    let variables = variables.iter().map(|(name, value)| (name, value));
    serve(folder).envs(variables).spawn().unwrap()
}

/// Exit code and what it said, of a daemon that cannot start.
pub(crate) fn fails(config: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), config);
    let mut child = serve(folder.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    (child.wait().unwrap().code().unwrap(), said)
}

pub(crate) fn take(bytes: u64) -> Take {
    Take::of(bytes)
}

/// Takes `bytes` as soon as there are any.
pub(crate) fn take_soon(daemon: &Daemon, bytes: u64) -> client::Allocated {
    let mut taken = None;
    until("memory", || {
        match Client::connect(&daemon.socket()).map(|mut pool| pool.take(take(bytes))) {
            Ok(Ok(allocated)) => taken = Some(allocated),
            Ok(Err(ClientError::Refused(_))) | Err(_) => {}
            Ok(Err(error)) => eprintln!("took nothing: {error}"),
        }
        taken.is_some()
    });
    taken.unwrap()
}

/// All of a file, mapped.
pub(crate) fn mapped(memory: impl AsFd, bytes: u64) -> Mapping {
    Mapping::new(memory, 0, usize::try_from(bytes).unwrap()).unwrap()
}

/// Random numbers from a seed in the environment, else from the clock; it is printed.
pub(crate) fn random() -> Random {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = std::env::var("FIRSTLIGHT_SEED").map_or_else(
        |_| u64::from(now.unwrap().subsec_nanos()),
        |text| text.parse().unwrap(),
    );
    eprintln!("FIRSTLIGHT_SEED={seed}");
    Random::new(seed)
}
