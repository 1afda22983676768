//! The serial port for the log, which also carries the events: the PL011 that the tree names, or the port that
//! ACPI names, a PL011 or a 16550. Firmware has set it up.

use firstlight::firmware::acpi::{SerialKind, SerialPort};
use firstlight_image::virtio::Registers;
use firstlight_image::virtio::pci::Region;

use super::device::{Window, window};
use crate::firmware;

/// What is sent goes there in both.
const DATA: u32 = 0;
/// Of a PL011.
const FLAGS: u32 = 0x18;
const FLAG_FULL: u32 = 1 << 5;

/// Of a 16550, and how many it has.
const LINE_STATUS: u32 = 5;
const EMPTY: u32 = 1 << 5;
const REGISTERS: u32 = 8;

/// Looks at a port that takes no byte before it is given up: longer than a byte takes at a rate of 9600.
const PATIENCE: u32 = 1 << 20;

/// What the tree calls it.
pub(crate) const COMPATIBLE: [&str; 1] = ["arm,pl011"];
/// Where it is on QEMU's board, for the report that a tree cannot be read.
const USUAL: Region = Region {
    address: 0x900_0000,
    bytes: 0x1000,
};

/// One port.
pub(crate) struct Port {
    window: Window,
    /// The 16550, if it is one.
    uart: Option<SerialPort>,
    /// Whether it was not ready for so long that nothing is sent any more.
    is_stuck: bool,
}

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        let (region, uart) = match firmware::port()? {
            firmware::Port::Tree(region) => (region, None),
            firmware::Port::Usual => (USUAL, None),
            firmware::Port::Acpi(port) => {
                let uart = (port.kind == SerialKind::Uart16550).then_some(port);
                let address = port.address;
                let bytes = uart.map_or(FLAGS + 4, |uart| REGISTERS * u32::from(uart.stride));
                (Region { address, bytes }, uart)
            }
        };
        let width = uart.map_or(4, |uart| uart.width);
        if region.bytes < FLAGS + 4 && uart.is_none()
            || !region.address.is_multiple_of(width.into())
        {
            // What is read there are ones: a port that is never ready.
            return None;
        }
        // SAFETY: tree or ACPI have registers there. The console's lock is held while a port is
        // opened, and it opens this one once.
        let window = unsafe { window(region) }?;
        Some(Self {
            window,
            uart,
            is_stuck: false,
        })
    }

    /// There is no other: events are marked lines of the log.
    pub(crate) fn events() -> Option<Self> {
        None
    }

    /// Sends all of `bytes`, unless the port takes no more.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_stuck {
                return;
            }
            self.is_stuck = !(0..PATIENCE).any(|_| self.is_ready());
            let window = &mut self.window;
            match self.uart.map(|uart| uart.width) {
                Some(1) => window.write8(DATA, *byte),
                Some(2) => window.write16(DATA, (*byte).into()),
                _ => window.write32(DATA, (*byte).into()),
            }
        }
    }

    /// Whether it takes a byte now; if not, others may go on.
    fn is_ready(&self) -> bool {
        let Self { window, uart, .. } = self;
        let is_ready = match uart {
            None => window.read32(FLAGS) & FLAG_FULL == 0,
            Some(uart) => {
                let at = LINE_STATUS * u32::from(uart.stride);
                let status = match uart.width {
                    1 => window.read8(at).into(),
                    2 => window.read16(at).into(),
                    _ => window.read32(at),
                };
                status & EMPTY != 0
            }
        };
        if !is_ready {
            super::relax();
        }
        is_ready
    }
}
