//! Pre-zeroed memory lent to virtual machine monitors, on stock Linux.
//!
//! A monitor that is to touch all memory of its guest before it starts waits
//! until the kernel has zeroed it. A daemon that keeps memory zeroed beforehand
//! and lends it as open files takes that wait away:
//!
//! - [`protocol`] is what daemon and borrowers say to each other;
//! - [`client`] is a borrower's side of it;
//! - [`launch`] starts a monitor on what was borrowed.

#![deny(unsafe_code)]

pub mod client;
pub mod launch;
pub mod protocol;
