//! The one pass over a tree: [`Walk`] checks the structure and says what each node is for.

use super::error::{FdtError, MAX_DEPTH};
use super::tokens::{Token, Tokens, is};
use crate::firmware::bytes::u32_be;

/// How many 32-bit cells an address and a size have; 255 stands for more. A byte each: a walk has a stack of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cells {
    pub(super) address: u8,
    pub(super) size: u8,
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
    /// Properties are read, of the node at hand.
    reads: bool,
    /// The node at hand is the second of the two.
    is_second: bool,
    /// The node at hand and the one before it, by turns: that is done once the next begins, and is not moved.
    heads: [FdtSlot; 2],
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
            reads: false,
            is_second: false,
            heads: [FdtSlot::EMPTY; 2],
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
        let at = (short(offset), short(name.len()));
        if depth == 1 {
            self.top = match name {
                b"cpus" => Top::Cpus,
                b"reserved-memory" => Top::ReservedMemory,
                _ => Top::Other,
            };
            self.top_at = at;
        }
        let top = if depth > 0 { self.top_at } else { (0, 0) };
        let roles = self.named(depth, name);
        let mut cells = Cells::DEFAULT;
        if let Some([own, children]) = self
            .cells
            .get_mut(usize::from(depth)..)
            .and_then(|cells| cells.first_chunk_mut())
        {
            cells = *own;
            *children = Cells::DEFAULT;
        }
        self.reads = true;
        self.is_second = !self.is_second;
        let head = self.head();
        (head.offset, head.name_bytes) = at;
        (head.top, head.top_bytes) = top;
        head.cells = cells;
        head.depth = depth;
        head.roles = roles;
        Ok(())
    }

    /// The node at hand.
    #[inline]
    const fn head(&mut self) -> &mut FdtSlot {
        let [first, second] = &mut self.heads;
        if self.is_second { second } else { first }
    }

    /// The node before it.
    #[inline]
    const fn before(&self) -> &FdtSlot {
        let [first, second] = &self.heads;
        if self.is_second { first } else { second }
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
        if !self.reads {
            return None;
        }
        // Most properties say nothing, which their first letter shows.
        match name.first() {
            Some(b'#') => {
                // The nodes begun and not ended include this one.
                let children = self.cells.get_mut(usize::from(self.depth))?;
                let cells = || u8::try_from(u32_be(value, 0).unwrap_or(0)).unwrap_or(u8::MAX);
                if is(name, "#address-cells") {
                    children.address = cells();
                } else if is(name, "#size-cells") {
                    children.size = cells();
                }
            }
            Some(b'd') if is(name, "device_type") => match (self.depth - 1, self.top, value) {
                (1, _, b"memory\0") => self.head().roles.add(Roles::MEMORY),
                (2, Top::Cpus, b"cpu\0") => self.head().roles.add(Roles::CPU),
                _ => {}
            },
            Some(b'c') if is(name, "compatible") => {
                let wanted = self.wanted;
                let head = self.head();
                for text in value.split(|&byte| byte == 0) {
                    if head.depth == 1 && text == b"numa-distance-map-v1" {
                        head.roles.add(Roles::DISTANCES);
                    } else if text == b"arm,psci-1.0" || text == b"arm,psci-0.2" {
                        head.roles.add(Roles::PSCI);
                    }
                    if wanted.iter().any(|wanted| wanted.as_bytes() == text) {
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
    pub(super) fn advance(&mut self) -> Result<Option<&FdtSlot>, FdtError> {
        while !self.finished {
            let (offset, token) = self.tokens.step()?;
            match token {
                Token::Property { name, value } => {
                    self.property(name, value)
                        .ok_or(FdtError::StrayProperty { offset })?;
                }
                Token::Begin { name } => {
                    let is_done = self.reads;
                    self.begin(offset, name)?;
                    if is_done {
                        return Ok(Some(self.before()));
                    }
                }
                Token::End => {
                    let depth = self.depth.checked_sub(1);
                    self.depth = depth.ok_or(FdtError::Unbalanced { offset })?;
                    if core::mem::take(&mut self.reads) {
                        return Ok(Some(self.head()));
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
        let next = self.advance().map(|done| done.copied());
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
