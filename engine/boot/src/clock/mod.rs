//! What a tick is worth: [`Frequency`], and how to find it out.
//!
//! A processor counts ticks from its first instruction, but seldom reports how
//! many make a second. So ticks are what is written down ([`crate::events`]),
//! and they become nanoseconds once the frequency is known. Where it comes
//! from, best first:
//!
//! - the hypervisor reports it: [`Frequency::from_khz`], [`Frequency::from_pvclock`];
//! - a counter of known rate runs beside it: [`Calibration`], against a
//!   [`Reference`] such as ACPI's power management timer or the PIT.
//!
//! All of it is arithmetic: reading registers and ports is the caller's.
#![deny(unsafe_code)]

mod calibration;
mod frequency;

pub use calibration::{Calibration, Direction, Reference, Sample};
pub use frequency::{ClockError, Frequency};
