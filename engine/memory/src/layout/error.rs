//! Why there is no layout: [`LayoutError`].

use core::fmt;

use crate::addr::PhysRange;
use crate::node::NodeId;
use crate::store::Full;

/// Which part of [`super::LayoutStorage`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutPart {
    /// `nodes`.
    Nodes,
    /// `ranges`.
    Ranges,
    /// `zones`.
    Zones,
}

impl fmt::Display for LayoutPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Ranges => "ranges",
            Self::Zones => "zones",
        })
    }
}

/// Why there is no layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// Storage provided by the caller is too small.
    Full {
        /// Which part.
        part: LayoutPart,
        /// What there is and what is needed.
        full: Full,
    },
    /// Not one whole frame of memory.
    NoMemory {
        /// Regions of early memory there are.
        regions: usize,
    },
    /// Memory without a node, on a machine of several.
    NoNode {
        /// The memory.
        range: PhysRange,
    },
    /// Memory of a node that the topology does not have.
    UnknownNode {
        /// The memory.
        range: PhysRange,
        /// Its node.
        node: NodeId,
        /// How many nodes there are.
        nodes: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { part, full } => write!(f, "layout {part}: {full}"),
            Self::NoMemory { regions } => {
                write!(
                    f,
                    "no memory: not one whole page frame in {regions} regions"
                )
            }
            Self::NoNode { range } => write!(
                f,
                "memory {range} has no node; apply a topology before the layout is built"
            ),
            Self::UnknownNode { range, node, nodes } => {
                write!(
                    f,
                    "memory {range} is on {node}, but the topology has {nodes} nodes"
                )
            }
        }
    }
}

impl core::error::Error for LayoutError {}
