//! The plugin as a process, between a pool's daemon and a kubelet of the test.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod apiserver;
mod claims;
mod daemon;
mod hostile;
mod kit;
mod kubelet;
mod life;
mod restarts;
