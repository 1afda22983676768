//! A daemon of our own: empty until it is asked for one slab, empty again after.

use crate::Program;
use crate::failure::Failure;
use firstlight_pool::client::Client;
use firstlight_pool::protocol::{PageSize, PoolRow, Resize};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to wait for the daemon: it zeroes a slab well within.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(2);

/// What backs its slabs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) page: PageSize,
    source: &'static str,
}

impl Kind {
    /// Reserved pages in files without a name, of which nothing can stay behind.
    /// Transparent ones are to be had on a mount for certain only.
    pub(super) fn of(page: PageSize) -> Self {
        let source = match page {
            PageSize::Transparent => "auto",
            PageSize::Huge | PageSize::Giant => "memfd",
        };
        Self { page, source }
    }

    /// Small pages, where files without a name get no others.
    pub(super) fn small() -> Self {
        Self {
            page: PageSize::Transparent,
            source: "memfd",
        }
    }
}

/// Whose daemon it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Server<'s> {
    /// This program's own.
    This(Program),
    /// Another `firstlight-pool`'s.
    Other(&'s Path),
}

/// How a daemon is started.
#[derive(Debug)]
pub(super) struct Setup<'s> {
    /// Where all that it has lies.
    pub(super) folder: &'s Path,
    pub(super) server: Server<'s>,
    pub(super) kind: Kind,
    /// An empty pool for each.
    pub(super) sizes: &'s BTreeSet<u64>,
    /// How fast it fills, if not at the usual rate.
    pub(super) rate: Option<&'s str>,
    /// Tables at the end of its configuration.
    pub(super) more: &'s str,
}

/// The daemon, ended when dropped.
#[derive(Debug)]
pub(super) struct OwnDaemon {
    child: Child,
    client: Client,
    page: PageSize,
    socket: PathBuf,
    log: PathBuf,
}

/// Makes a folder for one, in which no other user writes: the daemon refuses that, and a mask may allow it.
pub(super) fn own_folder(folder: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    made.map_err(Failure::pool_at("a folder"))
}

impl OwnDaemon {
    /// Starts the one of `program` in `folder`, with an empty pool for each of `sizes`, that fills
    /// at `rate`, or at the usual one.
    pub(super) fn start(
        program: Program,
        folder: &Path,
        kind: Kind,
        sizes: &BTreeSet<u64>,
        rate: Option<&str>,
    ) -> Result<Self, Failure> {
        Self::with(&Setup {
            folder,
            server: Server::This(program),
            kind,
            sizes,
            rate,
            more: "",
        })
    }

