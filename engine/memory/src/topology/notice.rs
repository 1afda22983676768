//! Firmware's mistakes about nodes: [`TopologyNotice`] for those that are repaired,
//! [`TopologyError`] for those that need the caller.

use core::fmt;

use crate::addr::PhysRange;
use crate::early::EarlyError;
use crate::node::NodeId;
use crate::store::Full;

/// Why a machine of several nodes is taken as one of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OneNodeReason {
    /// Ranges of two nodes overlap.
    Overlap,
    /// Too much memory belongs to no node.
    Unclaimed {
        /// How much.
        bytes: u64,
    },
}

/// A mistake of firmware, and how it is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyNotice {
    /// A range of no bytes; it is left out.
    Empty {
        /// Its node.
        node: NodeId,
        /// Its first byte.
        start: u64,
    },
    /// A range that reaches past the end of physical addresses; it is clipped there.
    Clipped {
        /// Its node.
        node: NodeId,
        /// Its first byte.
        start: u64,
        /// Its length as firmware gave it.
        bytes: u64,
    },
    /// A range that begins or ends inside a page frame; both ends go down to the
    /// start of theirs.
    Unaligned {
        /// Its node.
        node: NodeId,
        /// The range as firmware gave it.
        range: PhysRange,
    },
    /// Two ranges of one node share bytes; harmless.
    Repeated {
        /// The bytes.
        range: PhysRange,
        /// The node.
        node: NodeId,
    },
    /// Two nodes claim the same bytes.
    Contested {
        /// The bytes.
        range: PhysRange,
        /// The node whose range starts lower: it keeps them.
        kept: NodeId,
        /// The other node.
        lost: NodeId,
    },
    /// Memory that no node claims.
    Unclaimed {
        /// The memory.
        range: PhysRange,
        /// The node it gets.
        given: NodeId,
    },
    /// The nodes are not used: the machine is taken as one node.
    OneNode {
        /// Why.
        reason: OneNodeReason,
    },
    /// Hot-pluggable memory on a node that already holds reserved memory: it cannot be unplugged.
    NotRemovable {
        /// The range.
        range: PhysRange,
        /// The node.
        node: NodeId,
    },
}

impl fmt::Display for TopologyNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { node, start } => {
                write!(f, "{node}: range of 0 bytes at {start:#x} left out")
            }
            Self::Clipped { node, start, bytes } => write!(
                f,
                "{node}: range of {bytes:#x} bytes at {start:#x} clipped at the end of physical addresses"
            ),
            Self::Unaligned { node, range } => write!(
                f,
                "{node}: {range} begins or ends inside a page: moved down to whole pages"
            ),
            Self::Repeated { range, node } => write!(f, "{node} claims {range} twice"),
            Self::Contested { range, kept, lost } => {
                write!(
                    f,
                    "{range} is claimed by {kept} and {lost}; {kept} keeps it"
                )
            }
            Self::Unclaimed { range, given } => {
                write!(f, "memory {range} is on no node; taken as {given}")
            }
            Self::OneNode {
                reason: OneNodeReason::Overlap,
            } => f.write_str("ranges of two nodes overlap; the machine is taken as one node"),
            Self::OneNode {
                reason: OneNodeReason::Unclaimed { bytes },
            } => write!(
                f,
                "{bytes} bytes of memory are on no node; the machine is taken as one node"
            ),
            Self::NotRemovable { range, node } => write!(
                f,
                "{node}: {range} cannot be unplugged, the node already holds reserved memory"
            ),
        }
    }
}

/// Which part of the storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyPart {
    /// One slot a node.
    Nodes,
    /// One slot a range.
    Ranges,
    /// One byte a pair of nodes.
    Distances,
}

/// Why a topology could not be built or applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyError {
    /// Storage provided by the caller is too small.
    Full {
        /// Which part.
        part: TopologyPart,
        /// What there is and what is needed for what was seen so far.
        full: Full,
    },
    /// Early memory has no slot for the node boundaries.
    Early(EarlyError),
}

impl From<EarlyError> for TopologyError {
    fn from(error: EarlyError) -> Self {
        Self::Early(error)
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { part, full } => {
                let part = match part {
                    TopologyPart::Nodes => "nodes",
                    TopologyPart::Ranges => "ranges",
                    TopologyPart::Distances => "distances",
                };
                write!(f, "topology {part}: {full}")
            }
            Self::Early(error) => write!(f, "setting nodes: {error}"),
        }
    }
}

impl core::error::Error for TopologyError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Early(error) => Some(error),
            Self::Full { .. } => None,
        }
    }
}
