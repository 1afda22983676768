//! Refused changes of early memory: [`EarlyError`].
#![deny(unsafe_code)]

use core::fmt;

use super::region::EarlyFlags;
use super::request::EarlyRequest;
use crate::addr::{PhysAddr, PhysRange};
use crate::store::Full;

/// Which of the two range sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlySet {
    /// The memory there is.
    Memory,
    /// What of it is reserved.
    Reserved,
}

impl fmt::Display for EarlySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Reserved => "reserved",
        })
    }
}

/// Why a change to early memory was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlyError {
    /// The storage of one of the sets is too small.
    Full {
        /// Which set.
        set: EarlySet,
        /// The range that did not fit.
        range: PhysRange,
        /// What there is and what is needed.
        full: Full,
    },
    /// A request for no bytes.
    ZeroBytes {
        /// What they were for.
        owner: &'static str,
    },
    /// An alignment that is not a power of two.
    BadAlign {
        /// The alignment seen.
        align: u64,
        /// What the memory was for.
        owner: &'static str,
    },
    /// No free range fits.
    NoSpace {
        /// The request.
        request: EarlyRequest,
        /// The end of the addresses that were considered.
        max: PhysAddr,
        /// The largest free range between the bounds, whatever its node or flags.
        largest_bytes: u64,
    },
    /// A range to be freed is not wholly reserved.
    NotReserved {
        /// The range.
        range: PhysRange,
    },
    /// A range to be preserved is not wholly memory.
    NotMemory {
        /// The range.
        range: PhysRange,
    },
    /// A range to be preserved is in use.
    InUse {
        /// The range.
        range: PhysRange,
        /// What uses a part of it.
        owner: &'static str,
    },
    /// A range to be preserved lies in memory that cannot hold what is preserved.
    Unusable {
        /// The range.
        range: PhysRange,
        /// The flags of that memory.
        flags: EarlyFlags,
    },
}

impl fmt::Display for EarlyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { set, range, full } => write!(f, "{set} set at {range}: {full}"),
            Self::ZeroBytes { owner } => {
                write!(f, "a request for 0 bytes of early memory, for {owner}")
            }
            Self::BadAlign { align, owner } => {
                write!(
                    f,
                    "a request for alignment {align:#x}, for {owner}: expected a power of two"
                )
            }
            Self::NoSpace {
                request,
                max,
                largest_bytes,
            } => {
                let EarlyRequest {
                    bytes,
                    align,
                    min,
                    owner,
                    ..
                } = request;
                write!(
                    f,
                    "no {bytes} bytes aligned to {align:#x} for {owner} in {min}..{max}"
                )?;
                if let (Some(node), true) = (request.node, request.exact_node) {
                    write!(f, " on {node}")?;
                }
                write!(f, "; the largest free range there is {largest_bytes} bytes")
            }
            Self::NotReserved { range } => {
                write!(f, "{range} cannot be freed: not all of it is reserved")
            }
            Self::NotMemory { range } => {
                write!(f, "{range} cannot be preserved: not all of it is memory")
            }
            Self::InUse { range, owner } => {
                write!(
                    f,
                    "{range} cannot be preserved: a part of it is in use for {owner}"
                )
            }
            Self::Unusable { range, flags } => {
                write!(f, "{range} cannot be preserved: memory there is {flags}")
            }
        }
    }
}

impl core::error::Error for EarlyError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Full { full, .. } => Some(full),
            _ => None,
        }
    }
}
