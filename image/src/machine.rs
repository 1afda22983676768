//! The result of the way up: [`Machine`].

use firstlight::acceptance::Pending;
use firstlight::addr::PhysRange;
use firstlight::cmdline::CommandLine;
use firstlight::frames::{Frames, Metadata};
use firstlight::map::MemoryMap;
use firstlight::memmap::Mode;
use firstlight_image::words::Words;
use spin::RwLock;

use crate::descriptors::Descriptors;
use crate::firmware::Acpi;

/// A machine whose memory is up.
pub(crate) struct Machine {
    pub(crate) words: Words,
    pub(crate) command_line: CommandLine<'static>,
    pub(crate) map: MemoryMap<'static>,
    pub(crate) acpi: Acpi,
    /// A page below 1 MiB where other CPUs begin, if there is memory.
    pub(crate) trampoline: Option<PhysRange>,
    pub(crate) frames: Frames<'static>,
    /// Page descriptors and their mode, if the command line has one.
    pub(crate) descriptors: Option<(Mode, RwLock<Descriptors>)>,
    /// Memory that must be accepted before it is touched.
    pub(crate) pending: &'static [Pending],
    /// The allocator's metadata when all memory could be allocated.
    pub(crate) ready: Metadata,
}
