//! The host as a device that takes free pages: [`Host`].

use core::fmt;

use crate::addr::FrameRange;

/// A hypervisor's device for free page reporting, for example virtio-balloon's reporting queue.
///
/// The engine calls it from one [`Reporter`](super::Reporter) at a time, never with a lock or
/// an allocation in progress. It must not allocate frames.
#[expect(unsafe_code, reason = "the content of what is reported is lost")]
pub trait Host: Sync {
    /// Most ranges that one call of [`Host::report`] takes; at least 1. Linux's balloon takes 32.
    fn capacity(&self) -> usize {
        super::MOST_RANGES
    }

    /// Reports `ranges`, at most [`Host::capacity`] of them, whose content is lost: each range one block of [`Knob::Order`](super::Knob::Order), aligned to its
    /// size, or several in a row.
    ///
    /// *It returns when the host is done with all of them*: it has answered, or the driver has
    /// reset the device, so that it can't drop a page that belongs to somebody again. The wait
    /// has an end that the driver sets.
    ///
    /// # Safety
    /// The frames were free, and no other code can allocate them during the call. That none uses them follows
    /// from the [rule of frees](crate::frames#the-rule-of-frees), which the implementation relies on.
    ///
    /// # Errors
    /// [`HostError`]: then the content of the ranges is unknown. After
    /// [`HostError::Unreleased`] the ranges stay with the reporter until
    /// [`Host::is_released`].
    unsafe fn report(&self, ranges: &[FrameRange]) -> Result<(), HostError>;

    /// Whether a device that answered neither a report nor a reset has let go of the ranges of
    /// the failed report: it was reset since then, or is gone.
    fn is_released(&self) -> bool {
        true
    }
}

/// Why a report failed. But for the last one the device no longer touches the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The device does not offer free page reporting, or refused it when it was negotiated.
    NotOffered,
    /// The device did not answer for so long; the driver reset it.
    NoAnswer {
        /// Nanoseconds that the driver waited.
        waited_ns: u64,
    },
    /// The device was reset, or asked to be, while it had the ranges.
    Reset,
    /// The device answered what was not asked: its state is not known, the driver reset it.
    WrongAnswer {
        /// What it answered, for example a descriptor's number.
        seen: u64,
    },
    /// The device answers neither the report nor a reset: it may still drop the ranges.
    Unreleased {
        /// Nanoseconds that the driver waited for both.
        waited_ns: u64,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str(
                "the device does not offer free page reporting: \
                 add it to the machine (QEMU: -device virtio-balloon-pci,free-page-reporting=on)",
            ),
            Self::NoAnswer { waited_ns } => write!(
                f,
                "the device did not answer a report for {waited_ns} ns and was reset; \
                 reporting is off until it is switched on again"
            ),
            Self::Reset => f.write_str(
                "the device was reset during a report; reporting is off until it is switched on again",
            ),
            Self::WrongAnswer { seen } => write!(
                f,
                "the device answered {seen:#x}, which was not asked, and was reset; \
                 reporting is off until it is switched on again"
            ),
            Self::Unreleased { waited_ns } => write!(
                f,
                "the device answered neither a report nor a reset for {waited_ns} ns: \
                 the reported frames stay allocated until a reset of it is complete"
            ),
        }
    }
}

impl core::error::Error for HostError {}
