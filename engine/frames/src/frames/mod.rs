//! The frame allocator: [`Frames`].
//!
//! Three levels, as in the page table: giant frames of 1 GiB, huge frames of 2 MiB, pages of
//! 4 KiB. One rule makes it start in microseconds: *a level is written when its parent is
//! first split*, and a segment's first level at the first call that reaches the segment. Each
//! folder knows only those below it:
//!
//! | folder | what it is |
//! |---|---|
//! | `allocator`, `bulk`, `isolation`, `owned` | what a kernel calls |
//! | `borrow` | what a worker calls that zeroes free memory, or reports it to the host |
//! | `build`, `over` | from a [`Layout`](crate::layout::Layout) to [`Frames`]; from a span whose memory comes range by range |
//! | `add`, `hotplug` | memory that is added; its zone is decided then |
//! | `hotplug_error` | why a range is not added, isolated, taken offline or removed |
//! | `offline` | memory that goes: offline, online again, removed |
//! | `present` | what is memory now, for those that show it |
//! | `show`, `zones` | what is free as text; what each zone has |
//! | `hooks` | what a kernel adds |
//! | `find` | [`Frames`], and what a request does until it finds memory or gives up |
//! | `cpu/` | a CPU's cache in front of the shared levels |
//! | `range/` | any number of frames: ranges by address, and ranges anywhere |
//! | `zone/` | nodes and zones, the order of fallback, water marks |
//! | `search/` | where in a segment free memory is found |
//! | `segment/` | frames of one node and zone: the only code that changes giant and huge words |
//! | `word/` | the words, newtypes over their bits, and a huge frame's bitmap with its atomic steps |
//! | `request`, `error`, `metadata` | requests, errors, the cost of tables |
//!
//! All operations but [`Frames::validate`] may be called from any CPU at any time. Calls that
//! free, isolate or read a frame, and requests that find nothing else, wait for a CPU that opens
//! it; the first calls to a segment wait for its tables, and some for [`Frames::add`] and
//! [`Frames::adopt`], which change one list. So an interrupt handler must not call
//! the allocator if it may have interrupted a call on its own CPU.
//!
//! # Movable memory, and ranges that are emptied
//!
//! Request movable content with `movable()`: both mobilities are in one huge frame only when there is no other
//! choice, and the rest of memory stays in large pieces. To empty a range, for hot-remove or a gigantic page,
//! isolate it (`Frames::isolate`), move the content of `Isolation::first_in_use`, and `Isolation::take` the
//! range, or `Isolation::offline` it (`docs/hotplug.md` of the repository). An unused frame reported there is in a per-CPU cache: its CPU frees it at its next call, or when
//! interrupted for `Cpu::poll`. Reserved frames count as in use, the allocator's own tables too, which cannot be
//! moved. They are high in each node; `frames.layout().early()` lists them, in `reserved` and by owner in
//! `owners`. So a loop that empties a range needs an end.
//!
//! `Frames::isolate`, `allocate_range`, `allocate_frames`, `allocate_bulk` bypass the cache of the calling CPU. The
//! first always, the others when frames are missing, request a drain of all CPUs; the caller's own cannot drain in
//! the middle of a call, so `drain` it first, or call `Cpu::allocate_frames`. `allocate_bulk` and `free_bulk` allocate
//! and free many blocks of one order at a time; when memory runs out, the count is too low, which is no error.
//!
//! # Ranges, and blocks that free themselves
//!
//! `allocate_range` allocates a given range, of any length and across nodes; `allocate_frames` finds any number of
//! frames in a row, with any alignment, beyond 1 GiB too; `free_frames` frees either, whole or in parts. A kernel
//! that wants its blocks freed when they are dropped wraps them in `Owned`; with a `Deallocate` of no size the
//! handle is as large as its two numbers.
//!
//! ```
//! use firstlight_frames::addr::{Frame, FrameRange, Order};
//! use firstlight_frames::frames::{AllocError, Frames, Deallocate, Owned, Request};
//! use firstlight_frames::node::NodeId;
//! use std::sync::OnceLock; // a kernel has a cell of its own that is written once
//!
//! /// Memory of a guest: whole giant frames of one node.
//! pub fn guest(frames: &Frames<'_>, node: NodeId, gib: u64) -> Result<FrameRange, AllocError> {
//!     let giant = Order::GIANT.frames();
//!     let here = Request::new(Order::PAGE).only_on(node);
//!     frames.allocate_frames(gib.saturating_mul(giant), giant, here)
//! }
//!
//! /// Frees blocks of this kernel's allocator; of no size.
//! #[derive(Clone, Copy)]
//! pub struct Kernel;
//!
//! /// The allocator of `Kernel`.
//! static FRAMES: OnceLock<Frames<'static>> = OnceLock::new();
//!
//! impl Deallocate for Kernel {
//!     fn deallocate(&self, frame: Frame, order: Order) {
//!         let freed = FRAMES.get().map(|frames| frames.free(frame, order));
//!         debug_assert!(matches!(freed, Some(Ok(()))), "{freed:?}");
//!     }
//! }
//!
//! /// A block that is free again when it is dropped.
//! pub fn owned(order: Order) -> Option<Owned<Kernel>> {
//!     let frame = FRAMES.get()?.allocate(Request::new(order)).ok()?;
//!     Some(Owned::from_raw(frame, order, Kernel))
//! }
//! ```
//!
//! # The rule of frees
//!
//! *No code frees frames that are not its own*: it allocated them, they were reserved as freeable for it,
//! or their owner handed them over. To add memory is to free it, and to adopt it is to say whose it is: what
//! is in use is not added ([`Frames::add`]), and only its owner adopts it ([`Frames::adopt`]). A frame is a
//! number, so these calls are safe and refuse most mistakes; but one that breaks the rule makes frames free
//! that are in use, and their next owner writes to them. So code that turns frames into references, or writes
//! to them, has an unsafe promise of the rule: [`DirectMap::new`](crate::platform::DirectMap::new) and every other
//! [`Platform`](crate::platform::Platform), `MappedMemory::new` and every
//! other `Memory`, `tables::map`, and what implements
//! [`Hooks::zero`] or `Host::report`.
//! Tables and descriptors lie in memory that is reserved for ever, and is nobody's to adopt; or in memory that
//! the caller provides, which is nobody's to add.

