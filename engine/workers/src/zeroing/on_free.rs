//! The strong form of the security use: memory is zeroed when it is freed: [`free_zeroed`].

use super::Memory;
use crate::addr::FrameRange;
use crate::frames::{Content, Frames, RangeError};

/// Zeroes `range` and frees it, known to be zero: its bytes are gone before any other owner can have
/// it. *What must not be freed is not written*: that all of it is allocated is checked before,
/// as far as the tables say, to which what a CPU caches is allocated.
///
/// What goes through a CPU's cache instead is zeroed the same way ([`Memory::zero`]) before
/// [`Cpu::free`](crate::frames::Cpu::free); then its next owner finds zeros too, but a request for
/// zeros does not know.
///
/// # Safety
/// As for [`Memory::zero`]: the frames are the caller's, and no other code uses it any more.
///
/// # Errors
/// As [`Frames::free_frames`]; nothing is freed then, nor written, unless another call frees some of the
/// range at the same moment.
pub unsafe fn free_zeroed<M: Memory + ?Sized>(
    frames: &Frames<'_>,
    memory: &M,
    range: FrameRange,
) -> Result<(), RangeError> {
    frames.check_free(range)?;
    // SAFETY: the caller's.
    unsafe { memory.zero(range) };
    frames.free_frames_with(range, Content::Zero)
}
