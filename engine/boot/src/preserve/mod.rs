//! Memory that outlives its kernel: ranges handed over to the next one, which a fast restart
//! enters without firmware.
//!
//! The old kernel writes a table with a [`Draft`] at a place that the command line of both names
//! ([`CommandLine::preserve_place`](crate::cmdline::CommandLine::preserve_place)). The next one
//! calls [`Preserved::accept`] on its early memory once everything in use is reserved and before
//! anything is allocated: all ranges are reserved, or none is and the error says why. Nothing
//! writes to them: the frame allocator starts with them allocated and their content unknown,
//! tables and descriptors lie elsewhere. Their owners [take](Preserved::take) them back; what no
//! owner takes is [released](Preserved::release).
//!
//! A table is of one restart: it has a nonce, which the old kernel also hands to the next one outside of memory (a
//! register, the command line). A kernel that was started cold has none, so a table that survived a
//! reset, or a kill, is refused. With [`Draft::finish_with`] and [`Preserved::check_content`] a change of what ranges
//! hold is found too; [`Preserved::check_nodes`] finds one that is not on its node.
//!
//! A table counts once: accepting erases its name, whatever the result, so that a later reset
//! does not find ranges that were freed meanwhile.
//!
//! # The table
//!
//! Little endian. A header, then the ranges: ascending, disjoint, in pages of 4 KiB.
//!
//! | at | bytes | header |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | [`VERSION`] |
//! | 10 | 2 | algorithm of the checksum: 1, CRC-32C |
//! | 12 | 4 | checksum of the whole table, this field as zero |
//! | 16 | 4 | bytes of the table: 48, and 40 for each range |
//! | 20 | 4 | number of ranges |
//! | 24 | 8 | physical address of the table |
//! | 32 | 8 | nonce of the restart, not zero |
//! | 40 | 8 | flags: 1, ranges have checksums of their content |
//!
//! | at | bytes | range |
//! |---|---|---|
//! | 0 | 8 | first byte |
//! | 8 | 8 | length in bytes |
//! | 16 | 8 | tag: the owner's own number, a guest's for example |
//! | 24 | 4 | owner: the part of the kernel that takes it back |
//! | 28 | 2 | node, 0xffff where it is not known |
//! | 30 | 2 | zero |
//! | 32 | 8 | checksum of its content, or zero |
//!
//! A change of one bit is always found: length and number of ranges confirm each other, and
//! CRC-32C sees it everywhere else.
//!
//! | file | concept |
//! |---|---|
//! | `format` | where the fields are; [`PreservedRange`] |
//! | `checksum` | CRC-32C |
//! | `draft` | [`Draft`]: writing |
//! | `table` | [`read`]: what a table says by itself |
//! | `accept` | [`Preserved`]: its ranges reserved, taken, released |
//! | `error` | [`PreserveError`] |
#![deny(unsafe_code)]

mod accept;
mod checksum;
mod draft;
mod error;
mod format;
mod table;

pub use accept::Preserved;
pub use checksum::checksum;
pub use draft::Draft;
pub use error::{PreserveError, RangeFault};
pub use format::{HEADER_BYTES, MAGIC, PreservedRange, RANGE_BYTES, VERSION};
pub use table::{Table, read};
