//! Free page reporting: what is free in a guest goes back to its host: [`Reporter`].
//!
//! *A pass reports a part of what is free, a batch a step; then it rests.* The consumer, a driver of a
//! device that is a [`Host`], chooses order, batch, delay and budget ([`Knob`]), and calls
//! [`Reporter::step`] from a thread of its own. Blocks of a report are borrowed: nobody can allocate
//! them until the host has answered, and then they are free and
//! [`Reported`](crate::frames::Content::Reported).
//!
//! | file | what it is |
//! |---|---|
//! | `host` | the device: [`Host`], and what can go wrong: [`HostError`] |
//! | `knobs` | what can be changed while it reports |
//! | `step` | one bounded step |
#![deny(unsafe_code)]

mod host;
mod knobs;
mod step;

pub use host::{Host, HostError};
pub use knobs::{Knob, Knobs};
pub use step::{Reporter, Statistics};

/// Most blocks of one report.
pub const MOST_RANGES: usize = 32;
