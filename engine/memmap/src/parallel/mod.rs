//! Jobs over frame ranges, done by many CPUs: [`run`].
//!
//! A kernel has ranges of frames ([`WorkRange`], each of a node), CPUs that can
//! work ([`Worker`], each on a node) and a way to start them ([`Workers`]). A
//! [`Job`] says how ranges are cut into chunks and which CPUs take which:
//!
//! - [`Chunking::Padata`] does as Linux does: a range belongs to the CPUs of
//!   its node, the number of threads and the size of a chunk follow a formula;
//! - [`Chunking::Stealing`] is one queue over all nodes. A thread does its own
//!   node's chunks first, then those of others, so that nodes without CPUs are
//!   served and the slowest node delays no other.
//!
//! The caller of [`run`] repeats the chunk of a thread that panicked, so work may
//! be done twice.
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | how many threads, how large a chunk: pure functions |
//! | `worker` | the CPUs: [`Worker`], [`Workers`] |
//! | `queue` | the chunks of ranges, each taken once |
//! | `run` | a job from start to [`Report`] |
//! | `error` | what is refused, and why |
#![deny(unsafe_code)]

mod error;
mod plan;
mod queue;
mod run;
mod worker;

#[cfg(all(test, firstlight_loom))]
mod loom_tests;
#[cfg(all(test, not(firstlight_loom)))]
mod tests;

pub use error::JobError;
pub use plan::{Chunking, Job, Plan};
pub use queue::{Report, WorkRange};
pub use run::run;
pub use worker::{Alone, Worker, Workers};
