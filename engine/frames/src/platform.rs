//! What a kernel implements for the engine: [`Platform`]; or [`DirectMap`], where all memory is
//! mapped at one offset.

use core::fmt;
use core::ptr::{self, NonNull};

use crate::addr::PhysRange;

/// The machine under the engine.
///
/// # Safety
/// For as long as the platform is borrowed, all memory mapped by
/// [`Platform::map`] must be readable and writable through the pointer from every
/// CPU, keep what was last written there, and be used by no other code. So `map`
/// maps a byte once, and refuses a second [`Layout`] over the same memory and
/// memory the kernel uses without a reservation. A platform over a direct map
/// records what it mapped, or is made by an `unsafe` constructor whose caller
/// promises to reserve what is in use and to use it with one `Layout` only. For
/// one layout the engine maps no byte twice: a `Layout` only takes early memory,
/// and `Memmap::add` is unsafe.
/// Where [`Platform::is_zero`] is true, the memory is zero. No code frees frames that are not its own in an
/// allocator the platform is used with: see the [rule of frees](crate::frames#the-rule-of-frees).
///
/// [`Layout`]: crate::layout::Layout
pub unsafe trait Platform {
    /// A pointer to the first byte of `range`, which the engine has just taken
    /// for its own tables. The content does not matter.
    /// `None` if the range can't be reached.
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>>;

    /// Whether every byte of `range`, just mapped and not written since, is
    /// zero. Memory known to be zero is not written with zeros.
    fn is_zero(&self, _range: PhysRange) -> bool {
        false
    }

    /// Accepts `range`, untouched memory of a confidential guest, and leaves all
    /// of it zero: it is not zeroed again. See [`Acceptance`]. Called from any CPU, for at most 2 MiB at a time.
    ///
    /// The default refuses: unaccepted memory stays unavailable then.
    ///
    /// # Safety
    /// The memory waits for acceptance, and this is the one call for it: it was never handed out.
    ///
    /// # Errors
    /// [`NotAccepted`]: the range stays unavailable for good.
    ///
    /// [`Acceptance`]: crate::acceptance::Acceptance
    unsafe fn accept(&self, range: PhysRange) -> Result<(), NotAccepted> {
        Err(NotAccepted { range, code: 0 })
    }
}

/// Physical memory, all of it mapped at one offset on every CPU: the platform of most kernels.
///
/// It accepts no unaccepted memory; a kernel for confidential guests implements [`Platform`]
/// on a type of its own.
#[derive(Debug)]
pub struct DirectMap {
    offset: usize,
}

impl DirectMap {
    /// The direct map whose address is the physical address plus `offset`, which may wrap.
    ///
    /// # Safety
    /// For ever, all memory that the engine is given is mapped there, readable and writable
    /// on every CPU; all of it that is in use is reserved
    /// (`Boot::reserved`,
    /// [`EarlyMemory::reserve`](crate::early::EarlyMemory::reserve)); one
    /// [`Layout`](crate::layout::Layout) is used with it; and no code frees frames that are not its own
    /// (the [rule of frees](crate::frames#the-rule-of-frees)).
    pub const unsafe fn new(offset: usize) -> Self {
        Self { offset }
    }
}

// SAFETY: the caller of `new` promised it.
unsafe impl Platform for DirectMap {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let start = usize::try_from(range.start().get()).ok()?;
        let address = self.offset.wrapping_add(start);
        NonNull::new(ptr::with_exposed_provenance_mut(address))
    }
}

/// Memory could not be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAccepted {
    /// The memory.
    pub range: PhysRange,
    /// The hypervisor's error; 0: the platform accepts nothing.
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
            write!(f, "{range} was not accepted: error {code:#x}")
        }
    }
}

impl core::error::Error for NotAccepted {}
