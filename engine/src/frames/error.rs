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
    OutOfMemory {
        /// What was asked for.
        request: Request,
        /// Frames that lie in the magazines of other CPUs, or are about to, which were asked
        /// for them and have not given them back yet; some of them might do.
        held_by_cpus: u64,
    },
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
            Self::OutOfMemory {
                request,
                held_by_cpus,
            } => {
                let (order, place) = (request.order(), request.place());
                let held = HeldByCpus(*held_by_cpus);
                write!(f, "out of memory: no free block of {order} {place}{held}")
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

/// How a message goes on: "; 3 frames lie in magazines of CPUs ...", or not at all if none do.
pub(super) struct HeldByCpus(pub(super) u64);

impl fmt::Display for HeldByCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            held => write!(
                f,
                "; {held} frames lie in magazines of CPUs that have not answered yet: try again"
            ),
        }
    }
}

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
    /// Found free when the CPU's magazine gave it back: it had been freed twice. What the
    /// call was made for was done nevertheless.
    FreedTwice {
        /// First frame of the block that was freed twice; not that of the call.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Claimed, but some of it is allocated, reserved, isolated or promised to another CPU.
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
            Self::FreedTwice { frame, order } => write!(
                f,
                "{frame} with {order} was freed twice: found free when a magazine gave it back"
            ),
            Self::InUse { frame, order } => {
                write!(
                    f,
                    "{frame} with {order} claimed, but some of it is in use or isolated"
                )
            }
        }
    }
}

impl core::error::Error for BlockError {}

/// A CPU can't have magazines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// There is no such slot.
    NoSuchCpu {
        /// The one asked for.
        cpu: usize,
        /// How many were lent, numbered from 0.
        cpus: usize,
    },
    /// Another [`Cpu`](super::Cpu) has the slot.
    Taken,
    /// There is no such node.
    NoSuchNode {
        /// The node asked for.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCpu { cpu, cpus } => write!(
                f,
                "CPU {cpu} asked for, but slots for {cpus} CPUs were lent, numbered from 0"
            ),
            Self::Taken => write!(f, "the CPU's slot is taken: its magazines exist already"),
            Self::NoSuchNode { node, nodes } => write!(
                f,
                "{node} asked for, but there are {nodes} nodes, numbered from 0"
            ),
        }
    }
}

impl core::error::Error for CpuError {}

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
