//! Whether memory that is said to be zero is zero: [`ZeroCheck`].

use super::Memory;
use crate::addr::{FrameRange, PhysAddr};
use crate::sync::{AtomicU64, Ordering};

/// Reads memory that requests for zeros get without zeroing: *all of it in debug builds, else a page
/// of one block in so many.* A kernel's [`Hooks::is_zero`](crate::frames::Hooks::is_zero) calls
/// [`ZeroCheck::is_zero`].
///
/// It finds a host whose reported memory does not come back as it promised, a platform whose fresh
/// memory is not zero, and a kernel that wrote to memory it had freed. What is not zero is zeroed
/// before it is handed out.
///
/// ```
/// use firstlight_frames::addr::FrameRange;
/// use firstlight_frames::frames::Hooks;
/// use firstlight_workers::zeroing::{MappedMemory, Memory, ZeroCheck};
///
/// struct Kernel {
///     memory: MappedMemory,
///     check: ZeroCheck,
/// }
///
/// impl Hooks for Kernel {
///     unsafe fn zero(&self, range: FrameRange) -> bool {
///         // SAFETY: the caller's promise, and that of `MappedMemory::new`.
///         unsafe { self.memory.zero(range) };
///         true
///     }
///
///     unsafe fn is_zero(&self, range: FrameRange) -> bool {
///         // SAFETY: likewise.
///         unsafe { self.check.is_zero(&self.memory, range) }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct ZeroCheck {
    /// 0: no block is read.
    one_in: AtomicU64,
    checked: AtomicU64,
    wrong: AtomicU64,
    /// Where one was not zero last; [`NOWHERE`] before.
    wrong_at: AtomicU64,
}

/// No address.
const NOWHERE: u64 = u64::MAX;

impl Default for ZeroCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl ZeroCheck {
    /// All of every block in debug builds, nothing in others.
    pub fn new() -> Self {
        Self {
            one_in: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            wrong_at: AtomicU64::new(NOWHERE),
        }
    }

    /// Of so many blocks one is read; 0: none.
    pub fn set_one_in(&self, blocks: u64) {
        self.one_in.store(blocks, Ordering::Relaxed);
    }

    /// Blocks that were not zero.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Where the last of them was not.
    pub fn wrong_at(&self) -> Option<PhysAddr> {
        let at = self.wrong_at.load(Ordering::Relaxed);
        (at != NOWHERE).then(|| PhysAddr::new(at))
    }

    /// Whether `range` is zero, as far as it is read.
    ///
    /// # Safety
    /// As for [`Memory::first_not_zero`]: no other code writes the frames meanwhile.
    pub unsafe fn is_zero<M: Memory + ?Sized>(&self, memory: &M, range: FrameRange) -> bool {
        let read = if cfg!(debug_assertions) {
            Some(range)
        } else {
            self.next_sample(range)
        };
        // SAFETY: what the caller promises, of a part of it.
        let found = read.and_then(|part| unsafe { memory.first_not_zero(part) });
        if let Some(at) = found {
            self.wrong.fetch_add(1, Ordering::Relaxed);
            self.wrong_at.store(at.get(), Ordering::Relaxed);
        }
        found.is_none()
    }

    /// The page that is read of this block, if it is one of those that are checked.
    fn next_sample(&self, range: FrameRange) -> Option<FrameRange> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in == 0 {
            return None;
        }
        let number = self.checked.fetch_add(1, Ordering::Relaxed);
        number.is_multiple_of(one_in).then(|| sample(range, number))
    }
}

/// A frame of `range`, picked by `number`.
fn sample(range: FrameRange, number: u64) -> FrameRange {
    // Fibonacci hashing: numbers in a row fall far from each other.
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let at = range.start().get() + hash % range.count().max(1);
    FrameRange::new(at, at + 1)
        .unwrap_or_default()
        .intersect(range)
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_block_in_so_many_is_read() {
        let block = FrameRange::new(512, 1024).unwrap_or_default();
        let check = ZeroCheck::new();
        let read = |blocks| {
            let of_block = |_| check.next_sample(block);
            (0..blocks).filter_map(of_block).count()
        };
        assert_eq!(read(100), 0);
        check.set_one_in(3);
        assert_eq!(read(300), 100);
        check.set_one_in(1);
        assert_eq!(read(100), 100);
        check.set_one_in(0);
        assert_eq!(read(100), 0);
    }

    #[test]
    fn every_frame_is_picked_sooner_or_later() {
        let range = FrameRange::new(100, 164).unwrap_or_default();
        let mut seen = 0u64;
        for number in 0..1000 {
            let one = sample(range, number);
            assert!(range.covers(one) && one.count() == 1, "{one}");
            seen |= 1 << (one.start().get() - 100);
        }
        assert_eq!(seen, u64::MAX);
    }
}
