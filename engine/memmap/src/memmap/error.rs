//! Why there are no descriptors: [`MemmapError`].
#![deny(unsafe_code)]

use core::fmt;

use crate::addr::{FrameRange, PHYS_END, PhysAddr};
use crate::early::EarlyError;
use crate::node::NodeId;

/// Why there are no descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemmapError {
    /// There is no memory to describe.
    NoMemory,
    /// Early memory had no space.
    NoSpace {
        /// Bytes that were needed in one piece.
        needed_bytes: u64,
        /// The node they describe.
        node: NodeId,
        /// Early memory's error.
        cause: EarlyError,
    },
    /// The descriptors would not fit into the address space.
    TooLarge {
        /// Frames to be described.
        frames: u64,
    },
    /// The platform gave no pointer for the memory taken.
    NotMapped {
        /// Its first byte.
        start: PhysAddr,
        /// Its length.
        bytes: u64,
    },
    /// An array of descriptors does not begin where one may be.
    Misplaced {
        /// Address of its first descriptor.
        address: u64,
        /// What the address must be a multiple of.
        align: u64,
    },
    /// Storage provided by the caller is too small.
    TooLittleStorage {
        /// What it is for.
        purpose: &'static str,
        /// Bytes provided.
        bytes: usize,
        /// Bytes needed.
        needed_bytes: u64,
    },
    /// Ranges are empty, overlap, or do not ascend.
    Unordered {
        /// The first that does not come after the one before.
        frames: FrameRange,
    },
    /// A range ends where no physical address is.
    NoSuchMemory {
        /// The range.
        frames: FrameRange,
    },
    /// Memory that is to be added has descriptors already.
    Described {
        /// The memory.
        frames: FrameRange,
        /// A range of frames with descriptors that meets it.
        known: FrameRange,
    },
    /// Memory that is to hold its own descriptors is too small for them.
    TooSmall {
        /// The memory.
        frames: FrameRange,
        /// Frames its descriptors take.
        needed_frames: u64,
    },
}

impl fmt::Display for MemmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => write!(f, "no usable memory: there is nothing to describe"),
            Self::NoSpace {
                needed_bytes,
                node,
                cause,
            } => write!(
                f,
                "no space for the {needed_bytes} bytes of descriptors of {node}: {cause}"
            ),
            Self::TooLarge { frames } => write!(
                f,
                "the descriptors of {frames} frames exceed the address space"
            ),
            Self::NotMapped { start, bytes } => write!(
                f,
                "the platform can't reach the {bytes} bytes of descriptors at {start}"
            ),
            Self::Misplaced { address, align } => write!(
                f,
                "descriptors at {address:#x}: expected a multiple of {align}, and not null"
            ),
            Self::TooLittleStorage {
                purpose,
                bytes,
                needed_bytes,
            } => write!(
                f,
                "{bytes} bytes of storage for {purpose} are too few: {needed_bytes} are needed"
            ),
            Self::Unordered { frames } => write!(
                f,
                "{frames} to be described: expected ranges that are not empty, ascend and do not overlap"
            ),
            Self::NoSuchMemory { frames } => write!(
                f,
                "{frames} to be described: expected memory below {}, where physical addresses end",
                PhysAddr::new(PHYS_END)
            ),
            Self::Described { frames, known } => write!(
                f,
                "{frames} can't be added: {known} have descriptors already"
            ),
            Self::TooSmall {
                frames,
                needed_frames,
            } => write!(
                f,
                "{frames} can't hold their own descriptors, which take {needed_frames} frames"
            ),
        }
    }
}

impl core::error::Error for MemmapError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::NoSpace { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
