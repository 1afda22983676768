//! The frequency of `time`, which the tree has.

use firstlight::clock::{ClockError, Frequency};

use crate::console::correction;
use crate::firmware::{Tables, tree};

pub(crate) use crate::arch::common::absent::take_turns;

/// The frequency and its source.
///
/// # Errors
/// [`ClockError`] if the tree has no plausible one.
pub(crate) fn frequency(_: &Tables) -> Result<(Frequency, &'static str), ClockError> {
    let hz = tree().map_or(Ok(None), |tree| tree.timebase_hz());
    let hz = hz.inspect_err(|error| correction(error)).ok().flatten();
    Frequency::plausible(hz.unwrap_or_default()).map(|frequency| (frequency, "timebase-frequency"))
}
