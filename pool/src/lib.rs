//! Pre-zeroed memory allocated to VMMs, on stock Linux.
//!
//! A VMM that is to touch all memory of its guest before it starts waits
//! until the kernel has zeroed it. A daemon that keeps memory zeroed beforehand
//! and allocates it as open files takes that wait away:
//!
//! | module | what it decides |
//! |---|---|
//! | [`protocol`], [`client`] | the messages, and a client's side of them |
//! | [`launch`], [`libvirt`] | starting a VMM on what was allocated; having libvirt do so |
//! | [`config`] | what the operator wants; an error shows its line |
//! | [`machine`] | what becomes of slabs and leases: a value without sockets, threads, clock and files, which `simulation/` plays from a seed |
//! | [`store`] | the files of slabs; the mark on an inode that cannot be taken off; what is clean after a crash |
//! | [`fill`] | work that takes time, in batches at a pace: filling, emptying, zeroing in place, putting back what guests gave back |
//! | [`lease`] | which clients may allocate, and how much; the lease pipe; leases on file; a guest's reserve |
//! | [`server`] | the daemon: carries out what the machine decides; sockets, turns, signals, the service manager |
//! | [`export`] | a status for Prometheus and for browsers, in an unprivileged process |
//! | [`os`] | Linux: memory files, huge pages, peers, seccomp; all unsafe code of the crate |
//!
//! One thread decides and never waits; workers wake it (`server/mod.rs` lists what it opens and closes). What is always true is in `docs/pool-safety.md`, who may do
//! what in `docs/pool-threats.md`, each line with its test; `make soak` runs the long ones, `make simulate` plays the machine.

#![deny(unsafe_code)]

pub mod client;
pub mod config;
pub mod export;
pub mod fill;
pub mod launch;
pub mod lease;
pub mod libvirt;
pub mod machine;
pub mod os;
pub mod protocol;
pub mod server;
pub mod store;
