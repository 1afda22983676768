//! The flattened device tree: memory, reservations, CPUs, and which NUMA node
//! each belongs to; the command line, and how firmware is called.
//!
//! [`Fdt::parse_in`] checks the header and walks the whole structure once, so that what
//! follows can rely on it, and keeps the nodes that a bring-up needs in slots of the caller:
//! [`Fdt::memory`], [`Fdt::reserved`], [`Fdt::cpus`], [`Fdt::distances`], [`Fdt::bootargs`]
//! and the others read only those. [`Fdt::parse`] needs no slots; then each of these walks the
//! tree again. [`Fdt::nodes`] gives every [`Node`]. There is no recursion and no copy: the only
//! state of a walk is a stack of [`MAX_DEPTH`] cell widths. References from node to node
//! (phandles) are not followed, so they may point anywhere.
//!
//! | file | what it is |
//! |---|---|
//! | `tokens`, `walk` | the structure as tokens; the walk that checks them and says what each node is for |
//! | `node` | a node, its properties |
//! | `places`, `chosen` | memory, CPUs, distances; what the boot loader and the firmware leave for the kernel |
//!
//! Format: Devicetree specification 0.4; NUMA properties: the Linux binding
//! `numa.txt`.

mod chosen;
mod error;
mod node;
mod places;
mod tokens;
mod walk;

pub use super::psci::PsciConduit;
pub use error::{FdtError, MAX_DEPTH};
pub use node::{Node, Nodes};
pub use places::{FdtCpu, FdtDistance, FdtMemory, FdtReserved, Placement};
pub use walk::FdtSlot;

use super::bytes::{index, u32_be, u64_be};
use crate::map::{MapEntry, MemoryKind};
use tokens::Tokens;
use walk::{Roles, Walk};

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
    /// Nodes that are for something, in the tree's order, if they are kept.
    kept: Option<&'a [FdtSlot]>,
    /// How many there are.
    relevant: usize,
    /// What nodes are kept for besides, by what they are compatible with.
    wanted: &'a [&'a str],
}

impl<'a> Fdt<'a> {
    /// Bytes of the tree that begins with `head`, its first 8 bytes: so many are needed to
    /// parse it.
    ///
    /// ```
    /// use firstlight_boot::firmware::fdt::Fdt;
    /// assert_eq!(Fdt::total_bytes(&[0xd0, 0x0d, 0xfe, 0xed, 0, 0x10, 0, 0]), Ok(1 << 20));
    /// ```
    ///
    /// # Errors
    /// [`FdtError::BadMagic`] or [`FdtError::Truncated`].
    pub fn total_bytes(head: &[u8]) -> Result<u32, FdtError> {
        let word = |offset| {
            u32_be(head, offset).ok_or(FdtError::Truncated {
                seen_bytes: head.len(),
                needed_bytes: 8,
            })
        };
        match word(0)? {
            MAGIC => word(4),
            seen => Err(FdtError::BadMagic { seen }),
        }
    }

    /// Checks the header and the structure of the tree at the start of `bytes`.
    ///
    /// # Errors
    /// [`FdtError`] says what is wrong and where.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FdtError> {
        Self::parse_in(bytes, &mut [], &[])
    }

    /// Checks the tree, as [`Self::parse`], in the only walk that a bring-up needs: nodes that the methods of this type
    /// read are kept in `slots`, and with them those that are compatible with a text of
    /// `wanted` ([`Self::compatible`]), such as a serial port.
    ///
    /// Four slots, and one for each CPU, range of memory, reservation and wanted node, are
    /// enough. Where `slots` are too few ([`Self::slots_needed`] says how many are) nothing is
    /// lost, but each method walks the tree.
    ///
    /// ```
    /// use firstlight_boot::firmware::fdt::{Fdt, FdtSlot};
    /// # let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/machines/trees/virt-aarch64-2g.dtb");
    /// # let tree = &std::fs::read(tree).unwrap();
    /// let mut slots = [FdtSlot::EMPTY; 16]; // a static in a kernel
    /// let fdt = Fdt::parse_in(tree, &mut slots, &["arm,pl011"])?;
    /// assert_eq!(fdt.memory().flatten().map(|memory| memory.bytes).sum::<u64>(), 2 << 30);
    /// let serial = fdt.compatible("arm,pl011").next().unwrap();
    /// assert_eq!(serial.reg().next(), Some(Ok((0x900_0000, 0x1000))));
    /// # Ok::<(), firstlight_boot::firmware::fdt::FdtError>(())
    /// ```
    ///
    /// # Errors
    /// [`FdtError`] says what is wrong and where.
    pub fn parse_in(
        bytes: &'a [u8],
        slots: &'a mut [FdtSlot],
        wanted: &'a [&'a str],
    ) -> Result<Self, FdtError> {
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
        let mut fdt = Self {
            structure,
            strings,
            reservations,
            boot_cpu: word(28)?,
            kept: None,
            relevant: 0,
            wanted,
        };
        let mut walk = fdt.walk();
        while let Some(node) = walk.advance()? {
            if node.roles != Roles::NONE {
                if let Some(slot) = slots.get_mut(fdt.relevant) {
                    *slot = *node;
                }
                fdt.relevant += 1;
            }
        }
        fdt.kept = slots.get(..fdt.relevant);
        Ok(fdt)
    }

    const fn tokens(&self, offset: usize) -> Tokens<'a> {
        Tokens::new(self.structure, self.strings, offset)
    }

    const fn walk(&self) -> Walk<'a> {
        Walk::new(self.tokens(0), self.wanted)
    }

    /// How many slots [`Self::parse_in`] needs to keep all nodes that it should.
    pub const fn slots_needed(&self) -> usize {
        self.relevant
    }

    /// The nodes for any of `roles`, in the tree's order.
    fn nodes_for(&self, roles: Roles) -> impl Iterator<Item = Node<'a>> + Clone + use<'a> {
        let tree = *self;
        let slots = Slots {
            kept: self.kept.unwrap_or_default().iter(),
            walk: self.kept.is_none().then(|| self.walk()),
        };
        slots
            .filter(move |slot| slot.roles.has(roles))
            .map(move |slot| Node::new(&tree, slot))
    }

    /// Hardware id of the CPU that boots.
    pub const fn boot_cpu(&self) -> u32 {
        self.boot_cpu
    }

    /// All nodes, parents before children.
    pub const fn nodes(&self) -> Nodes<'a> {
        Nodes::new(*self)
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

/// The nodes that were kept, or those of a walk where they are not all kept. One walk, which has a stack of widths: a
/// chain of flattened options would have three, and a boot moves such iterators.
#[derive(Clone)]
struct Slots<'a> {
    kept: core::slice::Iter<'a, FdtSlot>,
    walk: Option<Walk<'a>>,
}

impl Iterator for Slots<'_> {
    type Item = FdtSlot;

    fn next(&mut self) -> Option<FdtSlot> {
        match &mut self.walk {
            None => self.kept.next().copied(),
            // The tree was checked, so no error is left out.
            Some(walk) => walk.flatten().next(),
        }
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
