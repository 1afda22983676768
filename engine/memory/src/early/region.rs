//! What the two range sets are made of: [`EarlyRegion`] and its [`EarlyFlags`].
//!
//! Two regions that touch are one region if node and flags are equal; that is all
//! [`super::set`] needs of them.
#![deny(unsafe_code)]

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

use crate::addr::PhysRange;
use crate::node::NodeId;

/// What is special about a range of memory; a small set of bits.
///
/// ```
/// use firstlight_memory::early::EarlyFlags;
/// let flags = EarlyFlags::HOTPLUG | EarlyFlags::MIRROR;
/// assert!(flags.contains(EarlyFlags::MIRROR));
/// assert_eq!(flags.without(EarlyFlags::MIRROR), EarlyFlags::HOTPLUG);
/// assert_eq!(flags.to_string(), "hotplug+mirror");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EarlyFlags(u8);

impl EarlyFlags {
    /// Ordinary memory.
    pub const NONE: Self = Self(0);
    /// Can be taken out while the machine runs; skipped by early allocations once
    /// [`EarlyMemory::set_movable_node`](super::EarlyMemory::set_movable_node) is on.
    pub const HOTPLUG: Self = Self(1);
    /// Mirrored, so more reliable; preferred by every early allocation.
    pub const MIRROR: Self = Self(2);
    /// Must not be mapped; never allocated from.
    pub const NOMAP: Self = Self(4);
    /// A driver found it and manages it; never allocated from.
    pub const DRIVER_MANAGED: Self = Self(8);
    /// Reserved, and its descriptors need no initialising.
    pub const NO_INIT: Self = Self(16);
    /// Holds what a previous kernel left there for this one; never allocated from.
    pub const PRESERVED: Self = Self(32);

    /// A confidential guest must accept it before the first touch; never allocated from.
    pub const UNACCEPTED: Self = Self(64);
    /// Reserved for boot only: the frame allocator accepts it back later. Without the
    /// flag a range is reserved for ever.
    pub const FREEABLE: Self = Self(128);

    const NAMED: [(Self, &'static str); 8] = [
        (Self::HOTPLUG, "hotplug"),
        (Self::MIRROR, "mirror"),
        (Self::NOMAP, "nomap"),
        (Self::DRIVER_MANAGED, "driver-managed"),
        (Self::NO_INIT, "no-init"),
        (Self::PRESERVED, "preserved"),
        (Self::UNACCEPTED, "unaccepted"),
        (Self::FREEABLE, "freeable"),
    ];

    /// These flags if `condition` holds, else none.
    pub(super) const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Whether no flag is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags and `other`'s.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without `other`'s.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for EarlyFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for EarlyFlags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

impl fmt::Display for EarlyFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (flag, name) in Self::NAMED {
            if self.contains(flag) {
                if !first {
                    f.write_str("+")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for EarlyFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A range of memory, or of reserved memory, with its node and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EarlyRegion {
    /// The bytes.
    pub range: PhysRange,
    /// The node of the memory, once it is known.
    pub node: Option<NodeId>,
    /// What is special about it.
    pub flags: EarlyFlags,
}

impl EarlyRegion {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        node: None,
        flags: EarlyFlags::NONE,
    };

    /// Whether `other`, if it touches this region, would be one region with it.
    pub(super) fn alike(&self, other: &Self) -> bool {
        self.node == other.node && self.flags == other.flags
    }
}

impl fmt::Display for EarlyRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.range)?;
        if let Some(node) = self.node {
            write!(f, " on {node}")?;
        }
        if !self.flags.is_empty() {
            write!(f, " {}", self.flags)?;
        }
        Ok(())
    }
}
