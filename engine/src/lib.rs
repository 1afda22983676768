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
//! Each crate below stands alone; this one has them all, under the names of their modules.
//!
//! | crate | module | what it is |
//! |---|---|---|
//! | `firstlight-memory` | [`map`] | [`map::MemoryMap`]: firmware's list of memory, made sorted and disjoint |
//! | | [`early`] | [`early::EarlyMemory`]: reserve and allocate before there is an allocator |
//! | | [`topology`] | [`topology::Topology`]: which memory and how many CPUs belong to which node |
//! | | [`layout`] | [`layout::Layout`]: nodes, zones, what each frame is, holes |
//! | | [`addr`], [`node`] | addresses and frames, nodes and zones |
//! | | [`store`], [`carver`] | lists and tables in caller-provided memory |
//! | `firstlight-frames` | [`frames`] | [`frames::Frames`]: the frame allocator, callable from any CPU |
//! | | [`platform`] | [`platform::Platform`]: what a kernel implements |
//! | | [`acceptance`] | unaccepted memory of confidential guests, brought online chunk by chunk |
//! | `firstlight-boot` | [`firmware`] | parsers of firmware tables: bytes to entries |
//! | | [`topology`] | the tables that name nodes, read into a [`topology::Topology`] |
//! | | [`cmdline`] | the words of a kernel command line that concern memory |
//! | | [`mod@start`] | [`start()`]: all steps in one call |
//! | | [`preserve`] | memory that the previous kernel handed over to this one |
//! | | [`clock`], [`events`] | what a tick is worth; what happened when, in ticks |
//! | `firstlight-memmap` | [`memmap`] | [`memmap::Memmap`]: a descriptor for every frame, written when needed |
//! | | [`parallel`] | jobs over frame ranges, done by many CPUs |
//! | `firstlight-workers` | [`zeroing`] | free memory that is zeroed before it is requested |
//! | | [`reporting`] | free memory that goes back to the host of a virtual machine |
//! | | [`background`] | what these two have in common: steps, and knobs that are changed while they run |
//! | | [`tables`] | large hash tables: size, memory over nodes, zeros |
//! | `firstlight-blocks` | [`blocks`] | memory blocks as Linux's tools see them, computed whenever they are read |
//!
//! With the feature `x86_64`, the page tables of the crate `x86_64` take their frames from
//! [`frames::Frames`] (module `x86_64`).
//!
//! The way from firmware's memory map to an allocator is [`start()`]; `docs/kernel.md` of the
//! repository is the guide for kernel authors: ten lines first, and what may be called from where.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use firstlight_blocks as blocks;
#[doc(inline)]
pub use firstlight_boot::{clock, cmdline, events, firmware, preserve, start, topology};
#[cfg(feature = "x86_64")]
#[doc(inline)]
pub use firstlight_frames::x86_64;
#[doc(inline)]
pub use firstlight_frames::{
    acceptance, addr, carver, early, frames, layout, map, node, platform, store,
};
#[doc(inline)]
pub use firstlight_memmap::{memmap, parallel};
#[cfg(feature = "content")]
#[doc(inline)]
pub use firstlight_workers::{background, reporting, tables, zeroing};

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
