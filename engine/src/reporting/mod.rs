//! Free page reporting: what is free in a guest goes back to its host.
#![deny(unsafe_code)]

mod host;
mod knobs;

pub use host::{Host, HostError};
pub use knobs::{Knob, Knobs};

/// Most blocks of one report.
pub const MOST_RANGES: usize = 32;
