//! What follows in Linux from the size of a page.
//!
//! The engine counts in frames of 4 KiB, and answers about a Linux count in its pages.

use firstlight::addr::{PAGE_BYTES, PAGE_SHIFT, PhysAddr};
use firstlight::layout::{LayoutPolicy, SectionSize};
use firstlight::map::MapEntry;

use super::{Flavour, LayoutInput};
use crate::log::{PageSize, Processor};

/// The pages of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    size: PageSize,
}

impl Pages {
    /// Those of `flavour` on the machine: only Linux on arm64 has others than 4 KiB.
    pub(super) fn of(input: &LayoutInput, flavour: Flavour) -> Self {
        let size = match (flavour.is_linux(), input.processor) {
            (true, Processor::Arm64) => input.page_size,
            _ => PageSize::Kib4,
        };
        Self { size }
    }

    /// Bytes of a page.
    pub(super) const fn bytes(self) -> u64 {
        self.size.bytes()
    }

    /// Pages in so many frames, or the number of the page that begins at this frame.
    pub(super) const fn in_frames(self, frames: u64) -> u64 {
        frames >> (self.size.shift() - PAGE_SHIFT)
    }

    /// log2 of the pages in `bytes`, negative below a page.
    pub(super) const fn order(self, bytes: u64) -> i32 {
        match bytes.checked_ilog2() {
            Some(shift) => shift.cast_signed() - self.size.shift().cast_signed(),
            None => 0,
        }
    }

    /// `entry` without parts of pages; nothing of it, if it has no whole one.
    pub(super) fn whole(self, entry: MapEntry) -> MapEntry {
        // Parts of the engine's own frames are its own business, with a notice.
        if self.bytes() == PAGE_BYTES || !entry.kind.is_memory() {
            return entry;
        }
        let end = entry.start.saturating_add(entry.bytes);
        let start = PhysAddr::new(entry.start).align_up(self.bytes());
        let start = start.map_or(end, PhysAddr::get);
        let end = PhysAddr::new(end).align_down(self.bytes()).get();
        MapEntry {
            start,
            bytes: end.saturating_sub(start),
            ..entry
        }
    }

    /// Largest block of the page allocator: of 2^10 pages, 2^11 or 2^13.
    pub(super) const fn largest_block_bytes(self) -> u64 {
        match self.size {
            PageSize::Kib4 => 4 << 20,
            PageSize::Kib16 => 32 << 20,
            PageSize::Kib64 => 512 << 20,
        }
    }

    /// What an entry of the second level maps: as many pages as a table has entries of 8 bytes.
    pub(super) const fn huge_bytes(self) -> u64 {
        self.bytes() * self.bytes() / 8
    }

    /// A section.
    const fn section(self) -> SectionSize {
        match self.size {
            PageSize::Kib4 | PageSize::Kib16 => SectionSize::SMALLEST,
            PageSize::Kib64 => match SectionSize::new(512 << 20) {
                Some(section) => section,
                None => SectionSize::SMALLEST,
            },
        }
    }

    /// Bytes of a section.
    pub(super) const fn section_bytes(self) -> u64 {
        self.section().frames() * PAGE_BYTES
    }

    /// `policy` in units of a kernel with these pages.
    pub(super) const fn policy(self, policy: LayoutPolicy) -> LayoutPolicy {
        let section = self.section();
        LayoutPolicy {
            eager_frames: section.frames(),
            movable_align_frames: self.largest_block_bytes() / PAGE_BYTES,
            section,
            ..policy
        }
    }
}

#[cfg(test)]
mod tests {
    use firstlight::map::MemoryKind;

    use super::super::layout_of;
    use super::*;
    use crate::log::read;

    /// What Linux's rules give by hand: no kernel of 64 KiB is among the recorded boots.
    #[test]
    fn pages_of_64_kib_have_larger_sections_blocks_and_steps() {
        let log = "Linux version 6.12.0-55.el10.aarch64+64k (x@y) #1 SMP\n\
                   Kernel command line: kernelcore=3000M\n\
                   Early memory node ranges\n\
                   \x20 node   0: [mem 0x0000000040000000-0x000000023fffffff]\n\
                   smp: Brought up 1 node, 1 CPU\n";
        let input = LayoutInput::from_log(&read(log.as_bytes()));
        let answer = layout_of(&input, Flavour::Linux6_12).unwrap();
        assert_eq!((answer.page_bytes, answer.max_pfn), (65_536, 0x2_4000));
        let present: u64 = answer.zones.iter().map(|zone| zone.present).sum();
        assert_eq!(present, 131_072);
        assert_eq!(
            (answer.memory_block_size, answer.memory_blocks),
            (512 << 20, 16)
        );
        // 1 GiB and 3000 MiB, rounded up to 512 MiB.
        assert_eq!(answer.movable_start[&0], "0x100000000");
        let table = |name: &str| {
            let table = answer.hash[name];
            (table.entries, table.order)
        };
        assert_eq!(table("dentry"), (1 << 20, 7));
        assert_eq!(table("mount"), (1 << 14, 1));
        assert_eq!(table("futex"), (256, -2));
        // Ours has pages of 4 KiB, whatever the log's kernel had.
        let ours = layout_of(&input, Flavour::Firstlight).unwrap();
        assert_eq!((ours.page_bytes, ours.max_pfn), (4096, 0x24_0000));
    }

    #[test]
    fn only_whole_pages_are_memory() {
        let input = LayoutInput {
            processor: Processor::Arm64,
            page_size: PageSize::Kib16,
            ..LayoutInput::default()
        };
        let pages = Pages::of(&input, Flavour::Linux6_12);
        for (start, bytes, whole) in [
            (0x4000, 0x8000, (0x4000, 0x8000)),
            (0x5000, 0x8000, (0x8000, 0x4000)),
            (0x5000, 0x3000, (0x8000, 0)),
            (0x5000, 0x1000, (0x8000, 0)),
            (u64::MAX - 5, u64::MAX, (u64::MAX, 0)),
        ] {
            let entry = pages.whole(MapEntry::new(start, bytes, MemoryKind::Usable));
            assert_eq!((entry.start, entry.bytes), whole, "{start:#x}");
        }
        let reserved = MapEntry::new(0x5000, 0x1000, MemoryKind::Reserved);
        assert_eq!(pages.whole(reserved), reserved);
    }
}
