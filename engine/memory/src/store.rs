//! A growable list in caller-provided memory: the engine has no heap.
//!
//! The caller decides the capacity. When it is too small, nothing is dropped
//! in silence: [`Store::push`] fails with [`Full`], and code that fills a store
//! counts on, so that its error states how many slots are needed.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// A list in a borrowed slice.
///
/// ```
/// use firstlight_memory::store::Store;
/// let mut memory = [0; 2];
/// let mut store = Store::new(&mut memory);
/// store.push(7).unwrap();
/// store.push(9).unwrap();
/// assert_eq!(*store, [7, 9]);
/// assert_eq!(store.push(11).unwrap_err().needed, 3);
/// ```
#[derive(Debug)]
pub struct Store<'s, T> {
    slots: &'s mut [T],
    len: usize,
}

/// The storage is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Slots provided.
    pub capacity: usize,
    /// Slots that would have been enough for what was seen so far.
    pub needed: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "storage for {} entries is too small: {} are needed",
            self.capacity, self.needed
        )
    }
}

impl core::error::Error for Full {}

impl<'s, T: Copy> Store<'s, T> {
    /// An empty list over `slots`.
    pub const fn new(slots: &'s mut [T]) -> Self {
        Self { slots, len: 0 }
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// [`Full`] when the storage is used up; the list is unchanged.
    pub fn push(&mut self, value: T) -> Result<(), Full> {
        let capacity = self.slots.len();
        let slot = self.slots.get_mut(self.len).ok_or(Full {
            capacity,
            needed: capacity + 1,
        })?;
        *slot = value;
        self.len += 1;
        Ok(())
    }

    /// Inserts `value` before position `at`.
    ///
    /// # Panics
    /// When `at` is larger than the length.
    ///
    /// # Errors
    /// [`Full`] when the storage is used up; the list is unchanged.
    pub fn insert(&mut self, at: usize, value: T) -> Result<(), Full> {
        if self.len == self.slots.len() {
            return Err(Full {
                capacity: self.len,
                needed: self.len + 1,
            });
        }
        self.slots.copy_within(at..self.len, at + 1);
        self.slots[at] = value;
        self.len += 1;
        Ok(())
    }

    /// Removes the entries `from..to`.
    ///
    /// # Panics
    /// When the range ends before it starts or beyond the length.
    pub fn remove(&mut self, from: usize, to: usize) {
        // Removing none moves none: what calls for that often must not cost the whole list.
        if from != to {
            self.slots.copy_within(to..self.len, from);
            self.len -= to - from;
        }
    }

    /// Removes every entry from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The entries, borrowed for as long as the storage.
    pub fn into_slice(self) -> &'s mut [T] {
        &mut self.slots[..self.len]
    }
}

impl<T> Deref for Store<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.slots[..self.len]
    }
}

impl<T> DerefMut for Store<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.slots[..self.len]
    }
}
