//! The one pass over a tree: [`Walk`] checks the structure and says what each node is for.

use super::error::{FdtError, MAX_DEPTH};
use super::tokens::{Token, Tokens, is};
use crate::firmware::bytes::u32_be;

/// How many 32-bit cells an address and a size have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cells {
    pub(super) address: u32,
    pub(super) size: u32,
}

impl Cells {
    /// What holds where a parent does not say.
    pub(super) const DEFAULT: Self = Self {
        address: 2,
        size: 1,
    };
}

/// What a node is for, as its place, name and properties say; a node may be for several
/// things. Whether it is enabled is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Roles(u8);

impl Roles {
    pub(super) const NONE: Self = Self(0);
    pub(super) const MEMORY: Self = Self(1);
    pub(super) const CPU: Self = Self(1 << 1);
    /// `/cpus`
    pub(super) const CPUS: Self = Self(1 << 2);
    /// A child of `/reserved-memory`.
    pub(super) const RESERVED: Self = Self(1 << 3);
    pub(super) const DISTANCES: Self = Self(1 << 4);
    /// `/chosen`
    pub(super) const CHOSEN: Self = Self(1 << 5);
    pub(super) const PSCI: Self = Self(1 << 6);
    /// Compatible with what the caller named.
    pub(super) const WANTED: Self = Self(1 << 7);

    const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A node that a bring-up needs, kept by [`Fdt::parse_in`](super::Fdt::parse_in).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdtSlot {
    /// Where the node begins in the structure.
    pub(super) offset: u32,
    pub(super) name_bytes: u32,
    /// Where the root's child begins that it is or lies under, and the bytes of its name.
    pub(super) top: u32,
    pub(super) top_bytes: u32,
    /// Widths of its own addresses, as its parent gives them.
    pub(super) cells: Cells,
    pub(super) depth: u8,
    pub(super) roles: Roles,
}

impl FdtSlot {
    /// The content of unused slots.
    pub const EMPTY: Self = Self {
        offset: 0,
        name_bytes: 0,
        top: 0,
        top_bytes: 0,
        cells: Cells::DEFAULT,
        depth: 0,
        roles: Roles::NONE,
    };
}

/// Which of the root's children a node lies under, if that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Top {
    Cpus,
    ReservedMemory,
    Other,
}

/// All nodes, parents before children, each when its properties have been read; then nothing,
/// or what is wrong with the tree.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    tokens: Tokens<'a>,
    /// What the caller wants nodes to be compatible with.
    wanted: &'a [&'a str],
    /// Nodes begun and not ended.
    depth: u8,
    has_root: bool,
    finished: bool,
    /// The node whose properties are read.
    head: Option<FdtSlot>,
    top: Top,
    top_at: (u32, u32),
    /// For each depth, the widths its nodes' addresses have.
    cells: [Cells; MAX_DEPTH + 1],
}

