//! The result of the way up: [`Machine`].

use firstlight::addr::PhysRange;
use firstlight::cmdline::CommandLine;
use firstlight::frames::{Frames, Metadata};
use firstlight::map::MemoryMap;
use firstlight_image::words::Words;
use spin::Mutex;

use crate::arch::DirectMap;
#[cfg(uefi)]
use crate::firmware::Root;
use crate::firmware::Tables;
use crate::hooks::Kernel;
use crate::preserve::TakenOver;

/// A machine whose memory is up.
pub(crate) struct Machine {
    pub(crate) words: Words,
    pub(crate) command_line: CommandLine<'static>,
    pub(crate) map: MemoryMap<'static>,
    /// All memory, mapped.
    pub(crate) direct: &'static DirectMap,
    /// Of CPUs and nodes.
    pub(crate) tables: Tables,
    /// Where ACPI's tables begin.
    #[cfg(uefi)]
    pub(crate) root: Option<Root>,
    /// Where other CPUs begin, if that must be low and there is memory.
    pub(crate) trampoline: Option<PhysRange>,
    pub(crate) frames: Frames<'static>,
    /// What is added to allocation: page descriptors, and memory to be accepted.
    pub(crate) hooks: &'static Kernel,
    /// What the previous kernel handed over.
    pub(crate) taken: Mutex<TakenOver>,
    /// The allocator's metadata when all memory could be allocated.
    pub(crate) ready: Metadata,
}
