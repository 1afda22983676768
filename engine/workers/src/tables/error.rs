//! What is refused: [`TableError`].

use core::fmt;

use crate::frames::AllocError;

/// A table gets no memory. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableError {
    /// The list of chunks is too short.
    List {
        /// Chunks it has space for.
        capacity: usize,
        /// Chunks of the table.
        needed: u64,
    },
    /// No node was named.
    NoNode,
    /// A chunk could not be allocated; those before it are freed.
    OutOfMemory {
        /// Bytes of the table.
        bytes: u64,
        /// Bytes that were allocated before.
        done_bytes: u64,
        /// Why the next chunk was not.
        cause: AllocError,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List { capacity, needed } => write!(
                f,
                "a table of {needed} chunks: the list has space for {capacity}"
            ),
            Self::NoNode => f.write_str("a table on no node: expected one node or more"),
            Self::OutOfMemory {
                bytes,
                done_bytes,
                cause,
            } => write!(
                f,
                "no memory for a table of {bytes} bytes after {done_bytes} of them, which are free again: {cause}"
            ),
        }
    }
}

impl core::error::Error for TableError {}
