//! Leases: what is charged for them, and what outlives the daemon of them.
//!
//! A lease lives until the last writing end of its lease pipe is closed, or it is
//! given back. What becomes of it is decided in [`crate::machine`].
//!
//! - [`quota`]: which client may allocate, and how much;
//! - `replace.rs`: what is charged until a clean slab takes the place of one that is back;
//! - `pipe.rs`: the lease pipe; [`journal`]: leases on file, for the next daemon;
//! - `reserve.rs`: how much of what a guest gives back is kept ready for it;
//! - `grant.rs`: a right to slabs of one class; `whose.rs`: for whom something counts.

mod grant;
pub mod journal;
mod pipe;
pub mod quota;
mod replace;
mod reserve;
mod whose;

pub use grant::Grant;
pub use pipe::{LeasePipe, Pipes};
pub use replace::{Owed, OwedTo, Replacements};
pub use reserve::{Due, Reserve};
pub use whose::Whose;

/// A lease's number, unique in the life of a daemon.
pub type Serial = u64;
