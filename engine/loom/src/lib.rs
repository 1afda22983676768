//! What the engine's crates do at the same time, with the model checker's atomics in one crate: their sources
//! by path, over `firstlight-memory` as it is.
#![no_std]

extern crate std;

#[cfg(not(firstlight_loom))]
use firstlight_memory::levels;
use firstlight_memory::{addr, carver, early, layout, node, store, topology};

#[path = "../../frames/src/acceptance/mod.rs"]
pub mod acceptance;
#[path = "../../frames/src/frames/mod.rs"]
pub mod frames;
#[path = "../../frames/src/platform.rs"]
pub mod platform;
#[path = "../../frames/src/sync.rs"]
mod sync;

#[path = "../../memmap/src/memmap/mod.rs"]
pub mod memmap;
#[path = "../../memmap/src/parallel/mod.rs"]
pub mod parallel;

#[path = "../../workers/src/background/mod.rs"]
pub mod background;
#[path = "../../workers/src/zeroing/mod.rs"]
pub mod zeroing;

#[cfg(all(test, target_os = "linux"))]
mod stacks;
