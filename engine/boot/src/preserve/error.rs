//! Why ranges are not handed over, or not taken over: [`PreserveError`].
#![deny(unsafe_code)]

use core::fmt;
use core::num::NonZeroU64;

use super::format::{HEADER_BYTES, MAGIC, RANGE_BYTES, VERSION};
use crate::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use crate::early::EarlyError;
use crate::node::NodeId;
use crate::store::Full;

/// What is wrong with one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeFault {
    /// It has no bytes.
    Empty,
    /// Start or length is no multiple of a page.
    Unaligned,
    /// It ends beyond the last physical address.
    Overflow,
    /// It shares bytes with this one, or stands behind it and lies below it.
    Overlap(PhysRange),
    /// A field that must be zero is not.
    Unknown(u16),
}

impl fmt::Display for RangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no bytes, expected a page or more"),
            Self::Unaligned => write!(f, "expected multiples of {PAGE_BYTES:#x}"),
            Self::Overflow => write!(f, "expected an end at {PHYS_END:#x} or below"),
            Self::Overlap(other) => {
                write!(
                    f,
                    "expected ascending ranges that share nothing with {other}"
                )
            }
            Self::Unknown(seen) => write!(f, "{seen:#x} in its last field, expected zero"),
        }
    }
}

/// Why a table was not written, or is refused. Nothing is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreserveError {
    /// There is no table: its first eight bytes are zero, as in a machine that was switched on.
    Absent,
    /// The place is smaller than a table without ranges.
    TooShort {
        /// Bytes of the place.
        bytes: usize,
    },
    /// Another table or none.
    Foreign {
        /// Its first bytes.
        seen: [u8; 8],
    },
    /// Another version.
    Version {
        /// The version seen.
        seen: u16,
    },
    /// An unknown algorithm of the checksum.
    Algorithm {
        /// Its number.
        seen: u16,
    },
    /// The length is not that of so many ranges.
    Length {
        /// The length seen, in bytes.
        seen: u32,
        /// The number of ranges seen.
        ranges: u32,
    },
    /// The table is longer than its place.
    Truncated {
        /// Bytes of the table.
        length: u32,
        /// Bytes of the place.
        bytes: usize,
    },
    /// The table was written for another address.
    Moved {
        /// That address.
        seen: u64,
        /// The address of the place.
        at: PhysAddr,
    },
    /// The table is damaged.
    Checksum {
        /// The checksum in the table.
        seen: u32,
        /// That of its content.
        expected: u32,
    },
    /// The table is of another restart than the one that started this kernel.
    Stale {
        /// The nonce in the table.
        seen: u64,
        /// The nonce that the previous kernel handed over; `None` after a cold start.
        expected: Option<NonZeroU64>,
    },
    /// Unknown flags.
    Flags {
        /// All of them.
        seen: u64,
    },
    /// A range is none that can be handed over.
    Range {
        /// Its number, from 0.
        index: usize,
        /// Its first byte.
        start: u64,
        /// Its length.
        bytes: u64,
        /// What is wrong.
        fault: RangeFault,
    },
    /// More ranges than the place holds.
    Full(Full),
    /// Early memory does not have the range to give: it is no memory, in use, or one too many.
    Early {
        /// The number of the range, from 0.
        index: usize,
        /// The reason.
        error: EarlyError,
    },
    /// A range lies on another node than the table says.
    Node {
        /// Its number, of those not taken, from 0.
        index: usize,
        /// The range.
        range: PhysRange,
        /// The node in the table.
        seen: NodeId,
        /// The node it lies on, at least in part.
        expected: NodeId,
    },
    /// There are no checksums of what ranges hold.
    Unverified,
    /// A range does not hold what it held.
    Content {
        /// Its number, from 0.
        index: usize,
        /// The range.
        range: PhysRange,
        /// The checksum of what it holds.
        seen: u64,
        /// That in the table.
        expected: u64,
    },
}

impl PreserveError {
    /// Whether there is nothing to take over, which is no fault.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl fmt::Display for PreserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hand-over table: ")?;
        match self {
            Self::Absent => f.write_str("there is none"),
            Self::TooShort { bytes } => {
                write!(
                    f,
                    "a place of {bytes} bytes, expected {HEADER_BYTES} or more"
                )
            }
            Self::Foreign { seen } => write!(
                f,
                "begins with \"{}\", expected \"{}\"",
                seen.escape_ascii(),
                MAGIC.escape_ascii()
            ),
            Self::Version { seen } => write!(f, "of version {seen}, expected {VERSION}"),
            Self::Algorithm { seen } => {
                write!(f, "checksum by algorithm {seen}, expected 1 (CRC-32C)")
            }
            Self::Length { seen, ranges } => write!(
                f,
                "{seen} bytes with {ranges} ranges, expected {}",
                HEADER_BYTES as u64 + u64::from(*ranges) * RANGE_BYTES as u64
            ),
            Self::Truncated { length, bytes } => {
                write!(f, "{length} bytes in a place of {bytes}")
            }
            Self::Moved { seen, at } => write!(f, "written for {seen:#x}, found at {at}"),
            Self::Checksum { seen, expected } => {
                write!(f, "checksum {seen:#010x}, expected {expected:#010x}")
            }
            Self::Range {
                index,
                start,
                bytes,
                fault,
            } => write!(f, "range {index}, {bytes:#x} bytes at {start:#x}: {fault}"),
            Self::Full(full) => full.fmt(f),
            Self::Stale { seen, expected } => {
                write!(f, "of restart {seen:#x}, expected ")?;
                match expected {
                    Some(nonce) => write!(f, "that of restart {nonce:#x}"),
                    None => f.write_str("none after a cold start"),
                }
            }
            Self::Flags { seen } => write!(f, "flags {seen:#x}, expected 0 or 1"),
            Self::Node {
                index,
                range,
                seen,
                expected,
            } => write!(f, "range {index}: {range} on {seen}, expected {expected}"),
            Self::Unverified => f.write_str("no checksums of content, expected some"),
            Self::Content {
                index,
                range,
                seen,
                expected,
            } => write!(
                f,
                "range {index}: {range} has content of checksum {seen:#x}, expected {expected:#x}"
            ),
            Self::Early { index, error } => write!(f, "range {index}: {error}"),
        }
    }
}

impl core::error::Error for PreserveError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Full(full) => Some(full),
            Self::Early { error, .. } => Some(error),
            _ => None,
        }
    }
}
