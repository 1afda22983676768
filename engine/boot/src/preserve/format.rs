//! Where the fields of a table are, and [`PreservedRange`]: a range with its owner.
#![deny(unsafe_code)]

use core::fmt;

use super::checksum::crc32c;
use crate::addr::PhysRange;
use crate::node::NodeId;

/// A table begins with these bytes.
pub const MAGIC: [u8; 8] = *b"FLHANDOV";
/// The version that is written and read here.
pub const VERSION: u16 = 2;
/// Bytes before the first range.
pub const HEADER_BYTES: usize = 48;
/// Bytes of each range.
pub const RANGE_BYTES: usize = 40;

/// CRC-32C, the one algorithm there is.
pub(super) const CRC_32C: u16 = 1;
/// Where the node is not known.
const NO_NODE: u16 = u16::MAX;

/// A range that a kernel hands over, or takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreservedRange {
    /// The bytes: whole pages of 4 KiB, at least one.
    pub range: PhysRange,
    /// The part of the kernel that takes it back.
    pub owner: u32,
    /// The owner's own number.
    pub tag: u64,
    /// The node it lies on, if the old kernel knew.
    pub node: Option<NodeId>,
}

impl PreservedRange {
    /// Whether the two are one range if they touch.
    pub(super) fn alike(&self, other: &Self) -> bool {
        (self.owner, self.tag, self.node) == (other.owner, other.tag, other.node)
    }
}

impl fmt::Display for PreservedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            range, owner, tag, ..
        } = self;
        write!(f, "{range} of owner {owner}, tag {tag:#x}")
    }
}

/// The header of a table, as it stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) magic: [u8; 8],
    pub(super) version: u16,
    pub(super) algorithm: u16,
    pub(super) checksum: u32,
    pub(super) length: u32,
    pub(super) ranges: u32,
    pub(super) at: u64,
    pub(super) nonce: u64,
    pub(super) flags: u64,
}

impl Header {
    /// The flag of a table whose ranges have checksums of their content.
    pub(super) const CONTENT: u64 = 1;

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            magic: field(bytes, 0),
            version: u16::from_le_bytes(field(bytes, 8)),
            algorithm: u16::from_le_bytes(field(bytes, 10)),
            checksum: u32::from_le_bytes(field(bytes, 12)),
            length: u32::from_le_bytes(field(bytes, 16)),
            ranges: u32::from_le_bytes(field(bytes, 20)),
            at: u64::from_le_bytes(field(bytes, 24)),
            nonce: u64::from_le_bytes(field(bytes, 32)),
            flags: u64::from_le_bytes(field(bytes, 40)),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, self.magic);
        put(&mut bytes, 8, self.version.to_le_bytes());
        put(&mut bytes, 10, self.algorithm.to_le_bytes());
        put(&mut bytes, 12, self.checksum.to_le_bytes());
        put(&mut bytes, 16, self.length.to_le_bytes());
        put(&mut bytes, 20, self.ranges.to_le_bytes());
        put(&mut bytes, 24, self.at.to_le_bytes());
        put(&mut bytes, 32, self.nonce.to_le_bytes());
        put(&mut bytes, 40, self.flags.to_le_bytes());
        bytes
    }

    /// The checksum of a table with this header and these ranges.
    pub(super) fn checksum_with(&self, ranges: &[u8]) -> u32 {
        let header = Self {
            checksum: 0,
            ..*self
        };
        crc32c([&header.encode()[..], ranges])
    }
}

/// A range as it stands in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) tag: u64,
    pub(super) owner: u32,
    pub(super) node: u16,
    /// Zero; not so once an owner has taken the range.
    pub(super) taken: u16,
    /// The checksum of its content, if the table has such.
    pub(super) content: u64,
}

impl Entry {
    /// Written over `taken`.
    pub(super) const TAKEN: u16 = 1;
    /// Where `taken` is.
    const TAKEN_AT: usize = 30;

    pub(super) fn of(range: &PreservedRange) -> Self {
        Self {
            start: range.range.start().get(),
            bytes: range.range.bytes(),
            tag: range.tag,
            owner: range.owner,
            node: range.node.map_or(NO_NODE, |node| node.0),
            taken: 0,
            content: 0,
        }
    }

    pub(super) fn decode(bytes: &[u8; RANGE_BYTES]) -> Self {
        Self {
            start: u64::from_le_bytes(field(bytes, 0)),
            bytes: u64::from_le_bytes(field(bytes, 8)),
            tag: u64::from_le_bytes(field(bytes, 16)),
            owner: u32::from_le_bytes(field(bytes, 24)),
            node: u16::from_le_bytes(field(bytes, 28)),
            taken: u16::from_le_bytes(field(bytes, Self::TAKEN_AT)),
            content: u64::from_le_bytes(field(bytes, 32)),
        }
    }

    pub(super) fn encode(&self) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        put(&mut bytes, 0, self.start.to_le_bytes());
        put(&mut bytes, 8, self.bytes.to_le_bytes());
        put(&mut bytes, 16, self.tag.to_le_bytes());
        put(&mut bytes, 24, self.owner.to_le_bytes());
        put(&mut bytes, 28, self.node.to_le_bytes());
        put(&mut bytes, Self::TAKEN_AT, self.taken.to_le_bytes());
        put(&mut bytes, 32, self.content.to_le_bytes());
        bytes
    }

    /// With the bytes as a range, once they are known to be one.
    pub(super) fn ranged(&self, range: PhysRange) -> PreservedRange {
        PreservedRange {
            range,
            owner: self.owner,
            tag: self.tag,
            node: (self.node != NO_NODE).then_some(NodeId(self.node)),
        }
    }
}

/// `N` bytes at `at`; all offsets above lie inside.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}
