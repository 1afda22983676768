//! Mistakes of the tables that name nodes: [`TableNotice`].

use core::fmt;

use super::{REMOTE_DISTANCE, TopologyNotice};
use crate::firmware::acpi::{AcpiError, SlitFault};
use crate::firmware::fdt::{FdtDistance, FdtError};

/// A mistake in a table that names nodes, and how it is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableNotice {
    /// An SRAT entry that could not be read; it is left out.
    Srat {
        /// What was wrong with it.
        error: AcpiError,
    },
    /// A device tree entry that could not be read; it is left out, or only its node's number.
    Tree {
        /// What was wrong with it.
        error: FdtError,
    },
    /// A distance in a device tree that is impossible, or of a node without CPUs
    /// and memory; it is left out.
    TreeDistance {
        /// The row.
        row: FdtDistance,
    },
    /// A distance in a SLIT is wrong.
    Slit {
        /// The first wrong one of the gravest kind.
        fault: SlitFault,
        /// Whether the distances are used all the same.
        used: bool,
    },
    /// A row that can be read, and is wrong.
    Row(TopologyNotice),
}

impl From<TopologyNotice> for TableNotice {
    fn from(notice: TopologyNotice) -> Self {
        Self::Row(notice)
    }
}

impl fmt::Display for TableNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Srat { error } => write!(f, "SRAT entry left out: {error}"),
            Self::Tree { error } => write!(f, "left out: {error}"),
            Self::TreeDistance {
                row: FdtDistance { from, to, distance },
            } => write!(
                f,
                "device tree: distance {distance} from node {from} to node {to} left out"
            ),
            Self::Slit { fault, used: true } => write!(f, "{fault}; used as it is"),
            Self::Slit { fault, used: false } => {
                write!(f, "{fault}; distances left at {REMOTE_DISTANCE}")
            }
            Self::Row(notice) => notice.fmt(f),
        }
    }
}
