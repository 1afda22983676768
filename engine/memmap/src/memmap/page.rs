//! A descriptor with what a general-purpose kernel records of a page:
//! [`PageDescriptor`], 64 bytes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Descriptor, SectionPlace};
use crate::node::{NodeId, ZoneKind};

/// Bits of the flags word that are the kernel's to use.
pub const FLAG_BITS: u32 = 20;
/// Bits for the zone, above them.
const ZONE_BITS: u32 = 2;
/// Bits for the node.
const NODE_BITS: u32 = 16;
/// Bits for the section: 2^52 bytes of 128 MiB sections, and one to spare.
const SECTION_BITS: u32 = 26;
const ZONE_SHIFT: u32 = FLAG_BITS;
const NODE_SHIFT: u32 = ZONE_SHIFT + ZONE_BITS;
/// The section is what is left at the top.
const SECTION_SHIFT: u32 = u64::BITS - SECTION_BITS;

const _: () = assert!(NODE_SHIFT + NODE_BITS == SECTION_SHIFT);
const _: () = assert!(size_of::<PageDescriptor>() == 64);
const _: () = assert!(ZoneKind::ALL.len() == 1 << ZONE_BITS);

/// The record of a page frame: one cache line.
///
/// Zero bytes are a free page of node 0, zone DMA, section 0; the template
/// fills in the place. All fields are the kernel's to change but the place.
///
/// ```
/// use firstlight_memmap::memmap::{Descriptor, PageDescriptor, SectionPlace};
/// use firstlight_frames::node::{NodeId, ZoneKind};
///
/// let place = SectionPlace { node: NodeId(3), zone: ZoneKind::Normal, section: 4711 };
/// let page = PageDescriptor::template(place);
/// assert_eq!(page.place(), place);
/// assert_eq!(page.flags(), 0);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct PageDescriptor {
    /// Flags in the lowest [`FLAG_BITS`] bits; above them zone, node, section,
    /// which never change.
    flags: AtomicU64,
    /// Users of the page; 0: free.
    pub references: AtomicU32,
    /// Page tables that map it.
    pub maps: AtomicU32,
    /// List links: next and previous.
    pub links: [AtomicU64; 2],
    /// Its owner: a file's cache, an address space.
    pub owner: AtomicU64,
    /// Which page of its owner it is.
    pub index: AtomicU64,
    /// The owner's own word.
    pub private: AtomicU64,
    /// The account it is charged to.
    pub account: AtomicU64,
}

/// The part of the flags word the kernel may use.
const fn own_flags(word: u64) -> u32 {
    (word & ((1 << FLAG_BITS) - 1)) as u32
}

impl PageDescriptor {
    /// The page's flags.
    pub fn flags(&self) -> u32 {
        own_flags(self.flags.load(Ordering::Relaxed))
    }

    /// Sets flags; bits from [`FLAG_BITS`] on are ignored. Returns the flags before.
    pub fn set_flags(&self, flags: u32, order: Ordering) -> u32 {
        let flags = own_flags(u64::from(flags));
        own_flags(self.flags.fetch_or(u64::from(flags), order))
    }

    /// Clears flags; returns the flags before.
    pub fn clear_flags(&self, flags: u32, order: Ordering) -> u32 {
        let flags = own_flags(u64::from(flags));
        own_flags(self.flags.fetch_and(!u64::from(flags), order))
    }

    /// Where the page lies.
    pub fn place(&self) -> SectionPlace {
        let word = self.flags.load(Ordering::Relaxed);
        let zone = word >> ZONE_SHIFT & ((1 << ZONE_BITS) - 1);
        let node = word >> NODE_SHIFT & ((1 << NODE_BITS) - 1);
        SectionPlace {
            // Both were masked; a zone of two bits is one of four.
            node: NodeId(u16::try_from(node).unwrap_or_default()),
            zone: ZoneKind::ALL
                .into_iter()
                .find(|kind| *kind as u64 == zone)
                .unwrap_or_default(),
            section: word >> SECTION_SHIFT,
        }
    }
}

// SAFETY: 8 + 2 x 4 + 6 x 8 = 64 bytes of atomic integers without padding.
unsafe impl Descriptor for PageDescriptor {
    fn template(place: SectionPlace) -> Self {
        let word = place.section << SECTION_SHIFT
            | u64::from(place.node.0) << NODE_SHIFT
            | (place.zone as u64) << ZONE_SHIFT;
        Self {
            flags: AtomicU64::new(word),
            ..Self::default()
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn flags_and_place_do_not_disturb_each_other() {
        let place = SectionPlace {
            node: NodeId(u16::MAX),
            zone: ZoneKind::Movable,
            section: (1 << 25) - 1,
        };
        let page = PageDescriptor::template(place);
        assert_eq!(page.set_flags(u32::MAX, Ordering::Relaxed), 0);
        assert_eq!(page.flags(), (1 << FLAG_BITS) - 1);
        assert_eq!(page.place(), place);
        assert_eq!(
            page.clear_flags(!1, Ordering::Relaxed),
            (1 << FLAG_BITS) - 1
        );
        assert_eq!((page.flags(), page.place()), (1, place));
    }
}
