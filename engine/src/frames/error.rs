//! What the allocator refuses, and why.

use core::fmt;

use super::Request;
use crate::addr::{Frame, Order};
use crate::early::EarlyError;
use crate::node::NodeId;

/// A request for a block could not be met; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// No node, zone or fallback had such a block.
    OutOfMemory(Request),
    /// There is no such node.
    NoSuchNode {
        /// The node asked for.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(request) => {
                write!(f, "out of memory: no free block of {}", request.order())?;
                match request.node() {
                    Some(node) if request.is_exact() => write!(f, " on {node} itself")?,
                    Some(node) => write!(f, " on {node} or any other")?,
                    None => write!(f, " on any node")?,
                }
                write!(f, " in zone {} or below", request.highest_zone())
            }
            Self::NoSuchNode { node, nodes } => {
                write!(
                    f,
                    "{node} asked for, but there are {nodes} nodes, numbered from 0"
                )
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// A block can't be freed or claimed as asked; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The frame is no place where a block of this order can start.
    Misaligned {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Not all of the block is memory of one node and zone.
    OutsideMemory {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Freed, but not all of it was allocated: freed twice, or with too large an order.
    ///
    /// Only if two CPUs free overlapping blocks at the same moment can a part
    /// of the later one have been freed; no frame is ever freed twice.
    NotAllocated {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Claimed, but some of it is allocated, reserved or promised to another CPU.
    InUse {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { frame, order } => write!(
                f,
                "{frame} can't start a block of {order}: expected a multiple of {:#x}",
                order.frames()
            ),
            Self::OutsideMemory { frame, order } => {
                write!(f, "{frame} with {order} is not memory of one node and zone")
            }
            Self::NotAllocated { frame, order } => write!(
                f,
                "{frame} with {order} freed, but it is not all allocated: freed twice, or with the wrong order?"
            ),
            Self::InUse { frame, order } => {
                write!(f, "{frame} with {order} claimed, but it is not all free")
            }
        }
    }
}

impl core::error::Error for BlockError {}

/// The allocator could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The layout has no memory at all.
    NoMemory,
    /// Early memory had no room for the metadata.
    NoRoom {
        /// Bytes of metadata that were needed in one piece.
        needed_bytes: u64,
        /// The node they describe.
        node: NodeId,
        /// What early memory answered.
        cause: EarlyError,
    },
    /// The tables would not fit into the address space.
    TooLarge {
        /// Contiguous runs of memory of one node and zone.
        segments: usize,
        /// Nodes.
        nodes: usize,
    },
    /// The platform gave no pointer for early-allocated metadata.
    NotMapped {
        /// First byte of the metadata.
        start: crate::addr::PhysAddr,
        /// Its length.
        bytes: u64,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => write!(f, "no usable memory: there is nothing to allocate from"),
            Self::NoRoom {
                needed_bytes,
                node,
                cause,
            } => write!(
                f,
                "no room for the {needed_bytes} bytes that describe the frames of {node}: {cause}"
            ),
            Self::TooLarge { segments, nodes } => write!(
                f,
                "the tables for {segments} runs of memory on {nodes} nodes exceed the address space"
            ),
            Self::NotMapped { start, bytes } => {
                write!(
                    f,
                    "the platform can't reach the {bytes} bytes of metadata at {start}"
                )
            }
        }
    }
}

impl core::error::Error for BuildError {}
