//! What the driver of a balloon shares with the device: [`SharedMemory`].

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use super::Statistics;
use crate::virtio::Ring;

/// Most page numbers of one buffer.
pub(super) const MOST_PAGES: usize = 1024;
/// A tag and a value.
const STATISTIC_BYTES: usize = 10;
/// Free, all, available.
const TAGS: [u16; 3] = [4, 5, 6];

/// Rings of four queues and two buffers. It begins on a page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SharedMemory {
    pub(super) rings: [Ring; 4],
    pub(super) pages: [AtomicU32; MOST_PAGES],
    statistics: [AtomicU8; STATISTIC_BYTES * TAGS.len()],
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedMemory {
    pub(super) const PAGES: u64 = offset_of!(Self, pages) as u64;
    pub(super) const STATISTICS: u64 = offset_of!(Self, statistics) as u64;

    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            rings: [const { Ring::new() }; 4],
            pages: [const { AtomicU32::new(0) }; MOST_PAGES],
            statistics: [const { AtomicU8::new(0) }; STATISTIC_BYTES * TAGS.len()],
        }
    }

    /// Writes statistics in the device's form; their size.
    pub(super) fn write(&self, statistics: Statistics) -> u32 {
        let values = [
            statistics.free_bytes,
            statistics.total_bytes,
            statistics.available_bytes,
        ];
        let bytes = TAGS.into_iter().zip(values).flat_map(|(tag, value)| {
            let (tag, value) = (tag.to_le_bytes(), value.to_le_bytes());
            tag.into_iter().chain(value)
        });
        let mut written = 0;
        for (slot, byte) in self.statistics.iter().zip(bytes) {
            slot.store(byte, Relaxed);
            written += 1;
        }
        written
    }

    /// A byte of the statistics.
    #[cfg(test)]
    pub(super) fn statistics_byte(&self, at: usize) -> u8 {
        self.statistics[at].load(Relaxed)
    }
}
