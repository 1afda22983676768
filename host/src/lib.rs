//! Linux as a platform for the engine.
//!
//! The engine needs bytes that describe a machine and memory for its metadata.
//! This crate finds both on a running Linux without touching the machine's memory:
//!
//! - [`topology`] reads what firmware and the kernel report about this machine:
//!   memory map, nodes, distances, CPUs, ACPI tables;
//! - [`reserve`] reserves address space and counts how much of it is resident;
//! - [`metadata`] is the engine's platform on such address space;
//! - [`threads`] runs work on threads pinned to CPUs, [`workers`] the engine's jobs;
//! - [`writer`] is the fastest way past the caches that this CPU has;
//! - [`clock`] counts nanoseconds since the process began, and a thread's CPU time;
//! - [`meminfo`] is how much memory this host could provide.
//!
//! Unsafe code lives in [`reserve`], [`metadata`] and [`threads`], system calls that the
//! standard library does not offer and the memory they return, and in [`writer`], instructions
//! that not every CPU has.

pub mod clock;
pub mod meminfo;
pub mod metadata;
pub mod reserve;
pub mod threads;
pub mod topology;
pub mod workers;
pub mod writer;

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The examples of docs/kernel.md compile; the first also runs, in `tests/it/kernel_guide.rs`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel.md")]
pub struct Kernel;

/// Those of docs/kernel-memory.md, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel-memory.md")]
pub struct KernelMemory;

/// The examples of docs/kernel-cpus.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel-cpus.md")]
pub struct KernelCpus;

/// The example of docs/blocks.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/blocks.md")]
pub struct BlocksGuide;

/// The example of docs/content.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/content.md")]
pub struct Content;

/// The examples of docs/restart.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/restart.md")]
pub struct Restart;

/// The example of docs/hotplug.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/hotplug.md")]
pub struct Hotplug;
