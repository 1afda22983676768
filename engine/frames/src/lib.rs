//! A frame allocator for any CPU of a machine with any memory: [`frames::Frames`], over a
//! [`Layout`](layout::Layout) or over memory that comes range by range.
//!
//! What a kernel with boot code of its own takes: nothing here reads firmware's tables. The modules
//! of `firstlight-memory` are here too, so that such a kernel names one crate.
//!
//! | module | what it is |
//! |---|---|
//! | [`frames`] | [`frames::Frames`]: the frame allocator, callable from any CPU |
//! | [`platform`] | [`platform::Platform`]: what a kernel implements |
//! | [`acceptance`] | unaccepted memory of confidential guests, brought online chunk by chunk |
//! | [`map`], [`early`], [`topology`], [`layout`], [`addr`], [`node`], [`store`], [`carver`] | those of `firstlight-memory` |
//!
//! ```
//! use core::mem::MaybeUninit;
//! use firstlight_frames::addr::{FrameRange, Order, PhysRange};
//! use firstlight_frames::frames::{Frames, Request};
//!
//! const SPAN: FrameRange = FrameRange::new(0, 1 << 18).unwrap(); // the first GiB
//! const BYTES: usize = Frames::bytes_for(SPAN, 8).unwrap() as usize;
//! static mut TABLES: [MaybeUninit<u8>; BYTES] = [MaybeUninit::uninit(); BYTES];
//!
//! // SAFETY: the one reference.
//! let frames = Frames::over(SPAN, unsafe { &mut *&raw mut TABLES })?;
//! frames.add(PhysRange::with_size(16 << 20, 64 << 20).unwrap())?; // what a boot loader says is free
//! let huge = frames.allocate(Request::new(Order::HUGE))?;
//! frames.free(huge, Order::HUGE)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `x86_64`, the page tables of the crate `x86_64` take their frames from
//! [`frames::Frames`] (module `x86_64`).
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod acceptance;
pub mod frames;
pub mod platform;
mod sync;
#[cfg(feature = "x86_64")]
pub mod x86_64;

use firstlight_memory::levels;
#[doc(inline)]
pub use firstlight_memory::{addr, carver, early, layout, map, node, store, topology};
