//! Devices of boards without ports: registers in memory. PCI is not searched.

use firstlight_image::virtio::pci::{ConfigSpace, Function};

pub(crate) use super::registers::{Window, can_be, window};

/// The configuration space of PCI by ports: there is none.
pub(crate) enum PciPorts {}

impl PciPorts {
    /// None.
    ///
    /// # Safety
    /// None is needed here.
    pub(crate) unsafe fn open() -> Option<Self> {
        None
    }
}

impl ConfigSpace for PciPorts {
    fn read(&self, _: Function, _: u8) -> u32 {
        match *self {}
    }

    fn write(&mut self, _: Function, _: u8, _: u32) {
        match *self {}
    }
}
