//! Pre-zeroed memory allocated to VMMs, on stock Linux.
//!
//! A VMM that is to touch all memory of its guest before it starts waits
//! until the kernel has zeroed it. A daemon that keeps memory zeroed beforehand
//! and allocates it as open files takes that wait away:
//!
//! - [`protocol`] is what daemon and clients say to each other;
//! - [`client`] is a client's side of it;
//! - [`launch`] starts a VMM on what was allocated;
//! - [`libvirt`] has libvirt start domains so;
//! - [`config`] is what the operator wants;
//! - [`machine`] decides what becomes of slabs and leases: a value without files and clock;
//! - [`store`] has the files of slabs, and the marks on them that outlive the daemon;
//! - [`fill`] does what takes time: filling, emptying;
//! - [`lease`] has what is charged for leases, and what outlives the daemon of them;
//! - [`server`] is the daemon, which carries out what is decided;
//! - [`export`] shows it to Prometheus and to browsers, in a process of its own;
//! - [`os`] is what all of them need of Linux.

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
