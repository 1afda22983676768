//! A hash table on memory that is zero: [`OpenTable`].
//!
//! *Open addressing, linear probing; a slot of zeros is free.* So a table of any size needs no
//! initialisation, and reads one slot in the common case. Removal moves later slots up, there are
//! no marks of what was removed. Chunks are of one size and need not be neighbours.
#![deny(unsafe_code)]

use core::fmt;
use core::num::NonZeroU64;

/// An odd number near 2^64 over the golden ratio: its product spreads keys in a row over the high bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A key with its value; all zero: free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    key: u64,
    value: u64,
}

impl Slot {
    /// A free one.
    pub const FREE: Self = Self { key: 0, value: 0 };
}

/// The table is full: seven of eight slots are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace {
    /// Keys it has.
    pub keys: u64,
}

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is full with {} keys", self.keys)
    }
}

impl core::error::Error for NoSpace {}

/// Chunks that are no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// How many chunks there are.
    pub chunks: usize,
    /// Slots of the first.
    pub slots: usize,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chunks, slots } = self;
        write!(
            f,
            "{chunks} chunks, the first of {slots} slots, are no table: expected powers of two, and chunks of one size"
        )
    }
}

impl core::error::Error for ShapeError {}

/// Values by key, in chunks of slots. Any `u64` but 0 is a key.
///
/// ```
/// use core::num::NonZeroU64;
/// use firstlight_workers::tables::{OpenTable, Slot};
/// let (mut low, mut high) = ([Slot::FREE; 256], [Slot::FREE; 256]);
/// let mut chunks = [&mut low[..], &mut high[..]];
/// let mut table = OpenTable::new(&mut chunks)?;
/// let key = NonZeroU64::new(0x1234).unwrap();
/// assert_eq!(table.insert(key, 7)?, None);
/// assert_eq!(table.insert(key, 8)?, Some(7));
/// assert_eq!(table.remove(key), Some(8));
/// assert_eq!(table.get(key), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OpenTable<'c, 'm> {
    chunks: &'c mut [&'m mut [Slot]],
    /// log2 of the slots of a chunk.
    chunk_shift: u32,
    /// log2 of all slots.
    shift: u32,
    keys: u64,
}

impl<'c, 'm> OpenTable<'c, 'm> {
    /// A table over `chunks`, all of whose slots are [free](Slot::FREE).
    ///
    /// # Errors
    /// [`ShapeError`]: their number and their size must be powers of two, at least two slots in all.
    pub fn new(chunks: &'c mut [&'m mut [Slot]]) -> Result<Self, ShapeError> {
        let slots = chunks.first().map_or(0, |chunk| chunk.len());
        let error = ShapeError {
            chunks: chunks.len(),
            slots,
        };
        let like = chunks.iter().all(|chunk| chunk.len() == slots);
        let powers = chunks.len().is_power_of_two() && slots.is_power_of_two();
        if !like || !powers || chunks.len() * slots < 2 {
            return Err(error);
        }
        let chunk_shift = slots.ilog2();
        Ok(Self {
            shift: chunk_shift + chunks.len().ilog2(),
            chunk_shift,
            chunks,
            keys: 0,
        })
    }

    /// How many keys there are.
    pub const fn len(&self) -> u64 {
        self.keys
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Slots in all.
    pub const fn slots(&self) -> u64 {
        1 << self.shift
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: NonZeroU64) -> Option<u64> {
        let (_, slot) = self.find(key);
        (slot.key != 0).then_some(slot.value)
    }

    /// Sets the value of `key`, and returns the one before.
    ///
    /// # Errors
    /// [`NoSpace`]: `key` is new, and seven of eight slots are used.
    #[inline]
    pub fn insert(&mut self, key: NonZeroU64, value: u64) -> Result<Option<u64>, NoSpace> {
        let (at, slot) = self.find(key);
        let before = if slot.key == 0 {
            if self.keys >= self.slots() - self.slots().div_ceil(8) {
                return Err(NoSpace { keys: self.keys });
            }
            self.keys += 1;
            None
        } else {
            Some(slot.value)
        };
        self.set(
            at,
            Slot {
                key: key.get(),
                value,
            },
        );
        Ok(before)
    }

    /// Takes `key` out, and returns its value.
    pub fn remove(&mut self, key: NonZeroU64) -> Option<u64> {
        let (mut free, slot) = self.find(key);
        if slot.key == 0 {
            return None;
        }
        self.keys -= 1;
        let mut at = free;
        loop {
            at = self.after(at);
            let next = self.slot(at);
            if next.key == 0 {
                break;
            }
            // It moves up unless its own place lies behind the free slot.
            let distance = at.wrapping_sub(self.place(next.key)) & self.mask();
            if distance >= at.wrapping_sub(free) & self.mask() {
                self.set(free, next);
                free = at;
            }
        }
        self.set(free, Slot::FREE);
        Some(slot.value)
    }

    /// Where `key` is, or the free slot where it would be.
    #[inline]
    fn find(&self, key: NonZeroU64) -> (usize, Slot) {
        let mut at = self.place(key.get());
        loop {
            let slot = self.slot(at);
            if slot.key == key.get() || slot.key == 0 {
                return (at, slot);
            }
            at = self.after(at);
        }
    }

    /// The slot that `key` begins at.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no more slots than addresses"
    )]
    fn place(&self, key: u64) -> usize {
        (key.wrapping_mul(SPREAD) >> (u64::BITS - self.shift)) as usize
    }

    const fn mask(&self) -> usize {
        (1 << self.shift) - 1
    }

    const fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    #[inline]
    fn slot(&self, at: usize) -> Slot {
        self.chunks[at >> self.chunk_shift][at & ((1 << self.chunk_shift) - 1)]
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        self.chunks[at >> self.chunk_shift][at & ((1 << self.chunk_shift) - 1)] = slot;
    }
}
