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
//! - [`store`] has the slabs, and the marks on them that outlive the daemon;
//! - [`fill`] does what takes time: filling, emptying;
//! - [`lease`] knows what is out, to whom, and when it is back;
//! - [`server`] is the daemon that puts them together;
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
pub mod os;
pub mod protocol;
pub mod server;
pub mod store;
