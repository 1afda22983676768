//! Memory that stays when boot services end: [`Pages`].

use core::ptr::NonNull;

use uefi::boot::{self, AllocateType, MemoryType};

use super::error::StartError;

/// The image is entered without paging, in 32-bit mode.
const LAST: u64 = (4 << 30) - 1;
const PAGE_BYTES: usize = 4096;

/// Pages below 4 GiB, zeroed, never freed.
pub(super) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// At least `bytes`, anywhere below 4 GiB.
    pub(super) fn new(
        what: &'static str,
        bytes: usize,
        kind: MemoryType,
    ) -> Result<Self, StartError> {
        Self::allocate(AllocateType::MaxAddress(LAST), bytes, kind).map_err(|error| {
            StartError::Memory {
                what,
                bytes,
                status: error.status(),
            }
        })
    }

    /// For the image, at `place`.
    pub(super) fn at(place: u64, bytes: usize) -> uefi::Result<Self> {
        Self::allocate(AllocateType::Address(place), bytes, MemoryType::LOADER_CODE)
    }

    fn allocate(place: AllocateType, bytes: usize, kind: MemoryType) -> uefi::Result<Self> {
        let count = bytes.div_ceil(PAGE_BYTES);
        let start = boot::allocate_pages(place, kind, count)?;
        let bytes = count * PAGE_BYTES;
        // SAFETY: so many bytes were just allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start, bytes })
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: allocated for this alone, written, and never freed.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}