mod add;
mod allocator;
#[cfg(feature = "content")]
mod borrow;
mod build;
mod bulk;
mod cpu;
mod error;
mod find;
mod hooks;
mod hotplug;
mod hotplug_error;
mod isolation;
mod metadata;
#[cfg(feature = "hotplug")]
mod offline;
mod over;
mod owned;
mod present;
mod range;
mod request;
mod search;
mod segment;
mod show;
mod word;
mod zone;
mod zones;

#[cfg(test)]
mod tests;

pub use add::NewMemory;
#[cfg(feature = "content")]
pub use borrow::{Borrowed, Cursor};
pub use cpu::Cpu;
pub use cpu::cache::CpuCache;
pub use cpu::cpus::CpusProvided;
pub use cpu::drain::DrainRequest;
#[cfg(not(firstlight_loom))]
pub use cpu::per_cpu::PerCpu;
pub use cpu::slot::CpuEvents;
pub use error::{AllocError, BlockError, BuildError, CpuError, RangeError};
pub use find::Frames;
pub use hooks::{Crossing, Exhausted, Hooks, WaterMark};
pub use hotplug::OnlinePolicy;
pub use hotplug_error::{Holder, HotplugError, Refusal};
pub use isolation::Isolation;
pub use metadata::Metadata;
pub use owned::{Deallocate, Owned};
pub use present::Present;
pub use request::Request;
pub use segment::occupancy::Occupancy;
pub use segment::statistics::{ContentStatistics, FreeBlocks, Statistics};
pub use segment::validate::Violation;
pub use word::content::Content;
pub use word::mobility::Mobility;
pub use zone::marks::{WaterMarks, ZoneMarks};
pub use zone::span::ZoneSpan;
#[cfg(feature = "content")]
pub use zone::zeroed::ZeroedFrames;
pub use zones::ZoneView;
