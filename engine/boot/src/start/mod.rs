//! From firmware's tables to a frame allocator in one call: [`start`].
//!
//! [`Boot`] says what firmware and boot loader handed over, [`BootStorage`] is the storage of
//! all steps. Those steps stay public, for kernels that need something between them:
//!
//! ```text
//! start = Boot::layout + Frames::build
//!         Boot::layout = Boot::early + BootMemory::layout
//!                        memory map,   nodes, zones
//!                        reservations
//! ```
//!
//! # All steps
//!
//! | | step | before it | storage it keeps |
//! |---|---|---|---|
//! | 1 | `MemoryMap::build`, `CommandLine::change_map`, `layout_policy` | | `scratch` while it runs; `map` until 2 is done |
//! | 2 | `EarlyMemory::from_map` | 1 | `memory`, `reserved`, `owners` |
//! | 3 | `EarlyMemory::reserve`, `reserve_freeable`, `set_movable_node` | 2; `Boot::early` is 1 to 3 | |
//! | 4 | `NodeTables::topology`, or `TopologyBuilder` for rows of other tables | | `topology`, `distances` |
//! | 5 | `Topology::apply` | 3, 4: a node that holds reserved memory cannot be unplugged | |
//! | 6 | `EarlyMemory::allocate`, as often as needed | 5, to allocate by node | |
//! | 7 | `Layout::build` | 5; it consumes early memory and topology; `BootMemory::layout` is 4, 5 and 7 | `layout` |
//! | 7a | `Memmap::reserve`, where the kernel wants a descriptor a frame | 7, and the direct map; it reserves space in early memory | |
//! | 7b | `Pending::list`, where firmware knows unaccepted memory | 7 | the list of `Pending` |
//! | 8 | `Frames::build` | 7 (7a, 7b), and the direct map; it consumes the layout, and calls `Platform::map` once for its lists and once for each node with memory | |
//! | 9 | calls from other CPUs | 8, seen by them through a static cell or the like, and the same direct map on each | |
//!
//! A step consumes or borrows the value of the one before, so most wrong orders do not compile. A missing
//! `apply` is an error of `Layout::build`, unless there is one node. Two rules are not checked: reserve before
//! `apply`, and reserve everything in use before `Frames::build`, because all other memory can be allocated
//! from then on.
//!
//! # Files
//!
//! | file | concept |
//! |---|---|
//! | `boot` | [`Boot`]: the hand-over; its map becomes early memory |
//! | `nodes` | [`NodeTables`]: which memory is on which node, by ACPI or a device tree |
//! | `memory` | [`BootMemory`]: memory is known, nodes are not yet applied |
//! | `storage` | [`BootStorage`], [`BootSlots`]: the storage, sized by the compiler or at run time |
//! | `once` | [`StaticStorage`]: the storage as a `static` |
//! | `error` | [`StartError`]: why there is no allocator, and which storage would be enough |

mod boot;
mod error;
mod memory;
mod nodes;
mod once;
mod storage;

use core::fmt::Display;

pub use boot::Boot;
pub use error::{StartError, StorageNeeded};
pub use memory::BootMemory;
pub use nodes::{AcpiNodes, NodeTables, OneNode, TreeNodes};
pub use once::StaticStorage;
pub use storage::{BootSizes, BootSlots, BootStorage};

use crate::frames::Frames;
use crate::map::MapEntry;
use crate::platform::Platform;

/// All memory of a machine, ready to be allocated.
///
/// Called once, on the boot CPU. The first page is never allocated, nor is what
/// [`Boot::reserved`] lists. `log` is called with every mistake of firmware and command line
/// that was corrected or ignored.
///
/// ```
/// use firstlight_frames::addr::{Order, PhysRange};
/// use firstlight_frames::frames::Request;
/// use firstlight_frames::map::{MapEntry, MemoryKind};
/// use firstlight_frames::platform::DirectMap;
/// use firstlight_boot::start::{Boot, BootStorage, start};
///
/// # let memory = vec![0u64; 4 << 20].leak(); // 32 MiB
/// # let offset = memory.as_mut_ptr().expose_provenance().next_multiple_of(4096);
/// let boot = Boot {
///     command_line: b"mem=24M",
///     reserved: &[(PhysRange::new(0x10_0000, 0x30_0000).unwrap(), "kernel")],
///     ..Boot::new([MapEntry::new(0, 31 << 20, MemoryKind::Usable)])
/// };
/// // SAFETY: 32 MiB are mapped at `offset`, and nothing else uses them.
/// let platform = unsafe { DirectMap::new(offset) };
/// let mut storage = BootStorage::<16, 1>::EMPTY; // a static in a kernel
/// let frames = start(boot, &mut storage, &platform, &mut |seen| println!("{seen}"))?;
///
/// let huge = frames.allocate(Request::new(Order::HUGE))?;
/// frames.free(huge, Order::HUGE)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`StartError`]: no memory, a step that failed, or storage that is too small, with the
/// size that is enough ([`StartError::storage_needed`]).
pub fn start<'s, P: Platform>(
    boot: Boot<'_, impl IntoIterator<Item = MapEntry>>,
    storage: impl Into<BootSlots<'s>>,
    platform: &'s P,
    log: &mut dyn FnMut(&dyn Display),
) -> Result<Frames<'s>, StartError> {
    let layout = boot.layout(storage, log)?;
    Ok(Frames::build(layout, platform)?)
}
