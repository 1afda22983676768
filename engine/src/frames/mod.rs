//! The frame allocator: [`Frames`].
//!
//! Three levels, as in the page table: giant frames of 1 GiB, huge frames of 2 MiB, pages of
//! 4 KiB. One rule makes it start in microseconds: *a level is written when its parent is
//! first split*, and a segment's first level at the first call that reaches the segment. Each
//! folder knows only those below it:
//!
//! | folder | what it is |
//! |---|---|
//! | `allocator`, `bulk`, `isolation`, `owned` | what a kernel calls |
//! | `build` | from a [`Layout`](crate::layout::Layout) to [`Frames`] |
//! | `cpu/` | a CPU's cache in front of the shared levels |
//! | `range/` | any number of frames: ranges by address, and ranges anywhere |
//! | `zone/` | nodes and zones, the order of fallback, water marks |
//! | `search/` | where in a segment free memory is found |
//! | `segment/` | a range of frames with its tables: the only code that changes words |
//! | `word/` | the bits of a word, as pure functions |
//! | `request`, `error`, `metadata` | requests, errors, the cost of tables |
//!
//! All operations may be called from any CPU at any time. A call that frees a part of a frame
//! which another CPU is opening at that moment waits until it is open, so an interrupt handler
//! must not call the allocator if it may have interrupted a call on its own CPU.

mod allocator;
mod build;
mod bulk;
mod cpu;
mod error;
mod isolation;
mod metadata;
mod owned;
mod range;
mod request;
mod search;
mod segment;
mod word;
mod zone;

#[cfg(test)]
mod tests;

pub use allocator::Frames;
pub use cpu::Cpu;
pub use cpu::cache::CpuCache;
pub use cpu::drain::{DrainCpus, DrainRequest, NoDrain};
pub use cpu::slot::CpuSlot;
pub use error::{AllocError, BlockError, BuildError, CpuError, RangeError};
pub use isolation::{IsolateError, Isolation};
pub use metadata::Metadata;
pub use owned::{Deallocate, Owned};
pub use request::Request;
pub use segment::statistics::Statistics;
pub(crate) use segment::table::Carver;
pub use segment::validate::Violation;
pub use word::mobility::Mobility;
pub use zone::marks::{Crossing, WatchMarks, WaterMark, WaterMarks, ZoneMarks};
