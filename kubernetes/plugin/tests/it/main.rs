//! The plugin and the driver as processes, between a pool's daemon and a kubelet of the test.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod apiserver;
mod claims;
mod daemon;
mod driver;
mod forgotten;
mod hostile;
mod kit;
mod kubelet;
mod life;
mod published;
mod restarts;
