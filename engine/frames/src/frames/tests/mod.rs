//! Tests of the allocator below its interface: against plain models, with threads, and under
//! the model checker.

#[cfg(not(firstlight_loom))]
mod contiguous;
#[cfg(not(firstlight_loom))]
mod frame_set;
pub(crate) mod kit;
#[cfg(firstlight_loom)]
pub(crate) mod loom;
#[cfg(not(firstlight_loom))]
mod model;
#[cfg(not(firstlight_loom))]
mod owners;
#[cfg(not(firstlight_loom))]
mod range_threads;
#[cfg(not(firstlight_loom))]
mod ranges;
