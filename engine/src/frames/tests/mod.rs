//! Tests of the allocator below its interface: against plain models, with threads, and under
//! the model checker.

#[cfg(not(loom))]
mod contiguous;
#[cfg(not(loom))]
mod frame_set;
pub(crate) mod kit;
#[cfg(loom)]
pub(crate) mod loom;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod range_threads;
#[cfg(not(loom))]
mod ranges;
