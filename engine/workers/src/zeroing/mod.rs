//! Free memory that is zeroed before it is requested: [`Zeroing`].
//!
//! *Nothing is ever zeroed twice.* [`Content`](crate::frames::Content) says what is known of free
//! memory; a worker takes only what is unknown, zeroes it past the caches, and gives it back as
//! zero; a [request for zeros](crate::frames::Request::zeroed) takes that first, and a plain one
//! last. What is [`Reported`](crate::frames::Content::Reported) is left to the host.
//!
//! A kernel has one [`Zeroing`] and a thread for each node, which calls [`Worker::step`] and sleeps
//! until the time it returns; more threads where CPUs are idle ([`Step::workers`]). Nothing here has
//! a thread or a lock.
//!
//! | file | what it is |
//! |---|---|
//! | `knobs` | what can be changed while workers run: [`Knob`], [`Knobs`] |
//! | `policy` | when a worker zeroes, and how much: a pure function |
//! | `pace` | the rate limit |
//! | `step` | one bounded step over [`Frames`](crate::frames::Frames) |
//! | `statistics` | what was zeroed, found zeroed and wasted |
//! | `memory` | how a kernel's memory is written: [`Memory`] |
//! | `parallel` | a giant frame zeroed by several CPUs |
//! | `on_free` | memory that is zeroed when it is freed |
//! | `check` | whether what is said to be zero is: [`ZeroCheck`] |

mod check;
mod knobs;
mod memory;
mod on_free;
mod pace;
mod parallel;
mod policy;
mod statistics;
mod step;

#[cfg(all(test, firstlight_loom))]
mod loom_tests;
#[cfg(all(test, not(firstlight_loom)))]
mod tests;

pub use check::ZeroCheck;
pub use knobs::{ALL_BYTES, Knob, Knobs};
pub use memory::{MappedMemory, Memory, PAST_CACHES};
pub use on_free::free_zeroed;
pub use parallel::zero as zero_on_cpus;
pub use policy::{Decision, Policy, Seen};
pub use statistics::Statistics;
pub use step::{Step, Worker, Zeroing};
