//! Work that a kernel's threads do a step at a time: [`Next`], and the [`knobs`] of such work.
//!
//! The engine has no threads. A kernel calls a step of [`zeroing`](crate::zeroing) or
//! [`reporting`](crate::reporting) from one of its own, and each step says when to call again. A
//! step takes a bounded time and hides a bounded number of frames for that time.
#![deny(unsafe_code)]

pub mod knobs;

/// When the next step is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once; a kernel lets other threads run before.
    Now,
    /// At that time, in nanoseconds of the clock that the step was given. Earlier is no mistake.
    At(u64),
}
