//! Nodes and their properties: [`Nodes`] walks them, [`Node`] is one.

use super::Fdt;
use super::error::FdtError;
use super::tokens::{Token, Tokens, is};
use super::walk::{Cells, FdtSlot, Walk};
use crate::firmware::bytes::{index, u32_be};

/// A node of a device tree.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    name: &'a [u8],
    top: &'a [u8],
    depth: usize,
    offset: usize,
    /// Reads the node's properties.
    head: Tokens<'a>,
    /// Widths of its own addresses, as its parent gives them.
    cells: Cells,
}

impl<'a> Node<'a> {
    /// The node of a tree that was checked.
    pub(super) fn new(tree: &Fdt<'a>, slot: FdtSlot) -> Self {
        let name = |at: u32, bytes: u32| {
            let name = tree.structure.get(index(at.into()).saturating_add(4)..);
            name.and_then(|name| name.get(..index(bytes.into())))
                .unwrap_or_default()
        };
        let offset = index(slot.offset.into());
        let name_bytes = index(slot.name_bytes.into());
        Self {
            name: name(slot.offset, slot.name_bytes),
            top: name(slot.top, slot.top_bytes),
            depth: slot.depth.into(),
            offset,
            head: tree.tokens(offset + 4 + (name_bytes + 1).next_multiple_of(4)),
            cells: slot.cells,
        }
    }

    /// Its name with the unit address, `memory@40000000`; empty for the root.
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Its name up to the `@`.
    pub fn base_name(&self) -> &'a [u8] {
        self.name
            .split(|&byte| byte == b'@')
            .next()
            .unwrap_or_default()
    }

    /// Name of the root's child it is or lies under; empty for the root.
    pub const fn top(&self) -> &'a [u8] {
        self.top
    }

    /// 0 for the root, 1 for its children.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Where it begins in the structure block; errors name it by this.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes of a property; `None` when the node has none of that name.
    pub fn property(&self, wanted: &str) -> Option<&'a [u8]> {
        let mut head = self.head.clone();
        while let Ok((_, Token::Property { name, value })) = head.step() {
            if is(name, wanted) {
                return Some(value);
            }
        }
        None
    }

    /// A property that is one 32-bit number.
    ///
    /// # Errors
    /// [`FdtError::PropertySize`] when it is not four bytes long.
    pub fn number(&self, property: &'static str) -> Result<Option<u32>, FdtError> {
        let Some(value) = self.property(property) else {
            return Ok(None);
        };
        match (value.len(), u32_be(value, 0)) {
            (4, Some(number)) => Ok(Some(number)),
            (seen_bytes, _) => Err(FdtError::PropertySize {
                node: self.offset,
                property,
                seen_bytes,
                unit_bytes: 4,
            }),
        }
    }

    /// Whether a property is the given text.
    pub fn says(&self, property: &str, text: &str) -> bool {
        self.property(property)
            .and_then(|value| value.strip_suffix(b"\0"))
            == Some(text.as_bytes())
    }

    /// Whether a list of texts contains the given one.
    pub fn lists(&self, property: &str, text: &str) -> bool {
        let value = self.property(property).unwrap_or_default();
        value
            .split(|&byte| byte == 0)
            .any(|item| item == text.as_bytes())
    }

    /// Whether its status allows to use it: none at all does, or "okay".
    pub fn enabled(&self) -> bool {
        self.property("status").is_none()
            || self.says("status", "okay")
            || self.says("status", "ok")
    }

    /// The (address, size) pairs of its `reg`, as its parent counts addresses: those of a
    /// node below the root are physical, those on a bus need the bus's `ranges`. Nothing when
    /// it has none; an error comes after the pairs that could be read.
    pub fn reg(&self) -> impl Iterator<Item = Result<(u64, u64), FdtError>> + Clone + use<'a> {
        let value = self.property("reg");
        let pairs = value.map(|value| self.pairs("reg", value, true));
        pairs.into_iter().flatten()
    }

    /// The (address, size) pairs of a property such as `reg`, in the widths
    /// the parent gives. `sized` says whether a size is expected (a CPU has
    /// none).
    pub(super) fn pairs(&self, property: &'static str, value: &'a [u8], sized: bool) -> Pairs<'a> {
        let Cells { address, size } = self.cells;
        let fits = (1..=4).contains(&address)
            && if sized {
                (1..=4).contains(&size)
            } else {
                size == 0
            };
        let unit_bytes = 4 * usize::from(address.min(4) + size.min(4));
        let seen_bytes = value.len();
        let error = if !fits {
            Some(FdtError::Cells {
                node: self.offset,
                address,
                size,
            })
        } else if !seen_bytes.is_multiple_of(unit_bytes) {
            Some(FdtError::PropertySize {
                node: self.offset,
                property,
                seen_bytes,
                unit_bytes,
            })
        } else {
            None
        };
        let rest = if fits { value } else { &[] };
        Pairs {
            node: self.offset,
            property,
            rest,
            split: 4 * usize::from(address.min(4)),
            unit_bytes,
            error,
        }
    }

    /// A property that is one size in the width the parent gives.
    pub(super) fn size_of(&self, property: &'static str) -> Result<Option<u64>, FdtError> {
        let Some(value) = self.property(property) else {
            return Ok(None);
        };
        let Cells { address, size } = self.cells;
        if !(1..=4).contains(&size) {
            return Err(FdtError::Cells {
                node: self.offset,
                address,
                size,
            });
        }
        let unit_bytes = 4 * usize::from(size);
        if value.len() != unit_bytes {
            return Err(FdtError::PropertySize {
                node: self.offset,
                property,
                seen_bytes: value.len(),
                unit_bytes,
            });
        }
        wide(value).map(Some).ok_or(FdtError::TooWide {
            node: self.offset,
            property,
        })
    }
}

/// See [`Node::pairs`]; gives the whole pairs, then what is wrong with the
/// rest.
#[derive(Clone, Debug)]
pub(super) struct Pairs<'a> {
    node: usize,
    property: &'static str,
    rest: &'a [u8],
    /// Bytes of an address, of a pair.
    split: usize,
    unit_bytes: usize,
    error: Option<FdtError>,
}

impl Iterator for Pairs<'_> {
    type Item = Result<(u64, u64), FdtError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some((pair, rest)) = self
            .rest
            .split_at_checked(self.unit_bytes)
            .filter(|(pair, _)| !pair.is_empty())
        else {
            return self.error.take().map(Err);
        };
        self.rest = rest;
        let (address, size) = pair.split_at_checked(self.split)?;
        let pair = wide(address).zip(wide(size));
        Some(pair.ok_or(FdtError::TooWide {
            node: self.node,
            property: self.property,
        }))
    }
}

/// A big-endian number of up to 16 bytes, if it fits in 64 bits.
fn wide(bytes: &[u8]) -> Option<u64> {
    let value = bytes
        .iter()
        .fold(0u128, |value, &byte| value << 8 | u128::from(byte));
    u64::try_from(value).ok()
}

/// All nodes of a tree, parents before children; see [`super::Fdt::nodes`].
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    tree: Fdt<'a>,
    walk: Walk<'a>,
}

impl<'a> Nodes<'a> {
    pub(super) const fn new(tree: Fdt<'a>) -> Self {
        let walk = tree.walk();
        Self { tree, walk }
    }
}

impl<'a> Iterator for Nodes<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        // The tree was checked, so no error comes here.
        let slot = self.walk.next()?.ok()?;
        Some(Node::new(&self.tree, slot))
    }
}
