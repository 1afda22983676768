//! All tests of this crate from outside, as one program: a module for each thing that is tested.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod bench_pool;
mod emulator;
mod libvirt;
mod names;
mod plan;
#[path = "../../../cli/tests/it/common/schema.rs"]
mod schema;
#[path = "../../../cli/tests/it/common/stand_in.rs"]
mod stand_in;
