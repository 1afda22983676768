//! Which processor and which memory belongs to which proximity domain:
//! [`Srat`].

use super::error::{AcpiError, Fault, Signature};
use super::table::{RawEntries, RawEntry, Table};
use crate::firmware::bytes::{array, u32_le, u64_le};

/// Header and twelve reserved bytes.
const FIXED_BYTES: usize = 48;

/// The system resource affinity table, read in place.
///
/// ```
/// # use firstlight_boot::firmware::acpi::AcpiError;
/// use firstlight_boot::firmware::acpi::{Srat, SratEntry};
/// fn memory_of(table: &[u8], wanted: u32) -> Result<u64, AcpiError> {
///     let mut sum = 0u64;
///     for entry in Srat::parse(table)?.entries() {
///         if let SratEntry::Memory { domain, bytes, enabled: true, .. } = entry? {
///             sum = sum.saturating_add(if domain == wanted { bytes } else { 0 });
///         }
///     }
///     Ok(sum)
/// }
/// assert!(memory_of(b"SLIT", 0).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Srat<'a> {
    table: Table<'a>,
}

/// One entry of the SRAT; ranges are not checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SratEntry {
    /// A processor, by APIC id (type 0, 8 bits) or x2APIC id (type 2); on Arm (type 3) by the
    /// processor UID that the MADT gives its GIC CPU interface
    /// ([`MadtGicc`](super::MadtGicc)).
    Cpu {
        /// Its interrupt controller's id, or on Arm its processor UID.
        apic_id: u32,
        /// Its proximity domain.
        domain: u32,
        /// Whether the entry counts; many firmwares list empty sockets.
        enabled: bool,
    },
    /// A range of memory (type 1).
    Memory {
        /// Its proximity domain.
        domain: u32,
        /// First byte.
        base: u64,
        /// Length in bytes; base plus length may wrap.
        bytes: u64,
        /// Whether the entry counts.
        enabled: bool,
        /// Whether memory may come and go here.
        hotplug: bool,
        /// Whether it keeps its content without power.
        non_volatile: bool,
    },
    /// Another type: interrupt translation, generic initiator, generic port,
    /// ...
    Other {
        /// The type.
        kind: u8,
        /// Where it starts in the table.
        offset: usize,
        /// Its length.
        bytes: u8,
    },
}

impl<'a> Srat<'a> {
    /// Checks header and length.
    ///
    /// # Errors
    /// [`AcpiError::WrongSignature`] or [`AcpiError::Truncated`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AcpiError> {
        Ok(Self {
            table: Table::expect(bytes, Signature::SRAT, FIXED_BYTES)?,
        })
    }

    /// Table revision. Before 2 a proximity domain has 8 bits and the bytes
    /// beside it mean nothing; from 2 on it has 32.
    pub const fn revision(&self) -> u8 {
        self.table.revision()
    }

    /// The entries in the table's order. After an error the next entries still
    /// come, as long as the bad one says where they are.
    pub const fn entries(&self) -> SratEntries<'a> {
        SratEntries {
            raw: RawEntries::new(&self.table, FIXED_BYTES),
            wide: self.table.revision() >= 2,
        }
    }

    /// A wrong checksum, if it has one.
    pub fn checksum_fault(&self) -> Option<Fault> {
        self.table.checksum_fault()
    }
}

/// See [`Srat::entries`].
#[derive(Clone, Debug)]
pub struct SratEntries<'a> {
    raw: RawEntries<'a>,
    /// Whether proximity domains have 32 bits.
    wide: bool,
}

impl Iterator for SratEntries<'_> {
    type Item = Result<SratEntry, AcpiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.raw.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        Some(match entry.kind {
            0 => local_apic(&entry, self.wide).ok_or(entry.too_short(16)),
            1 => memory(&entry, self.wide).ok_or(entry.too_short(40)),
            2 => local_x2apic(&entry).ok_or(entry.too_short(24)),
            3 => gicc(&entry).ok_or(entry.too_short(18)),
            kind => Ok(SratEntry::Other {
                kind,
                offset: entry.offset,
                bytes: entry.length,
            }),
        })
    }
}

/// Type 0. The domain's low byte came first, in 1.0; its upper three were put
/// where there was room.
fn local_apic(entry: &RawEntry<'_>, wide: bool) -> Option<SratEntry> {
    let fixed: [u8; 16] = array(entry.bytes, 0)?;
    let upper = if wide {
        [fixed[9], fixed[10], fixed[11]]
    } else {
        [0; 3]
    };
    let domain = u32::from_le_bytes([fixed[2], upper[0], upper[1], upper[2]]);
    Some(SratEntry::Cpu {
        apic_id: fixed[3].into(),
        domain,
        enabled: u32_le(&fixed, 4)? & 1 != 0,
    })
}

/// Type 1.
fn memory(entry: &RawEntry<'_>, wide: bool) -> Option<SratEntry> {
    let fixed: [u8; 40] = array(entry.bytes, 0)?;
    let domain = u32_le(&fixed, 2)?;
    let flags = u32_le(&fixed, 28)?;
    Some(SratEntry::Memory {
        domain: if wide { domain } else { domain & 0xff },
        base: u64_le(&fixed, 8)?,
        bytes: u64_le(&fixed, 16)?,
        enabled: flags & 1 != 0,
        hotplug: flags & 2 != 0,
        non_volatile: flags & 4 != 0,
    })
}

/// Type 2, which came with revision 3: always 32 bits.
fn local_x2apic(entry: &RawEntry<'_>) -> Option<SratEntry> {
    let fixed: [u8; 24] = array(entry.bytes, 0)?;
    let enabled = u32_le(&fixed, 12)? & 1 != 0;
    Some(SratEntry::Cpu {
        apic_id: u32_le(&fixed, 8)?,
        domain: u32_le(&fixed, 4)?,
        enabled,
    })
}

/// Type 3, which came with revision 3.
fn gicc(entry: &RawEntry<'_>) -> Option<SratEntry> {
    let fixed: [u8; 18] = array(entry.bytes, 0)?;
    Some(SratEntry::Cpu {
        apic_id: u32_le(&fixed, 6)?,
        domain: u32_le(&fixed, 2)?,
        enabled: u32_le(&fixed, 10)? & 1 != 0,
    })
}
