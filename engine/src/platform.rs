//! What a kernel provides so that the engine can run on it: [`Platform`].

use core::ptr::NonNull;

use crate::addr::PhysRange;

/// The machine under the engine.
///
/// # Safety
/// Memory that [`Platform::map`] answered for must stay readable and writable
/// through the pointer for as long as the platform is borrowed, hold what was
/// last written there, and be used by nobody else.
pub unsafe trait Platform {
    /// A pointer to the first byte of `range`, which the engine has just taken
    /// from early memory for its own tables. The content does not matter.
    /// `None` if the range can't be reached.
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>>;
}
