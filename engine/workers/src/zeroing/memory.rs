//! How memory is written and read: [`Memory`], and [`MappedMemory`], where all of it is mapped at one
//! offset.

use core::ptr;

use crate::addr::{FrameRange, Order, PAGE_BYTES, PhysAddr, PhysRange};
use crate::memmap::Writer;
use crate::memmap::writer::LINE_BYTES;

/// From this order on zeros go past the caches: a block that large is not read at once, and pushes
/// out what is. Smaller ones are used as soon as they are handed out.
pub const PAST_CACHES: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::PAGE,
};

/// What a kernel implements for zeroing.
///
/// # Safety
/// [`Memory::zero`] does what it says. No code frees frames that are not its own in an allocator the memory is
/// used with: workers write to what is free (the [rule of frees](crate::frames#the-rule-of-frees)).
pub unsafe trait Memory: Sync {
    /// Writes zeros over all of `range`, and nothing else. When it returns they come before
    /// whatever the caller stores: a CPU that gets a frame of it later reads zeros. From
    /// [`PAST_CACHES`] on the stores go past the caches.
    ///
    /// # Safety
    /// No other code uses the frames meanwhile.
    unsafe fn zero(&self, range: FrameRange);

    /// The first bytes of `range`, on a border of 8, that are not zero.
    ///
    /// # Safety
    /// No other code writes the frames meanwhile.
    unsafe fn first_not_zero(&self, range: FrameRange) -> Option<PhysAddr>;
}

/// Memory that is mapped at one offset on every CPU.
#[derive(Clone, Copy, Debug)]
pub struct MappedMemory {
    offset: usize,
    writer: Writer,
}

impl MappedMemory {
    /// Memory whose address is the physical address plus `offset`, which may wrap; `writer` stores
    /// past the caches.
    ///
    /// # Safety
    /// All frames of the allocator it is used with are mapped there, readable and writable on every
    /// CPU, and no code frees frames of it that are not its own (the
    /// [rule of frees](crate::frames#the-rule-of-frees)).
    pub const unsafe fn new(offset: usize, writer: Writer) -> Self {
        Self { offset, writer }
    }

    /// The first word of `range`, and how many there are.
    fn words(&self, range: FrameRange) -> (*mut u64, usize) {
        let bytes = range.checked_addrs().unwrap_or(PhysRange::EMPTY);
        let start = usize::try_from(bytes.start().get());
        let words = usize::try_from(bytes.bytes() / 8);
        let (Ok(start), Ok(words), false) = (start, words, bytes.is_empty()) else {
            // The promise of `new` is broken: to go on would hand out what was not zeroed.
            panic!("{range} is empty, or not mapped: no address reaches it");
        };
        let address = self.offset.wrapping_add(start);
        (ptr::with_exposed_provenance_mut(address), words)
    }
}

// SAFETY: `zero` writes the words of the range, with a writer that keeps the order of `Writer::new`.
unsafe impl Memory for MappedMemory {
    unsafe fn zero(&self, range: FrameRange) {
        let writer = if range.count() >= PAST_CACHES.frames() {
            self.writer
        } else {
            Writer::plain()
        };
        let (first, words) = self.words(range);
        // SAFETY: mapped and writable by the promise of `new`, used by no other code by the
        // caller's; a page is on a border of 8 bytes.
        unsafe { writer.fill_raw(first, words, &[0; LINE_BYTES / 8]) }
    }

    unsafe fn first_not_zero(&self, range: FrameRange) -> Option<PhysAddr> {
        let (first, words) = self.words(range);
        for at in 0..words {
            // SAFETY: as above; the range is only read, and written by no other code.
            if unsafe { first.add(at).read() } != 0 {
                let start = range.start().addr().get();
                return Some(PhysAddr::new(start + 8 * at as u64));
            }
        }
        None
    }
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(LINE_BYTES as u64));
