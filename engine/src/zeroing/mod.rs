//! Zeroing free memory before it is requested.

mod knobs;
mod memory;
mod pace;
mod parallel;
mod policy;

#[cfg(all(test, not(loom)))]
mod tests;

pub use knobs::{ALL_BYTES, Knob, Knobs};
pub use memory::{MappedMemory, Memory, PAST_CACHES};
pub use parallel::zero as zero_on_cpus;
pub use policy::{Decision, Policy, Seen};
