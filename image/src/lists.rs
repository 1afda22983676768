//! Lists in memory of the allocator, never freed.

use core::mem::MaybeUninit;

use firstlight::addr::{Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::node::ZoneKind;

/// A list of `len` elements; `None` if there is no memory.
pub(crate) fn list<T>(
    frames: &Frames<'_>,
    len: usize,
    make: impl FnMut(usize) -> T,
) -> Option<&'static mut [T]> {
    list_of(frames, len, (0..len).map(make))
}

/// [`list`] of memory in `zone` or below.
pub(crate) fn list_in<T>(
    frames: &Frames<'_>,
    zone: ZoneKind,
    len: usize,
    make: impl FnMut(usize) -> T,
) -> Option<&'static mut [T]> {
    let space = space_in::<T>(frames, zone, len)?;
    // SAFETY: as for `list_of`.
    Some(unsafe { list_at(space, (0..len).map(make)) })
}

/// As [`list`], of the first `len` of `values`, or fewer if there are fewer.
pub(crate) fn list_of<'l, T: 'l>(
    frames: &Frames<'_>,
    len: usize,
    values: impl Iterator<Item = T>,
) -> Option<&'l mut [T]> {
    let space = space::<T>(frames, len)?;
    // SAFETY: mapped memory that was just allocated and is never freed.
    Some(unsafe { list_at(space, values.take(len)) })
}

/// A list of zeroed elements, which may be too large for a stack.
///
/// # Safety
/// Zeroes are a valid value.
pub(crate) unsafe fn zeroed_list<T>(frames: &Frames<'_>, len: usize) -> Option<&'static mut [T]> {
    let space = space::<T>(frames, len)?;
    let first = space.start().get() as *mut T;
    // SAFETY: as much space as for `list`; zeroes are valid, as the caller promised.
    Some(unsafe {
        first.write_bytes(0, len);
        core::slice::from_raw_parts_mut(first, len)
    })
}

/// Space for `len` elements, from a page on.
fn space<T>(frames: &Frames<'_>, len: usize) -> Option<PhysRange> {
    space_in::<T>(frames, ZoneKind::Normal, len)
}

/// [`space`] in `zone` or below.
fn space_in<T>(frames: &Frames<'_>, zone: ZoneKind, len: usize) -> Option<PhysRange> {
    let pages = (len.checked_mul(size_of::<T>())? as u64)
        .div_ceil(PAGE_BYTES)
        .max(1);
    let order = u8::try_from(pages.next_power_of_two().ilog2())
        .ok()
        .and_then(Order::new)?;
    let frame = frames.allocate(Request::new(order).zone(zone)).ok()?;
    PhysRange::with_size(frame.addr().get(), order.bytes())
}

/// A list of `values` in `space`, or of as many as fit.
///
/// # Safety
/// The space is mapped, begins on a page, and is used by nothing else, now or later.
pub(crate) unsafe fn list_at<'l, T: 'l>(
    space: PhysRange,
    values: impl Iterator<Item = T>,
) -> &'l mut [T] {
    let fits = usize::try_from(space.bytes()).unwrap_or_default() / size_of::<T>();
    let first = space.start().get() as *mut MaybeUninit<T>;
    // SAFETY: the caller's promise; the content may be anything.
    let slots = unsafe { core::slice::from_raw_parts_mut(first, fits) };
    let mut written = 0;
    for (slot, value) in slots.iter_mut().zip(values) {
        slot.write(value);
        written += 1;
    }
    // SAFETY: so many were just written; the same layout.
    unsafe { core::slice::from_raw_parts_mut(first.cast(), written) }
}
