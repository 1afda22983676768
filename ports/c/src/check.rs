//! Pointers and addresses from C, checked before anything happens.

use core::ptr::NonNull;

use engine::addr::{Frame, FrameRange, Order, PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};

use crate::error::fl_error::{self, *};

/// A pointer to a `T`: neither null nor misaligned.
pub(crate) fn pointer<T>(from: *mut T) -> Result<NonNull<T>, fl_error> {
    let pointer = NonNull::new(from).ok_or(FL_NULL)?;
    if pointer.is_aligned() {
        Ok(pointer)
    } else {
        Err(FL_UNALIGNED)
    }
}

/// The object behind a pointer.
///
/// # Safety
/// It is null, misaligned, or points to a `T` that nothing changes during `'a`, but through
/// atomics and cells.
pub(crate) unsafe fn shared<'a, T>(from: *const T) -> Result<&'a T, fl_error> {
    let pointer = pointer(from.cast_mut())?;
    // SAFETY: by the contract.
    Ok(unsafe { pointer.as_ref() })
}

/// The frame at an address that a block may have.
pub(crate) fn frame(address: u64) -> Result<Frame, fl_error> {
    if !address.is_multiple_of(PAGE_BYTES) {
        return Err(FL_MISALIGNED);
    }
    Ok(PhysAddr::new(address).frame())
}

/// `frames` frames from `address` on.
pub(crate) fn frames(address: u64, frames: u64) -> Result<FrameRange, fl_error> {
    let start = frame(address)?.get();
    if frames == 0 {
        return Err(FL_NO_FRAMES);
    }
    let end = start.checked_add(frames).ok_or(FL_OUTSIDE_SPAN)?;
    FrameRange::new(start, end).ok_or(FL_OUTSIDE_SPAN)
}

/// `bytes` bytes from `address` on; what else is wrong with them the engine finds.
pub(crate) fn bytes(address: u64, bytes: u64) -> Result<PhysRange, fl_error> {
    PhysRange::with_size(address, bytes).ok_or(FL_OUTSIDE_SPAN)
}

/// The frames of a span.
pub(crate) fn span(address: u64, bytes: u64) -> Result<FrameRange, fl_error> {
    let range = PhysRange::with_size(address, bytes).ok_or(FL_BAD_SPAN)?;
    let is_whole = (address | bytes).is_multiple_of(PAGE_BYTES);
    if range.is_empty() || !is_whole || range.end().get() > PHYS_END {
        return Err(FL_BAD_SPAN);
    }
    Ok(range.inner_frames())
}

/// An order.
pub(crate) fn order(order: u32) -> Result<Order, fl_error> {
    let order = u8::try_from(order).ok().and_then(Order::new);
    order.ok_or(FL_BAD_ORDER)
}
