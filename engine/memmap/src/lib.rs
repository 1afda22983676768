//! Descriptors of page frames, and jobs over frame ranges that write them with many CPUs.
//!
//! | module | what it is |
//! |---|---|
//! | [`memmap`] | [`memmap::Memmap`]: a descriptor for every frame, written when needed |
//! | [`parallel`] | jobs over frame ranges, done by many CPUs |
//!
//! ```
//! use firstlight_memmap::memmap::Writer;
//!
//! let mut words = [0; 64];
//! Writer::plain().fill(&mut words, &[7; 8]);
//! assert_eq!(words, [7; 64]);
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod memmap;
pub mod parallel;

use firstlight_frames::{addr, carver, early, layout, node, platform};

/// The processor's atomics; models have the checker's.
mod sync {
    pub(crate) use core::hint::spin_loop as pause;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
}
