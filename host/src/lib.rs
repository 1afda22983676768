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
//! - [`threads`] runs work on threads pinned to CPUs, [`workers`] the engine's jobs;
//! - [`clock`] counts nanoseconds since the process began, and those that a thread had
//!   a CPU; [`memory`] is how much this host could provide.
//!
//! What lends memory that is zeroed beforehand stands on:
//!
//! - [`hugepages`], [`memory_file`], [`mapping`]: huge pages, files made of
//!   them, and such files in this process' address space;
//! - [`zero`]: stores that go past the caches;
//! - [`pacing`], [`pressure`], [`background`]: work that is in nobody's way;
//! - [`peer`]: who is at the other end of a Unix socket;
//! - [`seccomp`]: calls of another process that wait for an answer;
//! - [`service`]: what the service manager hands over and wants to hear.
//!
//! Unsafe code lives in [`reserve`], [`metadata`], [`threads`], [`memory_file`],
//! [`mapping`], [`background`], [`peer`], [`seccomp`], [`service`] and `zero/x86.rs` only:
//! system calls that the standard library does not offer, the memory they return,
//! and instructions that not every processor has.

pub mod background;
pub mod clock;
pub mod hugepages;
pub mod mapping;
pub mod memory;
pub mod memory_file;
pub mod metadata;
pub mod pacing;
pub mod peer;
pub mod pressure;
pub mod reserve;
pub mod seccomp;
pub mod service;
pub mod threads;
pub mod topology;
pub mod workers;
pub mod zero;

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The examples of docs/kernel.md compile; the first also runs, in `tests/kernel_guide.rs`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel.md")]
pub struct Kernel;
