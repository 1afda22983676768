//! What the store cannot do, and what to do about it.

use crate::protocol::PageSize;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no store.
#[derive(Debug)]
pub enum StoreError {
    /// The daemon's folder.
    Directory {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The operating system's words.
        error: io::Error,
    },
    /// Another daemon has the folder.
    Taken(PathBuf),
    /// A mount of huge pages.
    Mount {
        /// Its pages.
        page: PageSize,
        /// The operating system's words.
        error: io::Error,
    },
    /// The machine has no such pages.
    NoSuchPages(&'static str),
    /// The machine has no such node.
    NoSuchNode(u32),
}

impl StoreError {
    pub(super) fn mount(page: PageSize, error: io::Error) -> Self {
        Self::Mount { page, error }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { what, path, error } => {
                write!(f, "cannot {what} {}: {error}", path.display())
            }
            Self::Mount { page, error } => {
                write!(f, "cannot make a mount of {page} pages: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; `source = \"memfd\"` needs no privilege")
                    }
                    _ => Ok(()),
                }
            }
            Self::Taken(path) => write!(
                f,
                "{} belongs to another daemon that is running; stop it, or set another `directory`",
                path.display()
            ),
            Self::NoSuchPages(page) => write!(
                f,
                "this machine has no huge pages of {page}; see /sys/kernel/mm/hugepages"
            ),
            Self::NoSuchNode(node) => write!(
                f,
                "this machine has no node {node}; see /sys/devices/system/node"
            ),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Directory { error, .. } | Self::Mount { error, .. } => Some(error),
            _ => None,
        }
    }
}
