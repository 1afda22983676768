//! What other boards have, where there is none: slots of DIMMs, a power button, PCI, an image that enters
//! itself again, a screen, a timer that ends turns.

use crate::console::note;

/// The word `turns_hz=` has no effect: waiting CPUs end their turns themselves.
pub(crate) fn take_turns(_: u32) {
    note("turns_hz= is ignored: expected x86_64");
}

/// Slots of DIMMs and the power button.
#[cfg(not(uefi))]
pub(crate) mod hotplug {
    use firstlight_image::hotplug::PowerButton;

    use crate::arch::common::registers::Window;
    use crate::machine::Machine;

    /// Neither.
    ///
    /// # Safety
    /// None is needed here.
    pub(crate) unsafe fn open(_: &Machine) -> Option<(Window, PowerButton<Window>)> {
        None
    }
}

/// Registers in memory, without PCI.
#[cfg(not(uefi))]
pub(crate) mod device {
    use firstlight_image::virtio::Ecam;

    pub(crate) use crate::arch::common::registers::{Window, can_be, window};
    use crate::machine::Machine;

    /// There is none.
    ///
    /// # Safety
    /// None is needed here.
    pub(crate) unsafe fn pci(_: &Machine) -> Option<Ecam<Window>> {
        None
    }
}

/// The screen that UEFI leaves.
#[cfg(not(uefi))]
pub(crate) mod frame_buffer {
    use firstlight_image::screen::Pixels;

    /// There is none.
    pub(crate) enum FrameBuffer {}

    impl Pixels for FrameBuffer {
        fn size(&self) -> (u32, u32) {
            match *self {}
        }

        fn set(&mut self, _: u32, _: u32, _: u32) {
            match *self {}
        }
    }
}

/// The image entered once more.
pub(crate) mod restart {
    use core::num::NonZeroU64;

    /// It cannot be.
    pub(crate) const ENTER_AGAIN: Option<unsafe fn(NonZeroU64) -> !> = None;

    /// Nothing is kept for it.
    ///
    /// # Safety
    /// None is needed here.
    pub(crate) unsafe fn keep() {}

    /// Restarts so far.
    pub(crate) fn count() -> u64 {
        0
    }

    /// The nonce of the restart.
    pub(crate) fn nonce() -> Option<NonZeroU64> {
        None
    }

    /// When a kernel before ended.
    pub(crate) fn left() -> u64 {
        0
    }
}
