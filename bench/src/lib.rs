//! What the measurements of the engine share.
//!
//! - [`machine`]: made-up machines of any size and shape, and the storage to
//!   lay them out;
//! - [`tables`]: the firmware tables of a large machine.
//!
//! `benches/bring_up` times the engine beside its rivals; the program `counts`
//! counts instructions and guards them; `tests/metadata.rs` bounds what is
//! written and reserved before the first allocation.

pub mod alloc;
pub mod machine;
pub mod rivals;
pub mod tables;
