//! Figures of all kinds, in one place for all crates.
//!
//! - [`size`]: `64GiB`, `512M`: the one grammar of sizes of all commands and files;
//! - [`spread`]: median, median absolute deviation, least and most;
//! - [`rank_sum`]: whether two sets of them differ;
//! - [`text`]: bytes, counts and times for people;
//! - [`random`]: pseudo-random numbers, the same in every run;
//! - [`advice`]: what to do about a file that cannot be read.
//!
//! Without the feature `std` there is only [`random`], which needs neither a heap nor
//! an operating system.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(feature = "std")]
pub mod advice;
pub mod random;
#[cfg(feature = "std")]
pub mod rank_sum;
#[cfg(feature = "std")]
pub mod size;
#[cfg(feature = "std")]
pub mod spread;
#[cfg(feature = "std")]
pub mod text;
