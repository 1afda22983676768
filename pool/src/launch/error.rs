//! Why a command line cannot be started on memory of the pool, and what to
//! change.

use super::need::{Bytes, Need};
use std::error::Error;
use std::fmt;

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// An argument about memory that cannot be read.
    Unreadable {
        /// The option it belongs to.
        option: String,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing says how much memory the guest has.
    NoSize,
    /// The command line and `--memory` speak of different sizes.
    Size {
        /// Where the command line says so.
        place: String,
        /// What it says.
        seen_bytes: u64,
        /// What `--memory` asks for.
        asked_bytes: u64,
    },
    /// The command line and `--memory` speak of a different number of nodes.
    Nodes {
        /// Guest nodes with memory.
        seen: usize,
        /// How often `--memory` was given.
        asked: usize,
    },
    /// Guest nodes without a size, and no `--memory` for them.
    NodeSizes {
        /// Guest nodes.
        seen: usize,
    },
    /// A memory backend that cannot be replaced.
    Backend {
        /// Its identifier.
        id: String,
        /// Why not.
        reason: String,
    },
    /// A memory zone of Cloud Hypervisor that cannot be on the pool.
    Zone {
        /// Its identifier; empty for the memory of `--memory`.
        id: String,
        /// Why not.
        reason: String,
    },
    /// It is not known how this VMM takes its memory.
    UnknownVmm {
        /// The program.
        program: String,
        /// A VMM among its arguments: then it only starts that.
        inner: Option<String>,
    },
    /// `{memoryN}` without the N-th `--memory`, or the other way round.
    Place {
        /// The place.
        place: String,
        /// How often `--memory` was given.
        asked: usize,
    },
    /// Nothing for `--inject` to serve.
    Inject {
        /// What is missing.
        reason: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable {
                option,
                text,
                reason,
            } => write!(f, "{option} {text}: {reason}"),
            Self::NoSize => {
                f.write_str("how much memory? give --memory SIZE before --, or -m SIZE to the VMM")
            }
            Self::Size {
                place,
                seen_bytes,
                asked_bytes,
            } => write!(
                f,
                "{place} says {}, --memory says {}: make them the same, or leave --memory out",
                Bytes(*seen_bytes),
                Bytes(*asked_bytes)
            ),
            Self::Nodes { seen, asked } => write!(
                f,
                "the guest has {seen} nodes with memory, --memory was given {asked} times: \
                 give it once for each, or leave it out"
            ),
            Self::NodeSizes { seen } => write!(
                f,
                "the guest has {seen} nodes and nothing says how much memory each has: \
                 give --memory SIZE once for each"
            ),
            Self::Backend { id, reason } if id.is_empty() => {
                write!(f, "the memory backend without id: {reason}")
            }
            Self::Backend { id, reason } => write!(f, "memory backend {id}: {reason}"),
            Self::Zone { id, reason } if id.is_empty() => write!(f, "the guest's memory: {reason}"),
            Self::Zone { id, reason } => write!(f, "memory zone {id}: {reason}"),
            Self::UnknownVmm {
                program,
                inner: Some(inner),
            } => write!(
                f,
                "{program} is no VMM but starts {inner}: write it first, \
                 {program} ... firstlight pool run ... -- {inner} ..."
            ),
            Self::UnknownVmm {
                program,
                inner: None,
            } => write!(
                f,
                "how {program} takes its memory is not known here: write {{memory}} where it \
                 takes the name of a file, or use --inject if it makes its memory with \
                 memfd_create"
            ),
            Self::Place { place, asked } => write!(
                f,
                "{place} and --memory, given {asked} times, do not go together: each --memory \
                 needs its place, {{memory0}} for the first, and each place its --memory"
            ),
            Self::Inject { reason } => write!(f, "--inject: {reason}"),
        }
    }
}

impl Error for PlanError {}

/// Both speak of the same size, or neither is obeyed.
pub(super) fn same(place: &str, seen_bytes: u64, asked: &Need) -> Result<(), PlanError> {
    if seen_bytes == asked.bytes {
        return Ok(());
    }
    Err(PlanError::Size {
        place: place.into(),
        seen_bytes,
        asked_bytes: asked.bytes,
    })
}
