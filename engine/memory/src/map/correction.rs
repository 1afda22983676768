//! What was wrong with a map: [`Correction`] for what could be put right,
//! [`MapError`] for what could not.

use core::fmt;

use super::entry::{MapEntry, MemoryKind, Region};
use crate::addr::{PHYS_END, PhysRange};
use crate::store::Full;

/// Something in the firmware's list that the map holds differently. `entry` is
/// the entry's position in the list, counted from 0, or [`Region::OVERRIDE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Correction {
    /// The entry has no bytes; dropped.
    Empty {
        /// The entry.
        entry: u32,
        /// Where it would have started.
        start: u64,
    },
    /// Start plus length runs past 2^64; clipped like anything past
    /// [`PHYS_END`].
    Wraps {
        /// The entry.
        entry: u32,
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Bytes at or past [`PHYS_END`], which no processor can address; clipped.
    BeyondPhysical {
        /// The entry.
        entry: u32,
        /// First byte clipped.
        start: u64,
        /// Last byte clipped.
        last: u64,
    },
    /// A type number the format does not define; taken as reserved.
    UnknownType {
        /// The entry.
        entry: u32,
        /// The number.
        seen: u32,
    },
    /// EFI memory that cannot be cached write-back; taken as reserved.
    NotWriteBack {
        /// The entry.
        entry: u32,
        /// Its EFI attributes.
        attributes: u64,
    },
    /// Two entries of different kinds share bytes; they went to the more
    /// restrictive kind.
    Overlap {
        /// The entry that lost the bytes.
        entry: u32,
        /// What it called them.
        kind: MemoryKind,
        /// The entry that keeps them.
        winner: u32,
        /// What they are now.
        winner_kind: MemoryKind,
        /// The bytes.
        range: PhysRange,
    },
    /// Two entries of one kind share bytes; counted once.
    Repeated {
        /// The later entry (by address).
        entry: u32,
        /// The earlier one.
        earlier: u32,
        /// The bytes.
        range: PhysRange,
    },
    /// Memory that does not fill its page: these bytes became reserved.
    PartialPage {
        /// The entry.
        entry: u32,
        /// What they were.
        kind: MemoryKind,
        /// The bytes.
        range: PhysRange,
    },
}

impl Correction {
    /// Number of the entry that was corrected.
    pub const fn entry(&self) -> u32 {
        match *self {
            Self::Empty { entry, .. }
            | Self::Wraps { entry, .. }
            | Self::BeyondPhysical { entry, .. }
            | Self::UnknownType { entry, .. }
            | Self::NotWriteBack { entry, .. }
            | Self::Overlap { entry, .. }
            | Self::Repeated { entry, .. }
            | Self::PartialPage { entry, .. } => entry,
        }
    }

    /// The corrections of `entry` that need no other entry to see.
    pub(crate) fn of_one(entry: u32, seen: &MapEntry, report: &mut dyn FnMut(Self)) {
        use super::entry::Doubt;
        match seen.doubt {
            Some(Doubt::UnknownType(seen)) => report(Self::UnknownType { entry, seen }),
            Some(Doubt::NotWriteBack(attributes)) => {
                report(Self::NotWriteBack { entry, attributes })
            }
            None => {}
        }
        let Some(last) = seen.last() else {
            return report(Self::Empty {
                entry,
                start: seen.start,
            });
        };
        if seen.wraps() {
            report(Self::Wraps {
                entry,
                start: seen.start,
                bytes: seen.bytes,
            });
        }
        if last >= PHYS_END {
            report(Self::BeyondPhysical {
                entry,
                start: seen.start.max(PHYS_END),
                last,
            });
        }
    }
}

/// An entry number, or the word for one that firmware did not list.
struct Entry(u32);

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Region::OVERRIDE {
            f.write_str("override")
        } else {
            write!(f, "entry {}", self.0)
        }
    }
}

impl fmt::Display for Correction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Entry(self.entry()))?;
        match *self {
            Self::Empty { start, .. } => write!(f, "no bytes at {start:#x}, dropped"),
            Self::Wraps { start, bytes, .. } => {
                write!(f, "{bytes:#x} bytes from {start:#x} run past 2^64, clipped")
            }
            Self::BeyondPhysical { start, last, .. } => {
                write!(
                    f,
                    "[{start:#018x}-{last:#018x}] lies past the end of physical memory at {PHYS_END:#x}, clipped"
                )
            }
            Self::UnknownType { seen, .. } => {
                write!(f, "unknown type {seen:#x}, taken as reserved")
            }
            Self::NotWriteBack { attributes, .. } => {
                write!(
                    f,
                    "memory without write-back caching (attributes {attributes:#x}), taken as reserved"
                )
            }
            Self::Overlap {
                kind,
                winner,
                winner_kind,
                range,
                ..
            } => {
                write!(
                    f,
                    "{range} {kind} overlaps {}, now {winner_kind}",
                    Entry(winner)
                )
            }
            Self::Repeated { earlier, range, .. } => {
                write!(f, "{range} repeats {}, counted once", Entry(earlier))
            }
            Self::PartialPage { kind, range, .. } => {
                write!(f, "{range} {kind} does not fill its page, now reserved")
            }
        }
    }
}

/// Why there is no map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// Too few scratch entries were provided.
    Scratch(Full),
    /// Too few regions were provided.
    Regions(Full),
    /// More than 2^32 - 1 entries.
    TooManyEntries,
    /// A region that should be sorted, whole pages and below [`PHYS_END`] is not.
    Unsorted {
        /// Its position.
        index: usize,
        /// Its range.
        range: PhysRange,
    },
}

impl MapError {
    pub(crate) const fn regions(capacity: usize, needed: usize) -> Self {
        Self::Regions(Full { capacity, needed })
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch(full) => write!(f, "memory map scratch: {full}"),
            Self::Regions(full) => write!(f, "memory map regions: {full}"),
            Self::TooManyEntries => f.write_str("memory map: more than 2^32 - 1 entries"),
            Self::Unsorted { index, range } => {
                write!(
                    f,
                    "memory map: region {index} {range} is empty, overlaps, or is not made of whole pages"
                )
            }
        }
    }
}

impl core::error::Error for MapError {}
