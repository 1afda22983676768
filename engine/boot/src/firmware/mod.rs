//! Firmware tables, read where they lie: unchecked bytes.
//!
//! Every parser here takes a slice (or, where a table points to another, a
//! [`PhysRead`]) and copies nothing. Lengths, counts and pointers come from
//! outside and are believed only as far as the bytes behind them go: what
//! cannot be right is a typed error that says what was seen, where, and what
//! was expected. No parser recurses, and each does work in proportion to the
//! bytes it was given.
//!
//! | module | reads | yields |
//! |---|---|---|
//! | [`e820`] | the PC BIOS memory map | map entries |
//! | [`efi`] | the EFI memory map | map entries |
//! | [`pvh`] | the PVH start info of a virtual machine | map entries, modules, command line |
//! | [`fdt`] | the flattened device tree | memory, reservations, CPUs, distances |
//! | [`acpi`] | RSDP, RSDT/XSDT, MADT, SRAT, SLIT, FADT, SPCR, DBG2 | CPUs, memory and their domains; a timer, serial ports |
//! | [`psci`] | | how firmware of Arm machines is called, by a tree or ACPI |
//!
//! What comes out feeds [`crate::map`], [`crate::topology`] and [`crate::clock`].
#![deny(unsafe_code)]

pub mod acpi;
mod bytes;
pub mod e820;
pub mod efi;
pub mod fdt;
pub mod memory;
pub mod psci;
pub mod pvh;

pub use memory::{MemoryImage, PhysRead};
