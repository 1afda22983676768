//! The serial port for the log, which also carries the events: the PL011 that the tree names.

use firstlight_image::virtio::Registers;
use firstlight_image::virtio::pci::Region;

use super::device::{Window, window};
use crate::firmware::{tree, uart};

const DATA: u32 = 0;
const FLAGS: u32 = 0x18;
const FLAG_FULL: u32 = 1 << 5;

/// What the tree calls it.
pub(crate) const COMPATIBLE: [&str; 1] = ["arm,pl011"];
/// Where it is on QEMU's board, for the report that a tree cannot be read.
const USUAL: Region = Region {
    address: 0x900_0000,
    bytes: 0x1000,
};

/// One port.
pub(crate) struct Port(Window);

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        let region = match tree() {
            Some(tree) => uart(&tree)?,
            None => USUAL,
        };
        // SAFETY: the tree has registers there. The console's lock is held while a port is
        // opened, and it opens this one once.
        unsafe { window(region) }.map(Self)
    }

    /// There is no other: events are marked lines of the log.
    pub(crate) fn events() -> Option<Self> {
        None
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for byte in bytes {
            while self.0.read32(FLAGS) & FLAG_FULL != 0 {
                super::relax();
            }
            self.0.write32(DATA, (*byte).into());
        }
    }
}