impl<'a> Walk<'a> {
    pub(super) const fn new(tokens: Tokens<'a>, wanted: &'a [&'a str]) -> Self {
        Self {
            tokens,
            wanted,
            depth: 0,
            has_root: false,
            finished: false,
            head: None,
            top: Top::Other,
            top_at: (0, 0),
            cells: [Cells::DEFAULT; MAX_DEPTH + 1],
        }
    }

    /// Takes the node begun at `offset` as the one whose properties follow.
    fn begin(&mut self, offset: usize, name: &[u8]) -> Result<(), FdtError> {
        let depth = self.depth;
        if depth == 0 && self.has_root {
            return Err(FdtError::Unbalanced { offset });
        }
        if usize::from(depth) >= MAX_DEPTH {
            return Err(FdtError::TooDeep { offset });
        }
        self.has_root = true;
        self.depth = depth + 1;
        let mut slot = FdtSlot {
            offset: short(offset),
            name_bytes: short(name.len()),
            depth,
            ..FdtSlot::EMPTY
        };
        if depth == 1 {
            self.top = match name {
                b"cpus" => Top::Cpus,
                b"reserved-memory" => Top::ReservedMemory,
                _ => Top::Other,
            };
            self.top_at = (slot.offset, slot.name_bytes);
        }
        if depth > 0 {
            (slot.top, slot.top_bytes) = self.top_at;
        }
        slot.roles = self.named(depth, name);
        if let Some([own, children]) = self
            .cells
            .get_mut(usize::from(depth)..)
            .and_then(|cells| cells.first_chunk_mut())
        {
            slot.cells = *own;
            *children = Cells::DEFAULT;
        }
        self.head = Some(slot);
        Ok(())
    }

    /// What the name of a node at `depth` says.
    fn named(&self, depth: u8, name: &[u8]) -> Roles {
        match (depth, self.top) {
            (1, Top::Cpus) => Roles::CPUS,
            (1, _) if name == b"chosen" => Roles::CHOSEN,
            (1, _) if is_base(name, b"memory") => Roles::MEMORY,
            (2, Top::ReservedMemory) => Roles::RESERVED,
            (2, Top::Cpus) if is_base(name, b"cpu") => Roles::CPU,
            _ => Roles::NONE,
        }
    }

    /// Takes what a property of the node at hand says.
    #[inline]
    fn property(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let head = self.head.as_mut()?;
        // Most properties say nothing, which their first letter shows.
        match name.first() {
            Some(b'#') => {
                // The nodes begun and not ended include this one.
                let children = self.cells.get_mut(usize::from(self.depth))?;
                let cells = || u32_be(value, 0).unwrap_or(0);
                if is(name, "#address-cells") {
                    children.address = cells();
                } else if is(name, "#size-cells") {
                    children.size = cells();
                }
            }
            Some(b'd') if is(name, "device_type") => match (head.depth, self.top, value) {
                (1, _, b"memory\0") => head.roles.add(Roles::MEMORY),
                (2, Top::Cpus, b"cpu\0") => head.roles.add(Roles::CPU),
                _ => {}
            },
            Some(b'c') if is(name, "compatible") => {
                for text in value.split(|&byte| byte == 0) {
                    if head.depth == 1 && text == b"numa-distance-map-v1" {
                        head.roles.add(Roles::DISTANCES);
                    } else if text == b"arm,psci-1.0" || text == b"arm,psci-0.2" {
                        head.roles.add(Roles::PSCI);
                    }
                    if self.wanted.iter().any(|wanted| wanted.as_bytes() == text) {
                        head.roles.add(Roles::WANTED);
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Goes on to the end of the next node's properties.
    #[inline]
    fn advance(&mut self) -> Result<Option<FdtSlot>, FdtError> {
        while !self.finished {
            let (offset, token) = self.tokens.step()?;
            match token {
                Token::Property { name, value } => {
                    self.property(name, value)
                        .ok_or(FdtError::StrayProperty { offset })?;
                }
                Token::Begin { name } => {
                    let done = self.head.take();
                    self.begin(offset, name)?;
                    if done.is_some() {
                        return Ok(done);
                    }
                }
                Token::End => {
                    let depth = self.depth.checked_sub(1);
                    self.depth = depth.ok_or(FdtError::Unbalanced { offset })?;
                    if let Some(done) = self.head.take() {
                        return Ok(Some(done));
                    }
                }
                Token::Finish if self.depth != 0 || !self.has_root => {
                    return Err(FdtError::Unbalanced { offset });
                }
                Token::Finish => self.finished = true,
            }
        }
        Ok(None)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<FdtSlot, FdtError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        self.finished |= next.is_err();
        next.transpose()
    }
}

/// Whether `name` is `base`, alone or with a unit address.
fn is_base(name: &[u8], base: &[u8]) -> bool {
    let unit = name.strip_prefix(base).map(<[u8]>::first);
    matches!(unit, Some(None | Some(b'@')))
}

/// An offset in a block, which has less than 4 GiB.
fn short(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
