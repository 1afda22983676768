//! What a kernel keeps for each frame: [`Descriptor`].

use core::mem::{ManuallyDrop, needs_drop, size_of};
use core::ptr::{self, NonNull};

use super::writer::{LINE_BYTES, Line, Writer};
use super::{MemmapError, SectionPlace};

/// A type of which there is one value for each frame.
///
/// Descriptors are written a section at a time, all alike: zero bytes, or
/// [`Descriptor::template`]. From then on they are shared by all CPUs, so fields
/// that change are atomics.
///
/// ```
/// use core::sync::atomic::AtomicU64;
/// use firstlight::memmap::Descriptor;
///
/// /// 8 bytes a frame: a reference count, and an owner.
/// struct Small(AtomicU64);
/// // SAFETY: an atomic integer has no padding, and zero is one.
/// unsafe impl Descriptor for Small {
///     const ZERO_IS_VALID: bool = true;
/// }
/// ```
///
/// # Safety
/// The type has no padding bytes. If `ZERO_IS_VALID`, a value of nothing but
/// zero bytes is a valid one.
pub unsafe trait Descriptor: Send + Sync + Sized + 'static {
    /// Whether a descriptor of zero bytes is valid, and right for a frame not used
    /// yet unless there is a template for its place.
    const ZERO_IS_VALID: bool;

    /// The first content of the descriptors of a place; `None`: zero bytes. A
    /// type for which zero is not valid must have one for every place.
    fn template(_place: SectionPlace) -> Option<Self> {
        None
    }
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

/// The first content of the descriptors of a place; `None`: zero bytes.
pub(super) fn first_content<T: Descriptor>(place: SectionPlace) -> Result<Option<T>, MemmapError> {
    match T::template(place) {
        None if !T::ZERO_IS_VALID => Err(MemmapError::NoTemplate {
            descriptor: core::any::type_name::<T>(),
            place,
        }),
        content => Ok(content),
    }
}

/// Writes `count` descriptors from `first` on.
///
/// # Safety
/// The memory is writable and used by no other code, `first` is aligned for `T` and,
/// where descriptors fill lines evenly, on a multiple of their size; `content`
/// is `None` only if zero is valid.
pub(super) unsafe fn write<T: Descriptor>(
    first: NonNull<T>,
    count: usize,
    content: Option<T>,
    writer: Writer,
) {
    let words = count * (size_of::<T>() / 8);
    let content = content.map(ManuallyDrop::new);
    let Some(content) = content else {
        // SAFETY: `words` words of the caller's memory.
        return unsafe { writer.fill_raw(first.as_ptr().cast(), words, &[0; LINE_BYTES / 8]) };
    };
    if divides_line::<T>() {
        let word = |index: usize| {
            // SAFETY: inside the value, which has no padding and whose
            // alignment does not matter here.
            unsafe {
                ptr::from_ref(&content)
                    .cast::<u64>()
                    .add(index % (size_of::<T>() / 8))
                    .read_unaligned()
            }
        };
        let line: Line = core::array::from_fn(word);
        // SAFETY: as above; `first` is a multiple of the size, so each word of
        // a descriptor lies where the line has it.
        return unsafe { writer.fill_raw(first.as_ptr().cast(), words, &line) };
    }
    for index in 0..count {
        // SAFETY: descriptor `index` lies inside the memory; a copy of the bits
        // of a value without drop is a value.
        unsafe { first.add(index).write(ptr::read(&raw const *content)) };
    }
}
