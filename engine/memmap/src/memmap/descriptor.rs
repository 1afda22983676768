//! What a kernel keeps for each frame: [`Descriptor`].

use core::mem::{needs_drop, size_of};
use core::ptr::{self, NonNull};

use super::SectionPlace;
use super::writer::{LINE_BYTES, Line, Writer};

/// A type of which there is one value for each frame.
///
/// Descriptors are written a section at a time, all alike: copies of
/// [`Descriptor::template`]. From then on they are shared by all CPUs, so fields
/// that change are atomics.
///
/// ```
/// use core::sync::atomic::AtomicU64;
/// use firstlight_memmap::memmap::{Descriptor, SectionPlace};
///
/// /// 8 bytes a frame: a reference count, and an owner.
/// struct Small(AtomicU64);
/// // SAFETY: an atomic integer has no padding.
/// unsafe impl Descriptor for Small {
///     fn template(_: SectionPlace) -> Self {
///         Self(AtomicU64::new(0))
///     }
/// }
/// ```
///
/// # Safety
/// No byte of the type is padding. A template has no uninitialised byte, and no pointer
/// but null.
pub unsafe trait Descriptor: Send + Sync + Sized + 'static {
    /// The first content of the descriptors of a place. Where memory is known to be zero,
    /// only those of its words are written that are not.
    fn template(place: SectionPlace) -> Self;
}

/// Fails to compile for a type that can't be written in words.
pub(super) const fn check<T: Descriptor>() {
    assert!(
        size_of::<T>() > 0 && size_of::<T>().is_multiple_of(8),
        "a descriptor is a multiple of 8 bytes"
    );
    assert!(
        align_of::<T>() <= LINE_BYTES,
        "a descriptor is aligned to a line at most"
    );
    assert!(!needs_drop::<T>(), "descriptors are never dropped");
}

/// Bytes of `frames` descriptors.
pub(super) fn bytes_for<T>(frames: u64) -> Option<u64> {
    frames.checked_mul(size_of::<T>() as u64)
}

/// Whether descriptors fill lines evenly.
pub(super) const fn divides_line<T>() -> bool {
    LINE_BYTES.is_multiple_of(size_of::<T>())
}

/// The words of a template.
fn words<T: Descriptor>(template: &T) -> impl Iterator<Item = u64> + Clone {
    let first = ptr::from_ref(template).cast::<u64>();
    (0..size_of::<T>() / 8).map(move |index| {
        // SAFETY: inside the value, all of whose bytes are initialised and whose
        // alignment does not matter here.
        unsafe { first.add(index).read_unaligned() }
    })
}

/// Zero bytes of a template, in whole words.
pub(super) fn zero_bytes<T: Descriptor>(template: &T) -> u64 {
    8 * words(template).filter(|&word| word == 0).count() as u64
}

/// Writes those words of `count` descriptors from `first` on that are not zero, by plain stores:
/// fresh memory is in the cache still, where its host has zeroed it.
///
/// # Safety
/// As for [`write`], and the memory is zero.
pub(super) unsafe fn write_on_zeros<T: Descriptor>(first: NonNull<T>, count: usize, template: &T) {
    // Lines in the nearest cache from one word of the template to the next.
    const AT_ONCE: usize = 64;
    for from in (0..count).step_by(AT_ONCE) {
        let some = from..count.min(from + AT_ONCE);
        for (place, word) in words(template).enumerate().filter(|&(_, word)| word != 0) {
            for index in some.clone() {
                // SAFETY: word `place` of descriptor `index`, inside the caller's memory; words
                // of a type with a size of whole words need no alignment to be written so.
                unsafe {
                    let at = first.add(index).cast::<u64>().add(place);
                    at.write_unaligned(word);
                }
            }
        }
    }
}

/// Writes `count` descriptors from `first` on.
///
/// # Safety
/// The memory is writable and used by no other code, `first` is aligned for `T` and,
/// where descriptors fill lines evenly, on a multiple of their size.
pub(super) unsafe fn write<T: Descriptor>(
    first: NonNull<T>,
    count: usize,
    template: &T,
    writer: Writer,
) {
    if divides_line::<T>() {
        let mut line: Line = [0; LINE_BYTES / 8];
        for (element, word) in line.iter_mut().zip(words(template).cycle()) {
            *element = word;
        }
        let words = count * (size_of::<T>() / 8);
        // SAFETY: `words` words of the caller's memory; `first` is a multiple of the size, so
        // each word of a descriptor lies where the line has it.
        return unsafe { writer.fill_raw(first.as_ptr().cast(), words, &line) };
    }
    for index in 0..count {
        // SAFETY: descriptor `index` lies inside the memory; a copy of the bits
        // of a value without drop is a value.
        unsafe { first.add(index).write(ptr::read(template)) };
    }
}
