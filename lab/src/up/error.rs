//! Why a machine does not come up: [`UpError`].

use firstlight_figures::advice::Advised;
use std::fmt;
use std::io;
use std::path::Path;

use crate::file::FileError;

/// Why a machine does not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpError {
    /// Its description makes no sense, or shows no memory.
    #[error("{0}")]
    Machine(String),
    /// A file cannot be read, the system provides no space or no thread.
    #[error("{0}")]
    Io(String),
    /// The engine failed its own checks.
    #[error("{0}")]
    Check(String),
}

impl UpError {
    pub(super) fn machine(step: &str, error: impl fmt::Display) -> Self {
        Self::Machine(format!("{step}: {error}"))
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let error = Advised(error);
        Self::Io(format!("cannot read {}: {error}", path.display()))
    }
}

impl From<FileError> for UpError {
    fn from(error: FileError) -> Self {
        Self::Io(error.to_string())
    }
}
