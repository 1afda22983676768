//! What is done to free memory behind the boot, on [`Frames`](frames::Frames) alone. Nothing here
//! has a thread or a lock.
//!
//! | module | what it is |
//! |---|---|
//! | [`zeroing`] | free memory that is zeroed before it is requested |
//! | [`reporting`] | free memory that goes back to the host of a virtual machine |
//! | [`background`] | what these two have in common: steps, and knobs that are changed while they run |
//! | [`tables`] | large hash tables: size, memory over nodes, zeros |
//!
//! ```
//! use firstlight_workers::tables::{Growth, TableSpec};
//!
//! let names = TableSpec { name: "names", bucket_bytes: 8, scale: 13, least: 1, most: None };
//! let size = names.size(16 << 18, Growth::SquareRoot); // of 16 GiB
//! assert_eq!(size.buckets, 2 << 20);
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod background;
pub mod reporting;
pub mod tables;
pub mod zeroing;

use firstlight_frames::{addr, frames, node, platform};
use firstlight_memmap::{memmap, parallel};

/// The processor's atomics; models have the checker's.
mod sync {
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering};

    /// Looks at a word after a change of another one, both in the order of all such changes and
    /// looks.
    #[inline]
    pub(crate) fn recheck_u64(word: &AtomicU64) -> u64 {
        word.load(Ordering::SeqCst)
    }
}
