//! The serial port for the log, which also carries the events: the 16550 that the tree names, as
//! firmware set it up; firmware's console where there is no tree.

use firstlight_image::virtio::Registers;

use super::device::{Window, window};
use super::sbi;
use crate::firmware::{tree, uart};

/// What the tree calls it.
pub(crate) const COMPATIBLE: [&str; 1] = ["ns16550a"];

const DATA: u32 = 0;
const STATUS: u32 = 5;
const STATUS_EMPTY: u8 = 1 << 5;

/// One port.
pub(crate) enum Port {
    Uart(Window),
    Firmware,
}

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        let Some(tree) = tree() else {
            return Some(Self::Firmware);
        };
        // SAFETY: the tree has registers there. The console's lock is held while a port is
        // opened, and it opens this one once.
        unsafe { window(uart(&tree)?) }.map(Self::Uart)
    }

    /// There is no other: events are marked lines of the log.
    pub(crate) fn events() -> Option<Self> {
        None
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match self {
                Self::Uart(uart) => {
                    while uart.read8(STATUS) & STATUS_EMPTY == 0 {
                        core::hint::spin_loop();
                    }
                    uart.write8(DATA, *byte);
                }
                Self::Firmware => sbi::put_character(*byte),
            }
        }
    }
}
