//! The pool's daemon, in a process of its own: this program again, which runs one test that serves.

use firstlight_pool::client::Client;
use firstlight_pool::config::Config;
use firstlight_pool::protocol::Status;
use firstlight_pool::server;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::kit::until;

const CONFIG: &str = "FIRSTLIGHT_TEST_CONFIG";

#[test]
#[ignore = "it is the daemon of the others"]
fn serves() {
    let path = PathBuf::from(std::env::var_os(CONFIG).expect("a configuration"));
    let config = Config::read(&path).unwrap();
    let read = move || Config::read(&path).map_err(|error| error.to_string());
    server::serve(&config, read, Vec::new(), &mut |line| eprintln!("{line}")).unwrap();
}

/// Three slabs of 2 MiB, without huge pages.
const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 3
";

/// A daemon in a folder, ended with the value.
pub(crate) struct Daemon {
    folder: PathBuf,
    child: Child,
}

impl Daemon {
    pub(crate) fn start(folder: &Path) -> Self {
        configure(folder, POOL);
        let daemon = Self {
            folder: folder.into(),
            child: spawn(folder),
        };
        daemon.until_clean(3);
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("pool.sock")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.connect().status().unwrap()
    }

    pub(crate) fn until_clean(&self, slabs: u32) {
        until("clean slabs", || {
            let status = Client::connect(&self.socket()).and_then(|mut pool| pool.status());
            status.is_ok_and(|status| status.pools[0].clean_slabs >= slabs)
        });
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It takes connections, and does nothing.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.folder);
    }

    /// Reads another configuration.
    pub(crate) fn reload(&self, pool: &str) {
        configure(&self.folder, pool);
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(folder: &Path, pool: &str) {
    let places = format!(
        "socket = {:?}\ndirectory = {:?}\n",
        folder.join("pool.sock"),
        folder.join("own")
    );
    std::fs::write(folder.join("pool.toml"), places + pool).unwrap();
}

fn spawn(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "daemon::serves", "--ignored", "--nocapture"])
        .env(CONFIG, folder.join("pool.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}
