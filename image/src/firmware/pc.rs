//! A PC: PVH's hand-over, and ACPI.

use core::iter::Empty;

use firstlight::addr::PhysRange;
use firstlight::firmware::pvh::PvhError;
use firstlight_image::virtio::pci::Region;

pub(crate) use super::acpi::{Root, Tables, reserve, root};
pub(crate) use super::pvh::{FIXED, Loader};
use crate::arch::DirectMap;

/// Why a hand-over cannot be read.
pub(crate) type LoaderError = PvhError;

/// Reads the tables that are needed. Faulty ones are reported and left out.
pub(crate) fn tables(memory: DirectMap, _: &Loader, root: Option<&Root>) -> Tables {
    super::acpi::tables(memory, root)
}

/// None: ports are no memory.
pub(crate) fn registers(_: &Tables) -> Option<PhysRange> {
    None
}

/// None: the command line names them, see `devices`.
pub(crate) fn virtio() -> Empty<Region> {
    core::iter::empty()
}
