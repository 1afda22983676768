//! Reader of kernel logs: from whatever a serial line recorded to [`KernelLog`].
//!
//! [`read`] never fails: what is recognised but cannot be taken as it stands is
//! listed in [`KernelLog::problems`] with its line number; everything else in a
//! log is somebody else's business and passed over.
//!
//! | file | concept |
//! |---|---|
//! | `line` | from bytes to messages: escape codes, noise, what was left out |
//! | `json` | messages of logs in JSON |
//! | `stamp`, `prefix` | time stamps; what tools put in front of messages |
//! | `heard` | lines by the host's clock |
//! | `alike` | names of lines, numbers taken out |
//! | `kernel_log`, `kernel_rows`, `reader` | [`KernelLog`], and how its rows are filled line by line |
//! | `boots` | where one boot ends and the next begins |
//! | `end` | where it ends |
//! | `clock` | from which line on its clock runs |
//! | `rows` | numbers and address ranges; [`Span`] |
//! | `e820` | the firmware's memory map |
//! | `srat` | which memory and CPU belongs to which node |
//! | `layout` | what the kernel made of it: ranges, zones, holes |
//! | `processor` | which processor it runs on |
//! | `pages` | how large a page is |
//! | `deferred` | when put-off memory was ready |
//! | `named` | initcalls and services with their time |
//! | `memblock` | the early allocator's trace |
//! | `source` | which rows to take as the machine's memory |
//! | `problem` | [`LogProblem`] |

mod alike;
mod boots;
mod clock;
mod deferred;
mod e820;
mod end;
mod heard;
mod json;
mod kernel_log;
mod kernel_rows;
mod layout;
mod line;
mod memblock;
mod named;
mod pages;
mod prefix;
mod problem;
mod processor;
mod reader;
mod rows;
mod source;
mod srat;
mod stamp;

pub use alike::alike;
pub(crate) use boots::Boundary;
pub use boots::{Boot, boots, each_boot, read};
pub use clock::clock_start;
pub(crate) use clock::{SMP, disorder};
pub(crate) use end::End;
pub use heard::heard;
pub(crate) use json::begins as is_json;
pub use kernel_log::{AcpiTable, CpuCounts, KernelLog, MOST_PROBLEMS};
pub use kernel_rows::{
    DeferredRow, E820Change, E820Kind, E820Row, MemblockAction, MemblockDump, MemblockEvent,
    MemblockRequest, MemblockRow, MovableStart, NodeOverlap, NodeRow, NodeSpan, PageSize, PagesOf,
    Processor, SratCpu, SratRow, Unavailable, ZonePages, ZoneRow,
};
pub(crate) use line::clean_text;
pub use line::{Line, lines};
pub(crate) use named::duration;
pub use named::{Named, initcalls, services};
pub(crate) use prefix::{is_omission, is_prompt};
pub use problem::LogProblem;
pub use rows::Span;
pub use source::MemorySource;
