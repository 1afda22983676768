//! A restart without firmware: the image is brought back to what the loader loaded and entered
//! where the loader entered it, with the loader's own start info.
//!
//! `.data` changes while the image runs, so [`keep`] copies it at the first instruction of Rust;
//! `entry.s` copies it back and zeroes `.bss`. Statics in the sections `.stale` and `.bss.stale`
//! are left as they are: they are large, and written before they are read.

use core::num::NonZeroU64;
use core::ptr::{addr_of, addr_of_mut, copy_nonoverlapping};

unsafe extern "C" {
    static data_start: u8;
    static data_end: u8;
    static mut kept_data: u8;
    static left_ticks: u64;
    static restarts: u64;
    static restart_nonce: u64;
    fn restart_image(nonce: u64) -> !;
}

/// Keeps the initial values of statics for a restart.
///
/// # Safety
/// Called once, on the first CPU, before any static that is not zero at first was written.
pub(crate) unsafe fn keep() {
    let (start, end) = (addr_of!(data_start), addr_of!(data_end));
    let bytes = end as usize - start as usize;
    // SAFETY: the linker script makes the space as large; no other code uses it.
    unsafe { copy_nonoverlapping(start, addr_of_mut!(kept_data), bytes) }
}

/// Restarts so far; 0 for a kernel that a loader started.
pub(crate) fn count() -> u64 {
    // SAFETY: written before this kernel began.
    unsafe { addr_of!(restarts).read_volatile() }
}

/// When the previous kernel executed its last instruction.
pub(crate) fn left() -> u64 {
    // SAFETY: as above.
    unsafe { addr_of!(left_ticks).read_volatile() }
}

/// The nonce of the restart that started this kernel, which the one before had in a register; none for a
/// kernel that a loader started, whatever is left in memory.
pub(crate) fn nonce() -> Option<NonZeroU64> {
    // SAFETY: as above.
    NonZeroU64::new(unsafe { addr_of!(restart_nonce).read_volatile() })
}

/// How the image is entered once more, with a nonce; processors that cannot have none.
///
/// # Safety
/// [`keep`] was called. No other CPU runs, no device writes to memory, and nothing of this
/// kernel is in use any more.
pub(crate) const ENTER_AGAIN: Option<unsafe fn(NonZeroU64) -> !> = Some(enter_again);

unsafe fn enter_again(nonce: NonZeroU64) -> ! {
    // SAFETY: the caller's promise; the code is in pages that are mapped at their own addresses.
    unsafe { restart_image(nonce.get()) }
}
