//! Descriptors of UEFI's memory map that follow each other and are alike, as one: [`merged`].
//!
//! UEFI lists each of its own allocations, a hundred or more, many of them side by side. Made one at once, as
//! firmware wrote them, they need no place in the lists of the way up and no time to sort.
//!
//! Memory of boot services is none that is free, as it would be by the specification: some firmware goes on to
//! use it where it is called later, and it is called when the result is written.

use firstlight::firmware::efi::{Descriptor, MORE_RELIABLE, RUNTIME, SPECIAL_PURPOSE, WRITE_BACK};
use firstlight::map::MapEntry;

/// Conventional memory, and unaccepted one.
const FREE: u32 = 7;
const UNACCEPTED: u32 = 15;
/// Memory of boot services, code and data.
pub const BOOT_SERVICES: [u32; 2] = [3, 4];
/// Memory that is firmware's for ever.
const RESERVED: u32 = 0;
/// Attributes that decide what an entry is.
const DECIDING: u64 = MORE_RELIABLE | RUNTIME | SPECIAL_PURPOSE | WRITE_BACK;

/// Whether what a descriptor has is memory that a processor may keep in its caches, where page tables say that. What
/// firmware reserves may be another world's (TrustZone), whose memory not even a processor that looks ahead may read;
/// memory that is unusable (8) fails when it is read; registers of devices (11, 12) have the attribute on some machines.
///
/// ```
/// use firstlight::firmware::efi::{RUNTIME, WRITE_BACK};
/// use firstlight_image::merged::is_cached;
/// let cached = |kind| is_cached(kind, WRITE_BACK | RUNTIME);
/// assert_eq!((0..16).filter(|kind| cached(*kind)).sum::<u32>(), (1..=7).sum::<u32>() + 9 + 10 + 14);
/// assert!(!is_cached(7, 7));
/// ```
#[must_use]
pub const fn is_cached(kind: u32, attributes: u64) -> bool {
    attributes & WRITE_BACK != 0 && matches!(kind, 1..=7 | 9 | 10 | 14)
}

/// The entries of `descriptors`, with neighbours that are alike made one. What is doubtful is left
/// as it is, to be reported. Memory of a special purpose keeps its borders, which are those of
/// devices.
///
/// ```
/// use firstlight::firmware::efi::{Descriptor, WRITE_BACK};
/// use firstlight::map::{MapEntry, MemoryKind::{Reserved, Usable}};
/// use firstlight_image::merged::merged;
/// let descriptor = |number, start, pages| Descriptor { number, start, pages, attributes: WRITE_BACK };
/// let [code, data] = [descriptor(3, 0, 1), descriptor(4, 4096, 1)];
/// let [loader, free] = [descriptor(2, 8192, 1), descriptor(7, 12288, 2)];
/// let merged: Vec<_> = merged([code, data, loader, free].into_iter()).collect();
/// assert_eq!(merged, [MapEntry::new(0, 8192, Reserved), MapEntry::new(8192, 12288, Usable)]);
/// ```
pub fn merged<I: Iterator<Item = Descriptor>>(descriptors: I) -> Merged<I> {
    Merged {
        descriptors,
        next: None,
    }
}

/// What [`merged`] returns.
#[derive(Clone, Debug)]
pub struct Merged<I> {
    descriptors: I,
    next: Option<Descriptor>,
}

/// What neighbours have to have in common; `None` for what has no neighbours.
fn likeness(descriptor: Descriptor) -> Option<(u32, u64)> {
    let attributes = descriptor.attributes & DECIDING;
    match descriptor.number {
        _ if descriptor.pages == 0 || !descriptor.start.is_multiple_of(4096) => None,
        // Firmware's own, for ever or for as long as it may be called.
        0 | 3..=6 => Some((RESERVED, attributes & MORE_RELIABLE)),
        // The loader's own is free now; what it handed over is reserved.
        1 | 2 | FREE if attributes & !MORE_RELIABLE == WRITE_BACK => Some((FREE, attributes)),
        UNACCEPTED if attributes & SPECIAL_PURPOSE == 0 => Some((UNACCEPTED, attributes)),
        _ => None,
    }
}

