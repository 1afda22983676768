//! The engine's platform on Linux: physical ranges that the engine reserves for its
//! tables are backed by reserved address space, one after the other.
//!
//! The machine's memory is not touched: of a physical range only the length matters
//! here.

use crate::reserve::{Reservation, page_bytes};
use firstlight::addr::PhysRange;
use firstlight::platform::Platform;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space for all metadata of one machine.
///
/// ```
/// use firstlight::addr::PhysRange;
/// use firstlight::platform::Platform;
/// use firstlight_host::metadata::MetadataSpace;
///
/// let space = MetadataSpace::new(1 << 20)?;
/// let tables = PhysRange::with_size(0x7fff_0000, 0x8000).unwrap();
/// assert!(space.map(tables).is_some());
/// assert_eq!(space.reservation().resident_bytes()?, 0);
/// let too_much = PhysRange::with_size(0x7000_0000, 1 << 20).unwrap();
/// assert!(space.map(too_much).is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct MetadataSpace {
    space: Reservation,
    /// Bytes mapped so far, from the start; only grows while the space is borrowed.
    used: AtomicUsize,
    /// Nothing was written before it was mapped.
    is_zero: bool,
}

impl MetadataSpace {
    /// Space for `bytes` bytes of tables.
    ///
    /// # Errors
    /// The operating system's refusal to reserve so much address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self {
            space: Reservation::new(bytes)?,
            used: AtomicUsize::new(0),
            is_zero: true,
        })
    }

    /// Over `space`, which may hold anything.
    #[must_use]
    pub fn over(space: Reservation) -> Self {
        Self {
            space,
            used: AtomicUsize::new(0),
            is_zero: false,
        }
    }

    /// The address space, which counts how much of it is resident.
    #[must_use]
    pub fn reservation(&self) -> &Reservation {
        &self.space
    }

    /// The bytes themselves; no mapped range is in use while this borrow lasts.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.is_zero = false;
        self.space.as_mut_slice()
    }

    /// Begins again over the same pages. Their content stays.
    pub fn reset(&mut self) {
        *self.used.get_mut() = 0;
        self.is_zero = false;
    }
}

// SAFETY: every call maps bytes that no earlier call did (`used` only grows while the
// space is borrowed), inside a readable and writable private mapping that lives as long
// as `self`; nothing else in this type gives access to them except through `&mut self`,
// after which `is_zero` is false.
unsafe impl Platform for MetadataSpace {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(range.bytes())
            .ok()?
            .checked_next_multiple_of(page_bytes())?;
        let take = |used: usize| {
            used.checked_add(bytes)
                .filter(|end| *end <= self.space.bytes())
        };
        let start = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()?;
        // SAFETY: start is below the length of the mapping.
        Some(unsafe { self.space.base().add(start) })
    }

    fn is_zero(&self, _range: PhysRange) -> bool {
        self.is_zero
    }
}
