//! The allocator under the model checker loom: every interleaving of a few CPUs on a small
//! machine. `make loom` runs them.

mod bound;
mod bulk;
mod found;
mod isolate;
mod kit;
mod misuse;
mod protocol;
mod range;
mod slot;
