//! Devices: the configuration space of PCI in memory, where ACPI has it.

use firstlight::firmware::acpi::Signature;
use firstlight_image::virtio::{Ecam, ecam};

pub(crate) use crate::arch::common::registers::{Window, can_be, window};
use crate::devices;
use crate::firmware::late;
use crate::machine::Machine;

/// The table with its address.
const MCFG: Signature = Signature(*b"MCFG");

/// The configuration space of PCI, mapped; none with a device tree.
///
/// # Safety
/// Nothing else uses it meanwhile.
pub(crate) unsafe fn pci(machine: &Machine) -> Option<Ecam<Window>> {
    let region = ecam::place(late::table(machine, MCFG)?)?;
    devices::open(machine, region).ok().map(Ecam)
}
