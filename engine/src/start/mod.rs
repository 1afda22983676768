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
//! | file | concept |
//! |---|---|
//! | `boot` | [`Boot`]: the hand-over; its map becomes early memory |
//! | `nodes` | [`NodeTables`]: which memory is on which node, by ACPI or a device tree |
//! | `memory` | [`BootMemory`]: memory is known, nodes are not yet applied |
//! | `storage` | [`BootStorage`], [`BootSlots`]: the storage, sized by the compiler or at run time |
//! | `error` | [`StartError`]: why there is no allocator, and which storage would be enough |

mod boot;
mod error;
mod memory;
mod nodes;
mod storage;

use core::fmt::Display;

pub use boot::Boot;
pub use error::{StartError, StorageNeeded};
pub use memory::BootMemory;
pub use nodes::{AcpiNodes, NodeTables, OneNode, TreeNodes};
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
/// use firstlight::addr::{Order, PhysRange};
/// use firstlight::frames::Request;
/// use firstlight::map::{MapEntry, MemoryKind};
/// use firstlight::platform::DirectMap;
/// use firstlight::start::{Boot, BootStorage, start};
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
