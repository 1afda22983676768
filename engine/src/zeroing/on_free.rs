//! The strong form of the security use: memory is zeroed when it is freed: [`free_zeroed`].

use super::Memory;
use crate::addr::{FrameRange, Order};
use crate::frames::{BlockError, Content, Frames};

/// Zeroes a block and frees it, known to be zero: its bytes are gone before any other owner can have
/// it. A double free is refused before anything is written, as far as it can be seen.
///
/// What goes through a CPU's cache instead is zeroed the same way ([`Memory::zero`]) before
/// [`Cpu::free`](crate::frames::Cpu::free); then its next owner finds zeros too, but a request for
/// zeros does not know.
///
/// # Safety
/// As for [`Memory::zero`]: the block is the caller's, and no other code uses it any more.
///
/// # Errors
/// As [`Frames::free`]; nothing is freed then.
pub unsafe fn free_zeroed<M: Memory + ?Sized>(
    frames: &Frames<'_>,
    memory: &M,
    block: crate::addr::Frame,
    order: Order,
) -> Result<(), BlockError> {
    let range = FrameRange::block(block, order).unwrap_or_default();
    if !block.is_aligned(order) {
        return Err(BlockError::Misaligned {
            frame: block,
            order,
        });
    }
    match frames.is_allocated(block) {
        Some(true) => {}
        Some(false) => {
            return Err(BlockError::NotAllocated {
                frame: block,
                order,
            });
        }
        None => {
            return Err(BlockError::OutsideMemory {
                frame: block,
                order,
            });
        }
    }
    // SAFETY: the caller's.
    unsafe { memory.zero(range) };
    frames.free_with(block, order, Content::Zero)
}
