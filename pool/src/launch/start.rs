//! Handing files to a VMM: it inherits them, and nothing else of ours.

use super::Backing;
use crate::client::Allocated;
use crate::protocol::PageSize;
use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The variable in which a VMM is told its program, by which a wrapper that was started in a VMM's
/// place knows that it was.
pub const STARTED: &str = "FIRSTLIGHT_STARTED";

/// A VMM about to be started, and what it is to inherit.
#[derive(Debug)]
pub struct Start {
    program: OsString,
    arguments: Vec<OsString>,
    inherited: Vec<OwnedFd>,
}

impl Start {
    /// A VMM that inherits nothing yet.
    #[must_use]
    pub fn new(program: &OsStr, arguments: Vec<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments,
            inherited: Vec::new(),
        }
    }

    /// How a command line names an allocated file; it does not change until the
    /// file is closed.
    #[must_use]
    pub fn backing(allocated: &Allocated) -> Backing {
        // The file system of reserved huge pages tells a VMM the page size.
        let tells = allocated.lease.page != PageSize::Transparent;
        Backing {
            path: proc_path(&allocated.memory),
            align_bytes: Some(allocated.lease.align_bytes).filter(|_| !tells),
        }
    }

    /// A file of `bytes` that is not filled, for a start without the pool.
    ///
    /// # Errors
    /// The system's.
    pub fn empty_file(bytes: u64) -> io::Result<(Backing, OwnedFd)> {
        let file = rustix::fs::memfd_create("firstlight", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, bytes)?;
        let backing = Backing {
            path: proc_path(&file),
            align_bytes: None,
        };
        Ok((backing, file))
    }

    /// The VMM inherits `descriptor`, under the number it has.
    #[must_use]
    pub fn with(mut self, descriptor: OwnedFd) -> Self {
        self.inherited.push(descriptor);
        self
    }

    /// The arguments as they are.
    #[must_use]
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Becomes the VMM; returns only what stood in the way.
    #[must_use]
    pub fn exec(self) -> io::Error {
        match self.command() {
            Ok(mut command) => command.exec(),
            Err(error) => error,
        }
    }

    /// Starts the VMM as a child, as `prepare` has it (its standard
    /// streams, say). The files are its alone afterwards. Nothing else may be
    /// started at the same time, or it would inherit them too.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(self, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
        let mut command = self.command()?;
        prepare(&mut command);
        command.spawn()
    }

    fn command(&self) -> io::Result<Command> {
        for descriptor in &self.inherited {
            keep_open(descriptor)?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env(STARTED, &self.program);
        Ok(command)
    }
}

/// Where `program` lies, as it will be looked for; `None` where it does not.
#[must_use]
pub fn program_path(program: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| {
        let known = path.metadata();
        known.is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0)
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| runs(path));
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(program));
    paths.find(|path| runs(path))
}

/// A descriptor stays open in what is started from now on.
pub(crate) fn keep_open(descriptor: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfd(&descriptor)?;
    Ok(fcntl_setfd(
        &descriptor,
        flags.difference(FdFlags::CLOEXEC),
    )?)
}

fn proc_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
