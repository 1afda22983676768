//! Memory blocks: the unit in which Linux's tools see memory come and go.
//!
//! *A block is arithmetic over ranges; nothing is stored for it.* Block `id` has the frames from
//! `id` times the [`BlockSize`] on, and exists where any of them is memory. What a directory
//! `memoryN` of Linux would show (state, valid zones, links to nodes, `phys_index`, `removable`)
//! is computed from the ranges of a [`BlockMemory`] whenever it is read, so 16,384 blocks cost
//! what 1,024 do: no memory, and no time at boot. Hotplug works in huge frames of 2 MiB and does
//! not use blocks.
//!
//! | file | what it decides |
//! |---|---|
//! | `size` | [`BlockSize`], [`BlockId`]: which frames a block has |
//! | `state` | [`BlockState`]: online or offline |
//! | `choice` | [`SizePolicy`]: how large blocks are, and [why](SizeReason) |
//! | `memory` | [`BlockMemory`]: what a view needs to know of memory; a layout, memory as it is now, a layout with memory that is to come |
//! | `block` | [`Block`]: the facts of one, [`ValidZones`] |
//! | `view` | [`Blocks`]: lookup, listing, [runs](BlockRun) |
//!
//! ```
//! use firstlight_blocks::{BlockId, BlockSize};
//! use firstlight_frames::addr::Frame;
//!
//! let size = BlockSize::new(1 << 30)?;
//! assert_eq!(size.block_of(Frame::new((5 << 18) + 7)), BlockId(5));
//! # Ok::<(), firstlight_blocks::BlockSizeError>(())
//! ```
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod block;
mod choice;
mod memory;
mod size;
mod state;
mod view;

pub use block::{Block, NodeLinks, ValidZones};
pub use choice::{Cap, SizeChoice, SizePolicy, SizeReason, common_alignment};
pub use memory::{Added, BlockMemory, Piece, WithAdded, ZoneSet};
pub use size::{BlockId, BlockSize, BlockSizeError};
pub use state::BlockState;
pub use view::{BlockIter, BlockRun, BlockRuns, Blocks};

use firstlight_frames::{addr, frames, layout, node};
