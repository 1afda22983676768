//! Linux as a platform for the engine.
//!
//! The engine asks for nothing but bytes and a place for its metadata; this
//! crate finds both on a running Linux without touching the machine's real
//! memory:
//!
//! - [`topology`] reads what firmware and the kernel say about this machine:
//!   memory map, nodes, distances, CPUs, ACPI tables;
//! - [`reserve`] backs the engine's metadata with reserved address space, and
//!   asks the operating system how much of it is resident;
//! - [`threads`] runs work on threads pinned to CPUs;
//! - [`clock`] counts nanoseconds since the process began.
//!
//! Unsafe code lives in [`reserve`] and [`threads`] only, where system calls
//! that the standard library does not offer are made.

pub mod clock;
pub mod reserve;
pub mod threads;
pub mod topology;
