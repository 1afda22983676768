//! [`StaticStorage`]: storage in a `static`, which the first caller gets.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{BootStorage, StartError};

/// [`BootStorage`] as a `static` of a kernel. The first [`StaticStorage::take`] gets it, and keeps it for ever.
///
/// All zero: it lies in `.bss` and takes no space in the kernel's file.
///
/// ```
/// use firstlight_boot::start::{StartError, StaticStorage};
///
/// static STORAGE: StaticStorage<128, 16> = StaticStorage::new();
///
/// assert!(STORAGE.take().is_ok());
/// assert_eq!(STORAGE.take().unwrap_err(), StartError::StorageTaken);
/// ```
pub struct StaticStorage<const RANGES: usize, const NODES: usize> {
    is_taken: AtomicBool,
    storage: UnsafeCell<BootStorage<RANGES, NODES>>,
}

// SAFETY: only the one caller that changed `is_taken` gets to the storage, which is plain data.
unsafe impl<const RANGES: usize, const NODES: usize> Sync for StaticStorage<RANGES, NODES> {}

impl<const RANGES: usize, const NODES: usize> StaticStorage<RANGES, NODES> {
    /// Storage that was not taken.
    pub const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            storage: UnsafeCell::new(BootStorage::EMPTY),
        }
    }

    /// The storage, for the first call alone.
    ///
    /// # Errors
    /// [`StartError::StorageTaken`] from the second call on.
    #[expect(clippy::mut_from_ref, reason = "the first call alone gets it")]
    pub fn take(&'static self) -> Result<&'static mut BootStorage<RANGES, NODES>, StartError> {
        // Relaxed: nothing was written before that the caller would have to see.
        if self.is_taken.swap(true, Ordering::Relaxed) {
            return Err(StartError::StorageTaken);
        }
        // SAFETY: one call alone comes here, as nothing makes `is_taken` false again; the static stays for ever.
        Ok(unsafe { &mut *self.storage.get() })
    }
}

impl<const RANGES: usize, const NODES: usize> Default for StaticStorage<RANGES, NODES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const RANGES: usize, const NODES: usize> fmt::Debug for StaticStorage<RANGES, NODES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticStorage")
            .field("is_taken", &self.is_taken)
            .finish_non_exhaustive()
    }
}
