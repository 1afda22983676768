//! All tests of this crate from outside, as one program: a module for each thing that is tested.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

#[path = "../../../engine/tests/it/acpi_tables/mod.rs"]
mod acpi_tables;
mod kernel_guide;
mod topology;
mod x86_64_page_tables;
