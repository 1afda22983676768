//! The serial port for the log, which also carries the events: the PL011 that the tree names, or the port that
//! ACPI names, a PL011 or a 16550. Firmware has set it up.

use firstlight::firmware::acpi::{SerialKind, SerialPort};
use firstlight_image::virtio::Registers;
use firstlight_image::virtio::pci::Region;

use super::device::{Window, window};
use crate::firmware;

/// Registers of a PL011.
const DATA: u32 = 0;
const FLAGS: u32 = 0x18;
const FLAG_FULL: u32 = 1 << 5;
/// Those that are used.
const PL011_BYTES: u32 = 0x20;

/// Registers of a 16550, and how many it has.
const TRANSMIT: u32 = 0;
const LINE_STATUS: u32 = 5;
const EMPTY: u32 = 1 << 5;
const REGISTERS: u32 = 8;

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
}

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        let (region, uart) = match firmware::port()? {
            firmware::Port::Tree(region) => (region, None),
            firmware::Port::Usual => (USUAL, None),
            firmware::Port::Acpi(port) => {
                let is_uart = port.kind == SerialKind::Uart16550;
                let bytes = match is_uart {
                    true => REGISTERS * u32::from(port.stride),
                    false => PL011_BYTES,
                };
                let address = port.address;
                (Region { address, bytes }, is_uart.then_some(port))
            }
        };
        // SAFETY: tree or ACPI have registers there. The console's lock is held while a port is
        // opened, and it opens this one once.
        let window = unsafe { window(region) }?;
        Some(Self { window, uart })
    }

    /// There is no other: events are marked lines of the log.
    pub(crate) fn events() -> Option<Self> {
        None
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let Self { window, uart } = self;
        for byte in bytes {
            let Some(uart) = *uart else {
                while window.read32(FLAGS) & FLAG_FULL != 0 {
                    super::relax();
                }
                window.write32(DATA, (*byte).into());
                continue;
            };
            let at = |register: u32| register * u32::from(uart.stride);
            let status = |window: &Window| match uart.width {
                1 => window.read8(at(LINE_STATUS)).into(),
                2 => window.read16(at(LINE_STATUS)).into(),
                _ => window.read32(at(LINE_STATUS)),
            };
            while status(window) & EMPTY == 0 {
                super::relax();
            }
            match uart.width {
                1 => window.write8(at(TRANSMIT), *byte),
                2 => window.write16(at(TRANSMIT), (*byte).into()),
                _ => window.write32(at(TRANSMIT), (*byte).into()),
            }
        }
    }
}
