//! What keeps the daemon from serving.

use crate::config::ConfigError;
use crate::store::StoreError;
use std::error::Error;
use std::fmt;
use std::io;

/// Why the daemon does not serve.
#[derive(Debug)]
pub enum ServeError {
    /// What the configuration names is not there.
    Config(ConfigError),
    /// The slabs.
    Store(StoreError),
    /// A socket.
    Socket {
        /// What was tried.
        what: String,
        /// The operating system's words.
        error: io::Error,
    },
    /// Anything else of the operating system.
    System {
        /// What was tried.
        what: &'static str,
        /// The operating system's words.
        error: io::Error,
    },
}

impl ServeError {
    pub(super) fn socket(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Socket {
            what: what.into(),
            error: error.into(),
        }
    }

    pub(super) fn system(what: &'static str, error: io::Error) -> Self {
        Self::System { what, error }
    }
}

impl ServeError {
    /// Whether the configuration must be changed, so that to start again is of no use.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Config(_) => true,
            Self::Store(error) => {
                matches!(
                    error,
                    StoreError::NoSuchPages(_) | StoreError::NoSuchNode(_)
                )
            }
            Self::Socket { .. } | Self::System { .. } => false,
        }
    }
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Socket { what, error } => write!(f, "cannot {what}: {error}"),
            Self::System { what, error } => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Socket { error, .. } | Self::System { error, .. } => Some(error),
        }
    }
}
