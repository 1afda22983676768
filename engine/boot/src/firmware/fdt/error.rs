//! What can be wrong with a flattened device tree: [`FdtError`].

use core::fmt;

/// Nodes may nest this deep; real trees stay below 12.
pub const MAX_DEPTH: usize = 64;

/// Why a tree, or a value in it, could not be read. Offsets count from the
/// start of the structure block, unless they say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdtError {
    /// Not a flattened device tree.
    BadMagic {
        /// The number in its place.
        seen: u32,
    },
    /// The header, or the total size it names, does not fit in the bytes.
    Truncated {
        /// Bytes there are.
        seen_bytes: usize,
        /// Bytes there must be.
        needed_bytes: usize,
    },
    /// A version this reader does not know: 16 and 17 are.
    Version {
        /// The tree's version.
        version: u32,
        /// The oldest version it says it is compatible with.
        last_compatible: u32,
    },
    /// A block of the tree lies outside of it, or not at a multiple of what it
    /// must.
    Block {
        /// Which block.
        what: &'static str,
        /// Its offset in the tree.
        offset: u32,
        /// Its length in bytes.
        bytes: u32,
    },
    /// The list of memory reservations runs into the end of the tree.
    ReservationsUnterminated,
    /// A token that no tree contains.
    BadToken {
        /// Where.
        offset: usize,
        /// The token.
        seen: u32,
    },
    /// The structure ends in the middle of something, or without its end token.
    Ended {
        /// Where what is cut begins.
        offset: usize,
    },
    /// A node ends that was not begun, a second root begins, or the tree ends
    /// inside a node.
    Unbalanced {
        /// Where.
        offset: usize,
    },
    /// Nodes nest deeper than [`MAX_DEPTH`].
    TooDeep {
        /// Where.
        offset: usize,
    },
    /// A property comes after a child node, or outside of any node.
    StrayProperty {
        /// Where.
        offset: usize,
    },
    /// A property's name lies outside of the strings block.
    PropertyName {
        /// Where.
        offset: usize,
        /// The offset of the name in the strings block.
        seen: u32,
    },
    /// A property has a length its meaning does not allow.
    PropertySize {
        /// Where its node is.
        node: usize,
        /// The property.
        property: &'static str,
        /// Its length.
        seen_bytes: usize,
        /// What the length must be a multiple of.
        unit_bytes: usize,
    },
    /// A node's parent gives addresses or sizes a width that none has: 1 to 4
    /// cells are expected (for sizes of CPUs, none).
    Cells {
        /// Where the node is.
        node: usize,
        /// `#address-cells`; 255 where it is more.
        address: u8,
        /// `#size-cells`; 255 where it is more.
        size: u8,
    },
    /// A number is larger than what it stands for can be: an address, a size or the id of a
    /// CPU of more than 64 bits, the id of a NUMA node from 65,536 on.
    TooWide {
        /// Where its node is.
        node: usize,
        /// The property.
        property: &'static str,
    },
    /// A node lacks a property it must have.
    Missing {
        /// Where the node is.
        node: usize,
        /// The property.
        property: &'static str,
    },
}

impl fmt::Display for FdtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("device tree: ")?;
        match *self {
            Self::BadMagic { seen } => write!(f, "begins with {seen:#010x}, expected 0xd00dfeed"),
            Self::Truncated {
                seen_bytes,
                needed_bytes,
            } => {
                write!(f, "{seen_bytes} bytes, at least {needed_bytes} expected")
            }
            Self::Version {
                version,
                last_compatible,
            } => {
                write!(
                    f,
                    "version {version}, compatible with {last_compatible}; 16 or 17 expected"
                )
            }
            Self::Block {
                what,
                offset,
                bytes,
            } => {
                write!(f, "{what} block of {bytes} bytes at {offset} is misplaced")
            }
            Self::ReservationsUnterminated => f.write_str("memory reservations have no end"),
            Self::BadToken { offset, seen } => write!(f, "unknown token {seen:#x} at {offset}"),
            Self::Ended { offset } => write!(f, "structure is cut at {offset}"),
            Self::Unbalanced { offset } => write!(f, "nodes do not nest at {offset}"),
            Self::TooDeep { offset } => {
                write!(f, "more than {} nodes deep at {offset}", MAX_DEPTH)
            }
            Self::StrayProperty { offset } => {
                write!(f, "property outside of a node's head at {offset}")
            }
            Self::PropertyName { offset, seen } => {
                write!(
                    f,
                    "property at {offset} has its name at {seen}, outside of the strings"
                )
            }
            Self::PropertySize {
                node,
                property,
                seen_bytes,
                unit_bytes,
            } => {
                write!(
                    f,
                    "node at {node}: {property} has {seen_bytes} bytes, a multiple of {unit_bytes} expected"
                )
            }
            Self::Cells {
                node,
                address,
                size,
            } => {
                write!(
                    f,
                    "node at {node}: addresses of {address} and sizes of {size} cells, 1 to 4 expected"
                )
            }
            Self::TooWide { node, property } => {
                write!(f, "node at {node}: {property} is too large")
            }
            Self::Missing { node, property } => write!(f, "node at {node}: no {property}"),
        }
    }
}

impl core::error::Error for FdtError {}
