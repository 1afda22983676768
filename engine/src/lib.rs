//! Firstlight's engine: a firmware memory map goes in, a NUMA-aware frame
//! allocator comes out, in microseconds whatever the machine's size.
//!
//! ```text
//! firmware tables -> MemoryMap -> EarlyMemory -> Layout -> Frames
//! ```
//!
//! Each arrow consumes its left side, so what is not ready cannot be named.
//! There is no heap and no operating system underneath: capacities are the
//! caller's, and a store that is too small is an error that says how large it
//! must be.
#![cfg_attr(not(loom), no_std)]

pub mod addr;
pub mod cmdline;
pub mod early;
pub mod firmware;
pub mod frames;
pub mod layout;
pub mod map;
pub mod node;
pub mod platform;
pub mod store;
mod sync;
pub mod topology;