    /// Starts it as `setup` says.
    pub(super) fn with(setup: &Setup<'_>) -> Result<Self, Failure> {
        let socket = setup.folder.join("pool.sock");
        let config = setup.folder.join("pool.toml");
        let log = setup.folder.join("daemon.log");
        fs::write(&config, config_text(setup))
            .map_err(Failure::pool_at("the daemon's configuration"))?;
        let errors = File::create(&log).map_err(Failure::pool_at("the daemon's log"))?;
        let mut command = match setup.server {
            Server::Other(program) => Command::new(program),
            Server::This(program) => {
                let this = std::env::current_exe().map_err(Failure::pool_at("this program"))?;
                let mut command = Command::new(this);
                command.args(program.prefix());
                command
            }
        };
        let mut child = command
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(Failure::pool_at("the daemon"))?;
        let begin = Instant::now();
        let client = loop {
            match Client::connect(&socket) {
                Ok(client) => break client,
                Err(error) if ended(&mut child) || begin.elapsed() > PATIENCE => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Failure::pool(format!(
                        "the daemon did not start: {error}: {}",
                        said(&log)
                    )));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        };
        Ok(Self {
            child,
            client,
            page: setup.kind.page,
            socket,
            log,
        })
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has one slab of `bytes` filled, and waits for its first part.
    pub(super) fn begin_fill(&mut self, bytes: u64) -> Result<(), Failure> {
        self.resize(bytes, 1)?;
        self.wait(bytes, "a slab that is being filled", |pool| {
            pool.clean_bytes > 0
        })
    }

    /// Waits until a slab of `bytes` is being filled, and a part of it is.
    pub(super) fn wait_for_filling(&mut self, bytes: u64) -> Result<(), Failure> {
        self.wait(bytes, "a slab that is being filled", |pool| {
            pool.filling_slabs > 0 && pool.clean_bytes > 0
        })
    }

    /// Bytes of slabs of `bytes` that are filled, whole or not.
    pub(super) fn filled_bytes(&mut self, bytes: u64) -> Result<u64, Failure> {
        let status = self.client.status().map_err(Failure::from)?;
        let mut pools = status.pools.iter();
        let pool = pools.find(|pool| pool.size_class_bytes == bytes);
        Ok(pool.map_or(0, |pool| pool.clean_bytes))
    }

    /// Waits until so many slabs of `bytes` are clean.
    pub(super) fn fill(&mut self, bytes: u64, slabs: u32) -> Result<(), Failure> {
        self.resize(bytes, slabs)?;
        self.wait(bytes, "clean slabs", |pool| pool.clean_slabs == slabs)
    }

    /// Waits until the pool of `bytes` holds no memory at all.
    pub(super) fn empty(&mut self, bytes: u64) -> Result<(), Failure> {
        self.resize(bytes, 0)?;
        self.wait(bytes, "an empty pool", |pool| {
            let slabs = pool.clean_slabs + pool.filling_slabs + pool.allocated_slabs;
            slabs == 0 && pool.clean_bytes + pool.dirty_bytes + pool.allocated_bytes == 0
        })
    }

    fn resize(&mut self, bytes: u64, slabs: u32) -> Result<(), Failure> {
        let resize = Resize {
            page: self.page,
            node: None,
            size_class_bytes: bytes,
            slabs,
        };
        self.client.resize(resize).map_err(Failure::from)?;
        Ok(())
    }

    fn wait(
        &mut self,
        bytes: u64,
        what: &str,
        is_so: impl Fn(&PoolRow) -> bool,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            let status = self.client.status().map_err(Failure::from)?;
            let mut pools = status.pools.iter();
            let pool = pools.find(|pool| pool.size_class_bytes == bytes);
            if pool.is_some_and(&is_so) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let trouble = pool.and_then(|pool| pool.trouble.clone());
                return Err(Failure::pool(format!(
                    "{what} did not come: {}; {}",
                    trouble.unwrap_or_else(|| "the daemon does not say why".into()),
                    said(&self.log)
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Ends it, and waits until it has given everything back.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.end();
        let begin = Instant::now();
        while !ended(&mut self.child) {
            if begin.elapsed() > PATIENCE {
                return Err(Failure::pool(format!(
                    "the daemon does not end: {}",
                    said(&self.log)
                )));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn end(&self) {
        if let Ok(pid) = i32::try_from(self.child.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // A child that has ended is not an error: it is still ours to wait for.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        if ended(&mut self.child) {
            return;
        }
        self.end();
        let begin = Instant::now();
        while !ended(&mut self.child) && begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// What the daemon wrote, its last lines.
fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(5);
    lines.get(from..).unwrap_or_default().join("; ")
}

fn config_text(setup: &Setup<'_>) -> String {
    let socket = setup.folder.join("pool.sock");
    let directory = setup.folder.join("pool");
    let mut text = format!(
        "socket = {socket:?}\ndirectory = {directory:?}\n\
         limits = {{ idle_s = 86400 }}\n[fill]\npause_at_pressure = 0\n"
    );
    if let Some(rate) = setup.rate {
        let _ = writeln!(text, "rate = {rate:?}");
    }
    let Kind { page, source } = setup.kind;
    for bytes in setup.sizes {
        let _ = write!(
            text,
            "[[class]]\npage = \"{page}\"\nsize = \"{}M\"\nslabs = 0\nsource = \"{source}\"\n",
            bytes >> 20
        );
    }
    text + setup.more
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_daemon_s_folder_is_its_own_whatever_mask_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        own_folder(&own).unwrap();
        let mode = fs::metadata(&own).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
