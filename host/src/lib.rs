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
//! - [`metadata`] is the engine's platform: it lends that address space;
//! - [`threads`] runs work on threads pinned to CPUs, [`crew`] the engine's jobs;
//! - [`writer`] chooses the engine's widest stores, [`rivals`] are what they are
//!   measured against, [`sweep`] measures both;
//! - [`clock`] counts nanoseconds since the process began, and those that a thread had
//!   a CPU; [`heap`] says what the process has on its heap, [`meminfo`] what is left to allocate.
//!
//! Unsafe code lives in [`reserve`], [`metadata`], [`threads`], [`writer`], [`rivals`] and [`heap`]
//! only: system calls that the standard library does not offer, the memory they give, and
//! instructions that not every processor has; and where [`sweep`] says what its descriptors are.

pub mod clock;
pub mod crew;
pub mod heap;
pub mod meminfo;
pub mod metadata;
pub mod reserve;
pub mod rivals;
pub mod sweep;
pub mod threads;
pub mod topology;
pub mod writer;

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The examples of docs/kernel.md compile; the first also runs, in `tests/kernel_guide.rs`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel.md")]
pub struct Kernel;
