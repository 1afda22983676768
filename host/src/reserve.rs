//! Reserved address space: where the engine's metadata lives on Linux.
//!
//! A [`Reservation`] is a private anonymous mapping with no swap set aside for
//! it. It reads as zeros and costs nothing until it is written, page by page,
//! so that [`Reservation::resident_bytes`], counted by the operating system,
//! shows which pages the engine touched. Transparent huge pages are off:
//! otherwise one written byte would count as 2 MiB.

use std::io;
use std::ptr::{self, NonNull};

/// Bytes that one call of `mincore` covers: 64 Ki pages, one byte of result each.
const MINCORE_WINDOW_BYTES: usize = 256 << 20;

/// Zeroed address space, unmapped when dropped.
///
/// ```
/// use firstlight_host::reserve::Reservation;
/// let mut space = Reservation::new(64 << 20)?;
/// assert_eq!(space.resident_bytes()?, 0);
/// space.as_mut_slice()[5 << 20] = 1;
/// assert_eq!(space.resident_bytes()?, firstlight_host::reserve::page_bytes() as u64);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    /// The whole mapping, which may begin before `base`.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
}

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

// SAFETY: the mapping belongs to this value alone and is valid from any
// thread of the process; access to its bytes goes through `&self` / `&mut self`.
unsafe impl Send for Reservation {}
// SAFETY: as above; `&Reservation` gives no access to the bytes.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves at least `bytes` bytes, rounded up to whole pages; they read as zero.
    ///
    /// # Errors
    /// The operating system's refusal (for example an address space limit), or
    /// `InvalidInput` when `bytes` is more than can be addressed.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let page = page_bytes();
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mapped = map(bytes)?;
        // SAFETY: the range is exactly the mapping made above; the advice
        // changes no content. A kernel without huge pages refuses it, which has
        // the same effect.
        let _ = unsafe { libc::madvise(mapped.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Self {
            base: mapped,
            bytes,
            mapped,
            mapped_bytes: bytes,
        })
    }

    /// Reserves huge pages where the kernel provides them, aligned to them: memory
    /// to measure with, as a kernel maps its own.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn huge(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_BYTES);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let mapped_bytes = bytes.checked_add(HUGE_BYTES);
        let mapped_bytes = mapped_bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let mapped = map(mapped_bytes)?;
        let skip = mapped.align_offset(HUGE_BYTES);
        // SAFETY: less than a huge page into a mapping that is longer by one.
        let base = unsafe { mapped.add(skip) };
        // SAFETY: inside the mapping; the advice changes no content, and may be refused.
        let _ = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self {
            base,
            bytes,
            mapped,
            mapped_bytes,
        })
    }

    /// Length in bytes, a multiple of [`page_bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, page-aligned.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable, zeroed by the kernel,
        // `bytes` long, at most isize::MAX, and borrowed mutably through self.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// The first byte, for callers that divide the mapping themselves; valid until the
    /// reservation is dropped.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether each page, in order, is resident; `visit` gets windows of them.
    fn each_window(&self, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        let page = page_bytes();
        let mut states = vec![0u8; self.bytes.min(MINCORE_WINDOW_BYTES) / page];
        let mut at = 0;
        while at < self.bytes {
            let length = (self.bytes - at).min(MINCORE_WINDOW_BYTES);
            // SAFETY: at..at+length lies inside the mapping and starts on a
            // page; `states` has a byte for each of its pages.
            let result = unsafe {
                libc::mincore(
                    self.base.as_ptr().add(at).cast(),
                    length,
                    states.as_mut_ptr(),
                )
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
            visit(&states[..length / page]);
            at += length;
        }
        Ok(())
    }

    /// Bytes of the mapping that are in memory now, counted by `mincore`.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let mut pages = 0u64;
        self.each_window(|states| {
            pages += states.iter().map(|state| u64::from(state & 1)).sum::<u64>();
        })?;
        Ok(pages * page_bytes() as u64)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping this value owns, and no
        // reference to it outlives the value.
        let _ = unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A private mapping of `bytes` bytes, a multiple of the page size.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    if isize::try_from(bytes).is_err() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an anonymous mapping at an address of the kernel's choice
    // touches no existing mapping.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// The operating system's page size in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zero_and_counts_only_what_was_written() {
        let mut space = Reservation::new(1 << 30).unwrap();
        assert_eq!(space.bytes(), 1 << 30);
        assert_eq!(space.resident_bytes().unwrap(), 0);
        let page = page_bytes();
        for at in [0, 7 * page + 11, MINCORE_WINDOW_BYTES, (1 << 30) - 1] {
            assert_eq!(space.as_mut_slice()[at], 0);
            space.as_mut_slice()[at] = 0xa5;
        }
        assert_eq!(space.resident_bytes().unwrap(), 4 * page as u64);
        assert_eq!(space.as_mut_slice()[7 * page + 11], 0xa5);
    }

    #[test]
    fn huge_is_aligned() {
        let mut space = Reservation::huge(3 << 20).unwrap();
        assert_eq!(space.bytes(), 4 << 20);
        assert!(space.base().addr().get().is_multiple_of(HUGE_BYTES));
        space.as_mut_slice()[(4 << 20) - 1] = 1;
        assert!(Reservation::huge(usize::MAX).is_err());
    }

    #[test]
    fn rounds_up_to_a_page_and_refuses_the_impossible() {
        assert_eq!(Reservation::new(0).unwrap().bytes(), page_bytes());
        assert_eq!(
            Reservation::new(page_bytes() + 1).unwrap().bytes(),
            2 * page_bytes()
        );
        assert!(Reservation::new(usize::MAX).is_err());
        assert!(Reservation::new(isize::MAX as usize - 4096).is_err());
    }
}
