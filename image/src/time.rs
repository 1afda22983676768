//! The time in nanoseconds since the machine began.

use firstlight::clock::Frequency;
use spin::Once;

use crate::arch::ticks;

static FREQUENCY: Once<Frequency> = Once::new();

/// Sets the frequency of ticks, once.
pub(crate) fn set(frequency: Frequency) {
    FREQUENCY.call_once(|| frequency);
}

/// The time; ticks where their frequency is not known.
pub(crate) fn now_ns() -> u64 {
    match FREQUENCY.get() {
        Some(frequency) => frequency.ns(ticks()),
        None => ticks(),
    }
}
