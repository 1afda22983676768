//! The PC memory map: 20-byte entries of base, length and type, as BIOS call
//! E820 gives them and boot protocols pass them on.
//!
//! [`entries`] yields what [`crate::map::MemoryMap::build`] takes. Nothing is
//! checked here but the table's size: overlaps, overflows and partial pages are
//! resolved by the map.
//!
//! Types: ACPI specification, table 15.4; 12 and 0xefffffff are in use but not
//! in the standard.

use core::fmt;

use super::bytes::{u32_le, u64_le};
use crate::map::{Attributes, Doubt, MapEntry, MemoryKind};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

/// The table does not end where an entry does: something cut it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialEntry {
    /// Bytes in the table.
    pub table_bytes: usize,
    /// Bytes of an entry.
    pub entry_bytes: usize,
}

impl fmt::Display for PartialEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table_bytes,
            entry_bytes,
        } = self;
        write!(
            f,
            "memory map of {table_bytes} bytes is not a whole number of {entry_bytes}-byte entries"
        )
    }
}

impl core::error::Error for PartialEntry {}

/// The entries of `table`, in its order.
///
/// ```
/// use firstlight_boot::firmware::e820;
/// use firstlight_frames::map::{MapEntry, MemoryKind};
/// let mut table = [0u8; 20];
/// table[9] = 0x10; // 0x1000 bytes
/// table[16] = 1;
/// let entries: Vec<MapEntry> = e820::entries(&table).unwrap().collect();
/// assert_eq!(entries, [MapEntry::new(0, 0x1000, MemoryKind::Usable)]);
/// assert!(e820::entries(&table[..19]).is_err());
/// ```
///
/// # Errors
/// [`PartialEntry`] when the table is cut short.
pub fn entries(table: &[u8]) -> Result<impl Iterator<Item = MapEntry> + Clone, PartialEntry> {
    entries_of(table, ENTRY_BYTES)
}

/// The entries of a table whose entries are followed by something else, `entry_bytes`
/// apart (at least [`ENTRY_BYTES`]).
pub(super) fn entries_of(
    table: &[u8],
    entry_bytes: usize,
) -> Result<impl Iterator<Item = MapEntry> + Clone, PartialEntry> {
    let chunks = table.chunks_exact(entry_bytes);
    if !chunks.remainder().is_empty() {
        return Err(PartialEntry {
            table_bytes: table.len(),
            entry_bytes,
        });
    }
    Ok(chunks.filter_map(|entry| {
        Some(typed(
            u64_le(entry, 0)?,
            u64_le(entry, 8)?,
            u32_le(entry, 16)?,
        ))
    }))
}

/// An entry of the given type number; an unknown one is taken as reserved and
/// marked so.
pub const fn typed(start: u64, bytes: u64, number: u32) -> MapEntry {
    let kind = match number {
        1 => MemoryKind::Usable,
        // 6 is memory the firmware has switched off.
        2 | 6 => MemoryKind::Reserved,
        3 => MemoryKind::AcpiReclaimable,
        4 => MemoryKind::AcpiNvs,
        5 => MemoryKind::Unusable,
        // 12 was in use before the standard settled on 7.
        7 | 12 => MemoryKind::Persistent,
        0xefff_ffff => {
            let attributes = Attributes {
                special_purpose: true,
                ..Attributes::NONE
            };
            return MapEntry::new(start, bytes, MemoryKind::SoftReserved)
                .with_attributes(attributes);
        }
        _ => {
            return MapEntry::new(start, bytes, MemoryKind::Reserved)
                .with_doubt(Doubt::UnknownType(number));
        }
    };
    MapEntry::new(start, bytes, kind)
}
