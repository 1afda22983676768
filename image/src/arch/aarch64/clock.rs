//! The frequency of the generic timer: firmware leaves it in a register.

use core::arch::asm;

use firstlight::clock::{ClockError, Frequency};

use crate::firmware::Tables;

pub(crate) use crate::arch::common::absent::take_turns;

/// The frequency and its source.
///
/// # Errors
/// [`ClockError`] if the register holds no plausible one.
pub(crate) fn frequency(_: &Tables) -> Result<(Frequency, &'static str), ClockError> {
    let hz: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nostack, nomem)) }
    Frequency::plausible(hz).map(|frequency| (frequency, "cntfrq_el0"))
}