/// Where it ends, if that is an address.
fn end(descriptor: Descriptor) -> Option<u64> {
    let bytes = descriptor.pages.checked_mul(4096)?;
    descriptor.start.checked_add(bytes)
}

impl<I: Iterator<Item = Descriptor>> Iterator for Merged<I> {
    type Item = MapEntry;

    fn next(&mut self) -> Option<MapEntry> {
        let mut first = self.next.take().or_else(|| self.descriptors.next())?;
        let Some(kind) = likeness(first) else {
            return Some(first.entry());
        };
        let mut stop = end(first);
        for descriptor in self.descriptors.by_ref() {
            let end = end(descriptor);
            let is_next = stop == Some(descriptor.start) && likeness(descriptor) == Some(kind);
            if !is_next || end.is_none() {
                self.next = Some(descriptor);
                break;
            }
            first.pages += descriptor.pages;
            stop = end;
        }
        first.number = kind.0;
        Some(first.entry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn descriptor(start: u64, pages: u64, number: u32, attributes: u64) -> Descriptor {
        Descriptor {
            number,
            start,
            pages,
            attributes,
        }
    }

    #[test]
    fn only_neighbours_that_are_alike_become_one() {
        let entries = [
            descriptor(0x1000, 1, 7, WRITE_BACK),
            descriptor(0x2000, 1, 1, WRITE_BACK), // the loader's
            descriptor(0x3000, 1, 2, WRITE_BACK),
            descriptor(0x4000, 1, 7, WRITE_BACK | MORE_RELIABLE),
            descriptor(0x5000, 1, 7, WRITE_BACK | MORE_RELIABLE),
            descriptor(0x6000, 1, 7, 0), // cannot be cached: a correction
            descriptor(0x7000, 1, 7, 0),
            descriptor(0x8000, 1, 0, WRITE_BACK), // reserved
            descriptor(0x9000, 1, 3, 0),          // boot services
            descriptor(0xb000, 1, 7, WRITE_BACK), // a hole before it
            descriptor(0xa000, 1, 7, WRITE_BACK), // the wrong order
            descriptor(0xb000, 1, 7, WRITE_BACK | SPECIAL_PURPOSE),
            descriptor(0xc000, 1, 7, WRITE_BACK | SPECIAL_PURPOSE),
            descriptor(0xd000, u64::MAX, 7, WRITE_BACK), // wraps
            descriptor(0xc000, 1, 7, WRITE_BACK),
            descriptor(0xd000, 1, 7, WRITE_BACK | RUNTIME), // firmware's, whatever its type
            descriptor(0xe000, 1, 7, WRITE_BACK | RUNTIME),
            descriptor(0xf000, 1, 15, 0),
            descriptor(0x10000, 1, 15, 0),
            descriptor(0x20000, 1, 7, WRITE_BACK),
            descriptor(0x21000, 0, 7, WRITE_BACK), // nothing: a correction
            descriptor(0x21000, 1, 7, WRITE_BACK),
            descriptor(0x30800, 1, 7, WRITE_BACK), // no page begins there: a correction
            descriptor(0x31800, 1, 7, WRITE_BACK),
        ];
        let merged: Vec<(u64, u64)> = merged(entries.into_iter())
            .map(|entry| (entry.start, entry.bytes))
            .collect();
        let page = |start| (start, 0x1000);
        let expected = [
            (0x1000, 0x3000),
            (0x4000, 0x2000),
            page(0x6000),
            page(0x7000),
            (0x8000, 0x2000),
            page(0xb000),
            page(0xa000),
            page(0xb000),
            page(0xc000),
            (0xd000, u64::MAX),
            page(0xc000),
            page(0xd000),
            page(0xe000),
            (0xf000, 0x2000),
            page(0x20000),
            (0x21000, 0),
            page(0x21000),
            page(0x30800),
            page(0x31800),
        ];
        assert_eq!(merged, expected);
    }
}
