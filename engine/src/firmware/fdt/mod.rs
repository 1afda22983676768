//! The flattened device tree: memory, reservations, CPUs, and which NUMA node
//! each belongs to.
//!
//! [`Fdt::parse`] checks the header and walks the whole structure once, so
//! that what follows can rely on it: [`Fdt::nodes`] gives every [`Node`], and
//! [`Fdt::memory`], [`Fdt::reserved`], [`Fdt::cpus`] and [`Fdt::distances`]
//! pick what matters here. There is no recursion and no copy: the only state
//! of a walk is a stack of [`MAX_DEPTH`] cell widths.
//!
//! Format: Devicetree specification 0.4; NUMA properties: the Linux binding
//! `numa.txt`.

mod error;
mod node;
mod places;
mod tokens;

pub use error::{FdtError, MAX_DEPTH};
pub use node::{Node, Nodes};
pub use places::{FdtCpu, FdtDistance, FdtMemory, FdtReserved, Placement};

use super::bytes::{index, u32_be, u64_be};
use crate::map::{MapEntry, MemoryKind};
use tokens::{Token, Tokens};

const MAGIC: u32 = 0xd00d_feed;
const V16_HEADER_BYTES: usize = 36;
const V17_HEADER_BYTES: usize = 40;
const RESERVATION_BYTES: usize = 16;

/// A device tree whose structure has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Fdt<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
    /// Memory reservations, without the empty one that ends them.
    reservations: &'a [u8],
    boot_cpu: u32,
}

impl<'a> Fdt<'a> {
    /// Checks the header and the structure of the tree at the start of `bytes`.
    ///
    /// # Errors
    /// [`FdtError`] says what is wrong and where.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FdtError> {
        let truncated = |needed_bytes| FdtError::Truncated {
            seen_bytes: bytes.len(),
            needed_bytes,
        };
        let word = |offset| u32_be(bytes, offset).ok_or(truncated(V16_HEADER_BYTES));
        let seen = word(0)?;
        if seen != MAGIC {
            return Err(FdtError::BadMagic { seen });
        }
        let (version, last_compatible) = (word(20)?, word(24)?);
        if version < 16 || !(16..=17).contains(&last_compatible) {
            return Err(FdtError::Version {
                version,
                last_compatible,
            });
        }
        let total = index(word(4)?.into());
        let header = if version >= 17 {
            V17_HEADER_BYTES
        } else {
            V16_HEADER_BYTES
        };
        let tree = bytes.get(..total).filter(|tree| tree.len() >= header);
        let tree = tree.ok_or(truncated(total.max(header)))?;

        let offset = word(8)?;
        let rest = u32::try_from(total)
            .unwrap_or(u32::MAX)
            .saturating_sub(offset);
        let length = if version >= 17 {
            u32_be(tree, 36).ok_or(truncated(header))?
        } else {
            rest
        };
        let structure = block(tree, "structure", offset, length, 4)?;
        let strings = block(tree, "strings", word(12)?, word(32)?, 1)?;
        let reservations = reservations(tree, word(16)?)?;
        let fdt = Self {
            structure,
            strings,
            reservations,
            boot_cpu: word(28)?,
        };
        fdt.check()?;
        Ok(fdt)
    }

    /// Walks all tokens once: nodes nest, properties come first, names exist.
    fn check(&self) -> Result<(), FdtError> {
        let mut depth = 0usize;
        let mut head = false;
        let mut roots = 0;
        let mut tokens = self.tokens();
        loop {
            let offset = tokens.offset();
            match tokens.next().ok_or(FdtError::Ended { offset })?? {
                Token::Begin { .. } => {
                    roots += usize::from(depth == 0);
                    depth += 1;
                    head = true;
                    if roots > 1 {
                        return Err(FdtError::Unbalanced { offset });
                    }
                    if depth > MAX_DEPTH {
                        return Err(FdtError::TooDeep { offset });
                    }
                }
                Token::End => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or(FdtError::Unbalanced { offset })?;
                    head = false;
                }
                Token::Property { .. } if !head => return Err(FdtError::StrayProperty { offset }),
                Token::Property { .. } => {}
                Token::Finish if depth != 0 || roots == 0 => {
                    return Err(FdtError::Unbalanced { offset });
                }
                Token::Finish => return Ok(()),
            }
        }
    }

    const fn tokens(&self) -> Tokens<'a> {
        Tokens::new(self.structure, self.strings, 0)
    }

    /// Hardware id of the CPU that boots.
    pub const fn boot_cpu(&self) -> u32 {
        self.boot_cpu
    }

    /// All nodes, parents before children.
    pub const fn nodes(&self) -> Nodes<'a> {
        Nodes::new(self.tokens())
    }

    /// Memory and no-map reservations as entries for
    /// [`crate::map::MemoryMap::build`]. Reservations without no-map are memory
    /// in use: [`Fdt::reserved`] lists them, to be reserved early.
    ///
    /// # Errors
    /// The first [`FdtError`] of a memory or reservation node.
    pub fn map_entries(
        &self,
    ) -> Result<impl Iterator<Item = MapEntry> + Clone + use<'a>, FdtError> {
        self.memory().try_for_each(|memory| memory.map(drop))?;
        self.reserved()
            .try_for_each(|reserved| reserved.map(drop))?;
        let memory = self.memory().flatten();
        let usable =
            memory.map(|memory| MapEntry::new(memory.start, memory.bytes, MemoryKind::Usable));
        let reserved = self
            .reserved()
            .flatten()
            .filter_map(|reserved| match reserved.placement {
                Placement::Fixed { start, bytes } if reserved.no_map => {
                    Some(MapEntry::new(start, bytes, MemoryKind::Reserved))
                }
                _ => None,
            });
        Ok(usable.chain(reserved))
    }
}

fn block<'a>(
    tree: &'a [u8],
    what: &'static str,
    offset: u32,
    bytes: u32,
    align: u32,
) -> Result<&'a [u8], FdtError> {
    let start = index(offset.into());
    let end = start.checked_add(index(bytes.into()));
    end.and_then(|end| tree.get(start..end))
        .filter(|_| offset.is_multiple_of(align))
        .ok_or(FdtError::Block {
            what,
            offset,
            bytes,
        })
}

/// The reservation block up to its end: an entry of two zeros.
fn reservations(tree: &[u8], offset: u32) -> Result<&[u8], FdtError> {
    let rest = u32::try_from(tree.len())
        .unwrap_or(u32::MAX)
        .saturating_sub(offset);
    let block = block(tree, "reservations", offset, rest, 8)?;
    let ends = |entry: &[u8]| u64_be(entry, 0) == Some(0) && u64_be(entry, 8) == Some(0);
    let count = block.chunks_exact(RESERVATION_BYTES).position(ends);
    let count = count.ok_or(FdtError::ReservationsUnterminated)?;
    Ok(block.get(..count * RESERVATION_BYTES).unwrap_or_default())
}
