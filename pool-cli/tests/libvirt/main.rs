//! Domains of a real libvirtd on memory of a real pool, in a host of their own that ends
//! with each test (`host.sh`). Skipped with a line where there is no libvirt; `make libvirt`
//! installs it and lets none be skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod command;
mod fallback;
mod kit;
mod life;
mod speed;
