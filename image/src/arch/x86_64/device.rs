//! Devices: the configuration space of PCI, [`PciPorts`].

use firstlight_image::virtio::pci::{ConfigSpace, Function};
use x86_64::instructions::port::Port;

pub(crate) use crate::arch::common::registers::{Window, can_be, window};
use crate::machine::Machine;

/// Where the address of a word of configuration space goes, and where the word is.
const PCI_ADDRESS: u16 = 0xcf8;
const PCI_DATA: u16 = 0xcfc;
const PCI_ENABLE: u32 = 1 << 31;

/// The configuration space of PCI by its two ports. Without PCI all of it reads as ones.
pub(crate) struct PciPorts(());

/// Always there, as ports.
///
/// # Safety
/// Nothing else uses the two ports meanwhile.
#[expect(
    clippy::unnecessary_wraps,
    reason = "other processors have no such ports"
)]
pub(crate) unsafe fn pci(_: &Machine) -> Option<PciPorts> {
    Some(PciPorts(()))
}

impl PciPorts {
    /// Selects a word; the port where it is.
    fn select(function: Function, at: u8) -> Port<u32> {
        let function_bits = u32::from(function.bus) << 16
            | u32::from(function.device & 31) << 11
            | u32::from(function.function & 7) << 8;
        // SAFETY: the port only selects what the other one shows.
        unsafe { Port::new(PCI_ADDRESS).write(PCI_ENABLE | function_bits | u32::from(at & !3)) }
        Port::new(PCI_DATA)
    }
}

impl ConfigSpace for PciPorts {
    fn read(&self, function: Function, at: u8) -> u32 {
        // SAFETY: reading configuration space has no effect.
        unsafe { Self::select(function, at).read() }
    }

    fn write(&mut self, function: Function, at: u8, value: u32) {
        // SAFETY: the caller changes the function that it drives, and no other.
        unsafe { Self::select(function, at).write(value) }
    }
}
