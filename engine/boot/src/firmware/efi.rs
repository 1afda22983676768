//! The EFI memory map, as it stands after ExitBootServices.
//!
//! [`entries`] yields what [`crate::map::MemoryMap::build`] takes. The size of a
//! descriptor is firmware's to choose, so it is a parameter.
//!
//! Types and attributes: UEFI specification, chapter 7.2 (`GetMemoryMap`).

use core::fmt;

use super::bytes::{u32_le, u64_le};
use crate::map::{Attributes, Doubt, MapEntry, MemoryKind};

/// What the map counts pages of, whatever the kernel's are: 4 KiB.
const EFI_PAGE_BYTES: u64 = 4096;

/// The least size of a descriptor, in bytes.
pub const DESCRIPTOR_BYTES: usize = 40;

/// Attribute: can be cached write-back.
pub const WRITE_BACK: u64 = 0x8;
/// Attribute: mirrored, or otherwise more reliable than other memory.
pub const MORE_RELIABLE: u64 = 0x1_0000;
/// Attribute: meant for a special purpose.
pub const SPECIAL_PURPOSE: u64 = 0x4_0000;
/// Attribute: firmware's services use it after boot services, whatever its type.
pub const RUNTIME: u64 = 1 << 63;

/// Why a map could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EfiError {
    /// The descriptor size the loader passed cannot be right.
    DescriptorSize {
        /// What it passed; at least [`DESCRIPTOR_BYTES`] expected.
        seen_bytes: usize,
    },
    /// The map does not end where a descriptor does: something cut it.
    PartialDescriptor {
        /// Bytes in the map.
        map_bytes: usize,
        /// Bytes of a descriptor.
        descriptor_bytes: usize,
    },
}

impl fmt::Display for EfiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DescriptorSize { seen_bytes } => {
                write!(
                    f,
                    "EFI memory descriptors of {seen_bytes} bytes, at least {DESCRIPTOR_BYTES} expected"
                )
            }
            Self::PartialDescriptor {
                map_bytes,
                descriptor_bytes,
            } => write!(
                f,
                "EFI memory map of {map_bytes} bytes is not a whole number of {descriptor_bytes}-byte descriptors"
            ),
        }
    }
}

impl core::error::Error for EfiError {}

/// A descriptor of the map, as firmware wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Its type.
    pub number: u32,
    /// Physical address of the first byte.
    pub start: u64,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Attributes.
    pub attributes: u64,
}

impl Descriptor {
    /// The entry of a memory map that it is: [`typed`].
    pub const fn entry(self) -> MapEntry {
        typed(self.start, self.pages, self.number, self.attributes)
    }
}

/// The entries of `map`, in its order.
///
/// ```
/// use firstlight_boot::firmware::efi;
/// use firstlight_frames::map::{MapEntry, MemoryKind};
/// let mut map = [0u8; 48]; // descriptors of 48 bytes, as most firmware has them
/// map[0] = 7; // conventional memory
/// map[24] = 2; // two pages
/// map[32] = 0xf; // all ways of caching
/// let entries: Vec<MapEntry> = efi::entries(&map, 48).unwrap().collect();
/// assert_eq!(entries, [MapEntry::new(0, 0x2000, MemoryKind::Usable)]);
/// ```
///
/// # Errors
/// [`EfiError`] when the size of a descriptor is too small or does not divide
/// the map.
pub fn entries(
    map: &[u8],
    descriptor_size: usize,
) -> Result<impl Iterator<Item = MapEntry> + Clone, EfiError> {
    Ok(descriptors(map, descriptor_size)?.map(Descriptor::entry))
}

