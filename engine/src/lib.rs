//! Firstlight's engine: a firmware memory map goes in, a NUMA-aware frame
//! allocator comes out, in microseconds whatever the machine's size.
//!
//! ```text
//! firmware tables -> MemoryMap -> EarlyMemory -> Layout -> Frames
//! ```
//!
//! `Layout` consumes `EarlyMemory` and `Frames` consumes `Layout`, so what is
//! not ready cannot be named. There is no heap and no operating system
//! underneath: capacities are the caller's, and a store that is too small is an
//! error that states how large it must be.
//!
//! | module | what it is |
//! |---|---|
//! | [`firmware`] | parsers of firmware tables: bytes to entries |
//! | [`map`] | [`map::MemoryMap`]: firmware's list of memory, made sorted and disjoint |
//! | [`cmdline`] | the words of a kernel command line that concern memory |
//! | [`early`] | [`early::EarlyMemory`]: reserve and allocate before there is an allocator |
//! | [`topology`] | [`topology::Topology`]: which memory and how many CPUs belong to which node |
//! | [`layout`] | [`layout::Layout`]: nodes, zones, what each frame is, holes |
//! | [`blocks`] | memory blocks as Linux's tools see them, computed whenever they are read |
//! | [`frames`] | [`frames::Frames`]: the frame allocator, callable from any CPU |
//! | [`memmap`] | [`memmap::Memmap`]: a descriptor for every frame, written when needed |
//! | [`acceptance`] | unaccepted memory of confidential guests, brought online chunk by chunk |
//! | [`parallel`] | jobs over frame ranges, done by many CPUs |
//! | [`zeroing`] | free memory that is zeroed before it is requested |
//! | [`reporting`] | free memory that goes back to the host of a virtual machine |
//! | [`tables`] | large hash tables: size, memory over nodes, zeros |
//! | [`background`] | what these two have in common: steps, and knobs that are changed while they run |
//! | [`preserve`] | memory that the previous kernel handed over to this one |
//! | [`platform`] | [`platform::Platform`]: what a kernel implements |
//! | [`mod@start`] | [`start()`]: all steps in one call |
//! | [`clock`], [`events`] | what a tick is worth; what happened when, in ticks |
//! | [`addr`], [`node`], [`store`] | addresses and frames, nodes and zones, lists in caller-provided memory |
//!
//! With the feature `x86_64`, the page tables of the crate `x86_64` take their frames from
//! [`frames::Frames`] (module `x86_64`).
//!
//! The way from firmware's memory map to an allocator is [`start()`]; `docs/kernel.md` of the
//! repository is the guide for kernel authors: ten lines first, and what may be called from where.
#![cfg_attr(not(firstlight_loom), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod acceptance;
pub mod addr;
#[cfg(feature = "content")]
pub mod background;
pub mod blocks;
pub mod clock;
pub mod cmdline;
pub mod early;
pub mod events;
pub mod firmware;
pub mod frames;
pub mod layout;
#[cfg(all(test, firstlight_loom, target_os = "linux"))]
mod loom_stacks;
pub mod map;
pub mod memmap;
pub mod node;
pub mod parallel;
pub mod platform;
pub mod preserve;
#[cfg(feature = "content")]
pub mod reporting;
pub mod start;
pub mod store;
mod sync;
#[cfg(feature = "content")]
pub mod tables;
pub mod topology;
#[cfg(feature = "x86_64")]
pub mod x86_64;
#[cfg(feature = "content")]
pub mod zeroing;

pub use start::start;

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
