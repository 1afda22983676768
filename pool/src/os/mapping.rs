//! A file mapped into this process, shared with all processes that hold the file.
//!
//! Others may change the bytes at any moment, so there is no slice of them to
//! be had: they are copied in and out. A process that can shorten the file can make
//! access fail with SIGBUS, which ends this one: map only files that no other
//! else can shorten.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Part of a file in this process' address space; unmapped when dropped.
///
/// ```
/// use firstlight_pool::os::{mapping::Mapping, memory_file};
/// let file = memory_file::unnamed(c"example", None)?;
/// memory_file::set_length(&file, 1 << 20)?;
/// let mut mapping = Mapping::new(&file, 0, 1 << 20)?;
/// mapping.write(70_000, &[1, 2, 3]);
/// assert_eq!(mapping.first_nonzero(), Some(70_000));
/// mapping.zero();
/// assert_eq!(mapping.first_nonzero(), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes in whole pages of the file: a part of a huge page cannot be unmapped.
    span_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid from any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` of the file from `start` on, for reading and writing.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn new(file: impl AsFd, start: u64, bytes: usize) -> io::Result<Self> {
        Self::with(file, start, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps them for nothing: huge pages are reserved for it, and stay so in the file when it is unmapped.
    pub(super) fn without_access(file: impl AsFd, start: u64, bytes: usize) -> io::Result<Self> {
        Self::with(file, start, bytes, ProtFlags::empty())
    }

    fn with(file: impl AsFd, start: u64, bytes: usize, access: ProtFlags) -> io::Result<Self> {
        let page = usize::try_from(rustix::fs::fstat(&file)?.st_blksize).unwrap_or(1);
        let span_bytes = bytes
            .checked_next_multiple_of(page.max(1))
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a mapping at an address of the kernel's choice touches no
        // existing one.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                span_bytes,
                access,
                MapFlags::SHARED,
                file,
                start,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            bytes,
            span_bytes,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes mapped.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the kernel put a zeroed page wherever the file has none, without
    /// changing a byte of those it has.
    ///
    /// # Errors
    /// The operating system's refusal, for example of memory.
    pub fn populate(&self) -> io::Result<()> {
        // Where the kernel makes huge pages only on request, this requests them;
        // refused, they are small, or huge anyway.
        // SAFETY: the range is exactly this mapping, and the advice changes no byte of it.
        let _ = unsafe {
            rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage)
        };
        // SAFETY: the range is exactly this mapping, and populating changes no byte of it.
        unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().cast(),
                self.bytes,
                Advice::LinuxPopulateWrite,
            )
        }?;
        Ok(())
    }

    /// Copies `from` to offset `at`.
    ///
    /// # Panics
    /// Where that lies outside of the mapping.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let end = at.checked_add(from.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "outside");
        // SAFETY: at..at + len lies in the mapping, which overlaps no slice of ours.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(at), from.len()) };
    }

    /// Copies from offset `at` into `to`.
    ///
    /// # Panics
    /// Where that lies outside of the mapping.
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let end = at.checked_add(to.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "outside");
        // SAFETY: at..at + len lies in the mapping, which overlaps no slice of ours.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
    }

    /// Zeroes all of it with stores that go past the caches.
    pub fn zero(&mut self) {
        // SAFETY: the mapping is `bytes` writable bytes that this process reaches
        // through this value only; the slice is written, never read, so what
        // others make of the bytes meanwhile is never relied on.
        let all = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) };
        crate::os::zero::zero(all);
    }

    /// Where the first byte that is not zero stands.
    #[must_use]
    pub fn first_nonzero(&self) -> Option<usize> {
        let mut part = vec![0; 1 << 16];
        let mut at = 0;
        while at < self.bytes {
            let length = part.len().min(self.bytes - at);
            let part = &mut part[..length];
            self.read(at, part);
            if let Some(found) = crate::os::zero::first_nonzero(part) {
                return Some(at + found);
            }
            at += length;
        }
        None
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping this value owns.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.span_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::memory_file;

    #[test]
    fn what_one_writes_the_other_reads_until_it_is_zeroed() {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, 1 << 20).unwrap();
        let mut one = Mapping::new(&file, 0, 1 << 20).unwrap();
        let other = Mapping::new(&file, 4096, 4096).unwrap();
        one.write(4097, b"secret");
        let mut seen = [0; 6];
        other.read(1, &mut seen);
        assert_eq!(&seen, b"secret");
        assert_eq!(one.first_nonzero(), Some(4097));
        one.zero();
        assert_eq!(one.first_nonzero(), None);
        assert_eq!(other.first_nonzero(), None);
    }

    #[test]
    fn a_part_of_a_huge_page_is_unmapped_with_its_page() {
        let Ok(_set_aside) = crate::os::hugepages::SetAside::new(2 << 20, 1) else {
            crate::os::need::skip("hugepages", "none can be set aside");
            return;
        };
        let file = memory_file::unnamed(c"test", Some(2 << 20)).unwrap();
        memory_file::set_length(&file, 2 << 20).unwrap();
        let opened = memory_file::reopen(&file).unwrap();
        let mapping = Mapping::new(&opened, 0, 4096).unwrap();
        let other = memory_file::reopen(&file).unwrap();
        drop(opened);
        assert!(!memory_file::has_no_other_holder(&other).unwrap());
        drop(mapping);
        assert!(memory_file::has_no_other_holder(&other).unwrap());
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_read_outside() {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, 4096).unwrap();
        let mapping = Mapping::new(&file, 0, 4096).unwrap();
        mapping.read(4090, &mut [0; 7]);
    }
}
