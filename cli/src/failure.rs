//! What can go wrong, and the exit code for it. Wrong usage, 2, is left to the
//! parser of arguments.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a subcommand did not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The machine's description makes no sense, or cannot be brought up.
    Machine(String),
    /// A file that cannot be read, output that cannot be written.
    Io(String),
    /// The engine's own checks failed.
    Check(String),
    /// The pool of memory for virtual machines.
    Pool(String),
    /// Whoever read our output has seen enough; not a failure.
    Closed,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Machine(_) => 1,
            Self::Io(_) => 3,
            Self::Check(_) => 4,
            Self::Pool(_) => 5,
        }
    }

    /// A file or directory that could not be read.
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Io(format!("cannot read {}: {error}", path.display()))
    }

    /// What the pool's daemon, or the way there, refused.
    pub(crate) fn pool(error: impl fmt::Display) -> Self {
        Self::Pool(error.to_string())
    }

    /// What the engine refused, and at which step.
    pub(crate) fn machine(step: &str, error: impl fmt::Display) -> Self {
        Self::Machine(format!("{step}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(text) | Self::Io(text) | Self::Check(text) | Self::Pool(text) => {
                f.write_str(text)
            }
            Self::Closed => f.write_str("the reader of the output went away"),
        }
    }
}

/// Standard output that could not be written.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Io(format!("cannot write standard output: {error}"))
        }
    }
}
