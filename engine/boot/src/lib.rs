//! From firmware to a frame allocator: what firmware and its command line say of memory, and
//! [`start()`], all steps in one call.
//!
//! | module | what it is |
//! |---|---|
//! | [`firmware`] | parsers of firmware tables: bytes to entries |
//! | [`topology`] | the tables that name nodes, read into a [`topology::Topology`] |
//! | [`cmdline`] | the words of a kernel command line that concern memory |
//! | [`mod@start`] | [`start()`] |
//! | [`preserve`] | memory that the previous kernel handed over to this one |
//! | [`clock`], [`events`] | what a tick is worth; what happened when, in ticks |
//!
//! ```
//! use firstlight_boot::start::{Boot, BootStorage, StartError, start};
//! use firstlight_frames::addr::PhysRange;
//! use firstlight_frames::frames::Frames;
//! use firstlight_frames::map::MapEntry;
//! use firstlight_frames::platform::DirectMap;
//!
//! fn bring_up(
//!     storage: &'static mut BootStorage<128, 16>,
//!     memory: &'static DirectMap, // all physical memory at one offset
//!     entries: impl Iterator<Item = MapEntry>, // of a parser in `firmware`
//!     kernel: PhysRange,
//! ) -> Result<Frames<'static>, StartError> {
//!     let boot = Boot { reserved: &[(kernel, "kernel")], ..Boot::new(entries) };
//!     start(boot, storage, memory, &mut |seen| println!("{seen}"))
//! }
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod cmdline;
pub mod events;
pub mod firmware;
pub mod preserve;
pub mod start;
pub mod topology;

pub use start::start;

use firstlight_frames::{addr, early, frames, layout, map, node, platform, store};
