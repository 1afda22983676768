//! What a kernel provides so that the engine can run on it: [`Platform`].

use core::ptr::NonNull;

use crate::addr::PhysRange;

/// The machine under the engine.
///
/// # Safety
/// For as long as the platform is borrowed, all the memory that
/// [`Platform::map`] answered for must be readable and writable through the
/// pointer from every CPU, hold what was last written there, and be used by
/// nobody else. So `map` answers for a byte once: a second [`Frames`] over the
/// same memory, or memory the kernel itself uses and forgot to reserve, is
/// refused. A platform over a direct map remembers what it gave, or is made by
/// an `unsafe` constructor whose caller promises to build one `Frames` only.
/// What [`Platform::is_zero`] says yes to, is.
///
/// [`Frames`]: crate::frames::Frames
pub unsafe trait Platform {
    /// A pointer to the first byte of `range`, which the engine has just taken
    /// from early memory for its own tables, or was
    /// given for that. The content does not matter.
    /// `None` if the range can't be reached.
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>>;

    /// Whether every byte of `range`, just given by [`Platform::map`] and not
    /// written since, is zero. What is known to be zero is not written with zeros.
    fn is_zero(&self, _range: PhysRange) -> bool {
        false
    }
}
