//! From a list of memory to a layout: what is there, what is in use, which node and zone each
//! frame belongs to. No firmware, no heap, no operating system: lists are slices of the caller's.
//!
//! | module | what it is |
//! |---|---|
//! | [`map`] | [`map::MemoryMap`]: firmware's list of memory, made sorted and disjoint |
//! | [`early`] | [`early::EarlyMemory`]: reserve and allocate before there is an allocator |
//! | [`topology`] | [`topology::Topology`]: which memory and how many CPUs belong to which node |
//! | [`layout`] | [`layout::Layout`]: nodes, zones, what each frame is, holes |
//! | [`addr`], [`node`] | addresses and frames, nodes and zones |
//! | [`store`], [`carver`] | lists and tables in caller-provided memory |
//!
//! ```
//! use firstlight_memory::early::{Allocation, EarlyMemory, EarlyRegion, EarlyRequest};
//! use firstlight_memory::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
//!
//! let entries = [
//!     MapEntry::new(0x10_0000, 64 << 20, MemoryKind::Usable),
//!     MapEntry::new(0, 0x9_fc00, MemoryKind::Usable), // ends inside a page
//! ];
//! let (mut scratch, mut regions) = ([ScratchEntry::EMPTY; 2], [Region::default(); 10]);
//! let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {})?;
//! let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 4]);
//! let mut owners = [Allocation::EMPTY; 4];
//! let mut early = EarlyMemory::from_map(&map, &mut memory, &mut reserved, &mut owners)?;
//! let stack = early.allocate(&EarlyRequest::new(64 << 10, 4096, "stack"))?;
//! assert_eq!(stack.end().get(), 0x10_0000 + (64 << 20)); // from the top down
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "page-16k", feature = "page-64k"))]
compile_error!(
    "the features `page-16k` and `page-64k` are both on: expected one of them, or none for pages of 4 KiB; \
     `cargo tree -e features -i firstlight-memory` shows what turns them on"
);

pub mod addr;
pub mod carver;
pub mod early;
pub mod layout;
// For the crates above, whose words have as many bits as its numbers need; users find them in `addr`.
#[doc(hidden)]
pub mod levels;
pub mod map;
pub mod node;
pub mod store;
pub mod topology;
