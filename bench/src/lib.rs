//! Measurements of the engine beside its rivals.
//!
//! - [`alloc`]: allocators beside each other, `firstlight bench alloc`;
//! - [`sweep`]: how fast descriptors are written, `firstlight bench descriptors`;
//! - [`machine`]: synthetic machines of any size and shape, and the storage to lay
//!   them out;
//! - [`rivals`]: allocators of others behind one trait; [`heap`]: the size of theirs;
//! - [`tables`]: the firmware tables of a large machine; [`host`]: this one, in words.
//!
//! `benches/bring_up` times the engine beside its rivals; the program `counts`
//! counts instructions and guards them, `measurements` writes `docs/measurements.md`; `tests/it/metadata.rs` bounds what is
//! written and reserved before the first allocation.

pub mod alloc;
pub mod heap;
pub mod host;
pub mod machine;
pub mod rivals;
pub mod sweep;
pub mod tables;
pub mod zero;
