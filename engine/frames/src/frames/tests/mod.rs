//! Tests of the allocator below its interface: against plain models, with threads, and under
//! the model checker.

#[cfg(not(firstlight_loom))]
mod contiguous;
pub(crate) mod kit;
#[cfg(not(firstlight_loom))]
mod levels;
#[cfg(firstlight_loom)]
pub(crate) mod loom;
#[cfg(all(not(firstlight_loom), feature = "content", feature = "hotplug"))]
mod model;
#[cfg(all(not(firstlight_loom), feature = "content", feature = "hotplug"))]
mod owners;
#[cfg(not(firstlight_loom))]
mod range_threads;
