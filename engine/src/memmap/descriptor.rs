//! What a kernel keeps for each frame: [`Descriptor`].

use core::mem::{ManuallyDrop, needs_drop, size_of};
use core::ptr::{self, NonNull};

use super::MemmapError;
use super::writer::{LINE_BYTES, Line, Writer};
use crate::node::{NodeId, ZoneKind};

/// Where a run of frames lies: what the first content of their descriptors may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionPlace {
    /// The node.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneKind,
    /// The section: frame number over [`SECTION_FRAMES`](crate::layout::SECTION_FRAMES).
    pub section: u64,
}

/// A type of which there is one for each frame.
///
/// Its descriptors are written a section at a time, all alike: zero bytes, or
/// what [`Descriptor::template`] says. From then on they are shared by all
/// CPUs, so whatever changes in them is an atomic.
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
    /// Whether a descriptor of zero bytes is valid, and right for a frame that
    /// nobody used yet unless there is a template for its place.
    const ZERO_IS_VALID: bool;

    /// What the descriptors of a place hold at first; `None`: zero bytes. A
    /// type for which zero is not valid must have one for every place.
    fn template(_place: SectionPlace) -> Option<Self> {
        None
    }
}

/// Refuses, when the program is compiled, a type that can't be written in words.
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

/// What the descriptors of a place hold at first; `None`: zero bytes.
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
/// The memory is writable and nobody else's, `first` is aligned for `T` and,
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
        // SAFETY: so many words of memory that is the caller's.
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
