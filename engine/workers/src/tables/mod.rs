//! Large hash tables of a kernel: how large, where, and zeroed how.
//!
//! *A table's size follows memory, its zeros come from memory that is zero already.* A kernel has a
//! few tables whose size depends on how much memory there is (names, inodes, connections);
//! together they are hundreds of MiB on a large machine. [`TableSpec::size`] gives the number
//! of buckets, [`allocate`] takes the memory in chunks spread over nodes as
//! [requests for zeros](crate::frames::Request::zeroed): what is known to be zero is not written, and the
//! rest is zeroed a chunk at a time, not a bucket at a time. [`OpenTable`] is a hash table on such chunks.
//!
//! | file | what it is |
//! |---|---|
//! | `size` | [`TableSpec`], [`TableSize`]: buckets by memory, Linux's [growth](Growth) and ours |
//! | `memory` | [`allocate`], [`free`], [`map`]: chunks over nodes |
//! | `open` | [`OpenTable`]: open addressing over chunks; all-zero is empty |
//! | `error` | [`TableError`] |

mod error;
mod memory;
mod open;
mod size;

pub use error::TableError;
pub use memory::{Chunk, allocate, chunk_order, chunks, free, map};
pub use open::{NoSpace, OpenTable, ShapeError, Slot};
pub use size::{Growth, TableSize, TableSpec, TooLarge};
