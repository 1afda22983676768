//! What a kernel provides so that the engine can run on it: [`Platform`].

use core::fmt;
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

    /// Accepts `range`, memory of a confidential guest that nobody has touched
    /// yet, and leaves all of it zero; see [`Acceptance`]. Called once for a
    /// byte, from any CPU, before it is handed out; at most 2 MiB at a time.
    ///
    /// A platform that knows no such memory refuses, as this one does: what
    /// firmware calls unaccepted stays withheld then.
    ///
    /// # Errors
    /// [`NotAccepted`]: the range stays withheld for good.
    ///
    /// [`Acceptance`]: crate::acceptance::Acceptance
    fn accept(&self, range: PhysRange) -> Result<(), NotAccepted> {
        Err(NotAccepted { range, code: 0 })
    }
}

/// Memory could not be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAccepted {
    /// The memory.
    pub range: PhysRange,
    /// What the hypervisor answered; 0: the platform accepts nothing.
    pub code: u64,
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, code } = self;
        if *code == 0 {
            write!(
                f,
                "{range} is unaccepted memory, which this platform can't accept"
            )
        } else {
            write!(f, "{range} was not accepted: the answer was {code:#x}")
        }
    }
}

impl core::error::Error for NotAccepted {}
