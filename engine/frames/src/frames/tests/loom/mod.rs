//! The allocator under the model checker loom: every interleaving of a few CPUs on a small
//! machine. `make loom` runs them. Which pairs of writers of each word they have, `writers.md` says.

mod bitmap;
mod bounds;
mod content;
mod found;
mod huges;
mod isolate;
pub(crate) mod kit;
mod levels;
mod misuse;
mod pages;
mod pinned;
mod range;
