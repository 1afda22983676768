//! What a map is made of: [`MapEntry`] as firmware lists it, [`Region`] as the
//! map holds it, and the [`MemoryKind`] and [`Attributes`] of both.

use core::fmt;

use crate::addr::{PHYS_END, PhysRange};

/// What a range of physical memory is for, from the least to the most
/// restrictive: where entries overlap, the greater kind wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MemoryKind {
    /// Free for the kernel from the start.
    Usable,
    /// Free for the kernel, but a confidential guest must accept it before the
    /// first touch.
    Unaccepted,
    /// Memory set aside for special purposes (high bandwidth or far memory);
    /// allocated by name only, not as ordinary memory.
    SoftReserved,
    /// Keeps its content without power.
    Persistent,
    /// ACPI tables; usable once they have been read.
    AcpiReclaimable,
    /// ACPI's own storage, kept over sleep.
    AcpiNvs,
    /// Not memory to allocate from: devices, firmware, or unknown.
    #[default]
    Reserved,
    /// Memory with errors.
    Unusable,
}

impl MemoryKind {
    /// Number of kinds.
    pub const COUNT: usize = 8;

    /// All kinds, from the least restrictive to the most.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Usable,
        Self::Unaccepted,
        Self::SoftReserved,
        Self::Persistent,
        Self::AcpiReclaimable,
        Self::AcpiNvs,
        Self::Reserved,
        Self::Unusable,
    ];

    /// How restrictive it is: 0 is least. Also its position in [`Self::ALL`].
    pub const fn rank(self) -> usize {
        self as usize
    }

    /// Whether frames of this kind are handed out, now or once accepted.
    pub const fn is_memory(self) -> bool {
        matches!(self, Self::Usable | Self::Unaccepted)
    }

    /// Whether an entry's borders are worth keeping though its neighbour is of
    /// the same kind: they may be borders of nodes or devices.
    pub(crate) const fn keeps_borders(self) -> bool {
        matches!(self, Self::SoftReserved | Self::Persistent)
    }

    /// A short name, as kernels print it where they have one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Unaccepted => "unaccepted",
            Self::SoftReserved => "soft reserved",
            Self::Persistent => "persistent",
            Self::AcpiReclaimable => "ACPI data",
            Self::AcpiNvs => "ACPI NVS",
            Self::Reserved => "reserved",
            Self::Unusable => "unusable",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A range's attributes beyond its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes {
    /// Mirrored, or otherwise more reliable than the rest
    /// (EFI_MEMORY_MORE_RELIABLE). Where entries of one kind overlap, it holds
    /// only if all of them have it.
    pub more_reliable: bool,
    /// Meant for a special purpose (EFI_MEMORY_SP). Where entries of one kind
    /// overlap, it holds if any of them has it.
    pub special_purpose: bool,
}

impl Attributes {
    /// Nothing special.
    pub const NONE: Self = Self {
        more_reliable: false,
        special_purpose: false,
    };
}

/// Why a parser chose a kind that firmware did not name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// A type number the format does not define; taken as reserved.
    UnknownType(u32),
    /// EFI memory that cannot be cached write-back, with its attributes; taken
    /// as reserved.
    NotWriteBack(u64),
}

/// One entry as firmware lists it, unchecked.
///
/// ```
/// use firstlight_memory::map::{MapEntry, MemoryKind};
/// let entry = MapEntry::new(0x1000, 0x2000, MemoryKind::Usable);
/// assert_eq!(MapEntry::inclusive(0x1000, 0x2fff, MemoryKind::Usable), Some(entry));
/// assert_eq!(MapEntry::inclusive(0x1000, 0xff, MemoryKind::Usable), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapEntry {
    /// First byte.
    pub start: u64,
    /// Length in bytes. It may run past 2^64; that is clipped and reported.
    pub bytes: u64,
    /// What the range is for.
    pub kind: MemoryKind,
    /// Its attributes.
    pub attributes: Attributes,
    /// Set where `kind` is the parser's choice; reported when the map is built.
    pub doubt: Option<Doubt>,
}

impl MapEntry {
    /// `bytes` bytes of `kind` from `start`.
    pub const fn new(start: u64, bytes: u64, kind: MemoryKind) -> Self {
        Self {
            start,
            bytes,
            kind,
            attributes: Attributes::NONE,
            doubt: None,
        }
    }

    /// From the first to the last byte, as kernels print ranges; `None` if the
    /// last comes before the first. A length of 2^64 becomes 2^64 - 1: both
    /// are far past [`PHYS_END`] and clipped there.
    pub const fn inclusive(start: u64, last: u64, kind: MemoryKind) -> Option<Self> {
        if last < start {
            return None;
        }
        let bytes = (last - start).saturating_add(1);
        Some(Self::new(start, bytes, kind))
    }

    /// This entry, with `attributes`.
    pub const fn with_attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// This entry, marked as the parser's choice.
    pub const fn with_doubt(mut self, doubt: Doubt) -> Self {
        self.doubt = Some(doubt);
        self
    }

    /// Last byte, at most 2^64 - 1; `None` for an empty entry.
    pub const fn last(&self) -> Option<u64> {
        match self.bytes.checked_sub(1) {
            Some(extent) => Some(self.start.saturating_add(extent)),
            None => None,
        }
    }

    /// Whether the length runs past 2^64.
    pub(crate) const fn wraps(&self) -> bool {
        self.bytes != 0 && self.start.checked_add(self.bytes - 1).is_none()
    }

    /// The bytes below [`PHYS_END`]; `None` when there are none.
    pub(crate) fn clipped(&self) -> Option<PhysRange> {
        let end = self.last()?.saturating_add(1).min(PHYS_END);
        PhysRange::new(self.start, end).filter(|range| !range.is_empty())
    }
}

/// A range of one kind in a finished map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// The bytes; never empty in a map.
    pub range: PhysRange,
    /// What they are for.
    pub kind: MemoryKind,
    /// Their attributes.
    pub attributes: Attributes,
    /// Number of the firmware entry the first byte comes from, or
    /// [`Region::OVERRIDE`].
    pub source: u32,
}

impl Region {
    /// The source of a region that firmware did not list: a command line did.
    pub const OVERRIDE: u32 = u32::MAX;

    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        kind: MemoryKind::Usable, // zero
        attributes: Attributes::NONE,
        source: 0,
    };
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.range, self.kind)?;
        if self.attributes.more_reliable {
            f.write_str(" (more reliable)")?;
        }
        if self.attributes.special_purpose {
            f.write_str(" (special purpose)")?;
        }
        Ok(())
    }
}