/// The descriptors of `map`, in its order.
///
/// # Errors
/// As [`entries`].
pub fn descriptors(
    map: &[u8],
    descriptor_size: usize,
) -> Result<impl Iterator<Item = Descriptor> + Clone, EfiError> {
    if descriptor_size < DESCRIPTOR_BYTES {
        return Err(EfiError::DescriptorSize {
            seen_bytes: descriptor_size,
        });
    }
    let descriptors = map.chunks_exact(descriptor_size);
    if !descriptors.remainder().is_empty() {
        return Err(EfiError::PartialDescriptor {
            map_bytes: map.len(),
            descriptor_bytes: descriptor_size,
        });
    }
    Ok(descriptors.filter_map(|descriptor| {
        // Once: a map has hundreds.
        let fields: &[u8; DESCRIPTOR_BYTES] = descriptor.first_chunk()?;
        Some(Descriptor {
            number: u32_le(fields, 0)?,
            start: u64_le(fields, 8)?,
            pages: u64_le(fields, 24)?,
            attributes: u64_le(fields, 32)?,
        })
    }))
}

/// The entry of one descriptor. A number of pages whose bytes pass 2^64 becomes
/// 2^64 - 1 bytes, which the map clips and reports.
pub const fn typed(start: u64, pages: u64, number: u32, attributes: u64) -> MapEntry {
    let bytes = pages.saturating_mul(EFI_PAGE_BYTES);
    let flags = Attributes {
        more_reliable: attributes & MORE_RELIABLE != 0,
        special_purpose: attributes & SPECIAL_PURPOSE != 0,
    };
    let (kind, doubt) = match number {
        1..=4 | 7 if attributes & RUNTIME != 0 => (MemoryKind::Reserved, None),
        // Loader and boot services are over; conventional memory was free all
        // along.
        1..=4 | 7 if attributes & WRITE_BACK == 0 => {
            (MemoryKind::Reserved, Some(Doubt::NotWriteBack(attributes)))
        }
        7 if flags.special_purpose => (MemoryKind::SoftReserved, None),
        1..=4 | 7 => (MemoryKind::Usable, None),
        // Reserved, runtime services, devices, processor code.
        0 | 5 | 6 | 11..=13 => (MemoryKind::Reserved, None),
        8 => (MemoryKind::Unusable, None),
        9 => (MemoryKind::AcpiReclaimable, None),
        10 => (MemoryKind::AcpiNvs, None),
        14 => (MemoryKind::Persistent, None),
        15 => (MemoryKind::Unaccepted, None),
        _ => (MemoryKind::Reserved, Some(Doubt::UnknownType(number))),
    };
    let mut entry = MapEntry::new(start, bytes, kind).with_attributes(flags);
    entry.doubt = doubt;
    entry
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::addr::{FrameRange, PAGE_BYTES, PhysRange};
    use crate::map::{MemoryMap, Region, ScratchEntry};
    use std::vec::Vec;

    /// Free memory, a page of EFI's that is in use, free memory: with larger pages of the kernel none of these begins
    /// where one does.
    #[test]
    fn a_page_with_a_reserved_part_is_free_for_nothing() {
        let start = (1 << 20) + EFI_PAGE_BYTES;
        let pages = 3 * PAGE_BYTES / EFI_PAGE_BYTES;
        let reserved = start + pages * EFI_PAGE_BYTES;
        let entries = [
            typed(start, pages, 7, WRITE_BACK),
            typed(reserved, 1, 0, WRITE_BACK),
            typed(reserved + EFI_PAGE_BYTES, pages, 7, WRITE_BACK),
        ];
        let (mut scratch, mut regions) = ([ScratchEntry::EMPTY; 3], [Region::default(); 15]);
        let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {});
        let map = map.unwrap();
        let free = map.regions().iter();
        let free: Vec<_> = free
            .filter(|region| region.kind == MemoryKind::Usable)
            .map(|region| region.range)
            .collect();
        let whole = |start: u64| {
            FrameRange::new(
                start.div_ceil(PAGE_BYTES),
                (start + 3 * PAGE_BYTES) / PAGE_BYTES,
            )
        };
        let expected =
            [start, reserved + EFI_PAGE_BYTES].map(|start| whole(start).unwrap().addrs());
        assert_eq!(free, expected);
        let in_use = PhysRange::with_size(reserved, EFI_PAGE_BYTES).unwrap();
        let whole_pages = in_use.outer_frames().addrs();
        assert!(
            free.iter()
                .all(|free| free.intersect(whole_pages).is_empty())
        );
    }
}
