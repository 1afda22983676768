//! Ports of memory hotplug: the registers of slots, [`SlotPorts`], and the power button,
//! [`PowerButton`].

use firstlight_image::hotplug::{PORT, Registers};
use x86_64::instructions::port::Port;

use crate::firmware::Tables;

/// The registers of slots, at their ports.
pub(crate) struct SlotPorts(());

/// Both, on a machine with a power button, which ends their use.
///
/// # Safety
/// Nothing else uses their ports.
pub(crate) unsafe fn open(tables: &Tables) -> Option<(SlotPorts, PowerButton)> {
    let port = tables.event_port?;
    // SAFETY: firmware's tables name the port; the rest is the caller's promise.
    Some((SlotPorts(()), unsafe { PowerButton::new(port) }))
}

// Without such registers all of it reads as ones: there are no slots then.
impl Registers for SlotPorts {
    fn read32(&self, at: u16) -> u32 {
        // SAFETY: reading has no effect, whatever is there.
        unsafe { Port::new(PORT + at).read() }
    }

    fn read8(&self, at: u16) -> u8 {
        // SAFETY: as above.
        unsafe { Port::new(PORT + at).read() }
    }

    fn write32(&mut self, at: u16, value: u32) {
        // SAFETY: the ports are this driver's (the promise of `open`).
        unsafe { Port::new(PORT + at).write(value) }
    }

    fn write8(&mut self, at: u16, value: u8) {
        // SAFETY: as above.
        unsafe { Port::new(PORT + at).write(value) }
    }
}

/// Bit 8 of the fixed events.
const POWER_BUTTON: u16 = 1 << 8;

/// The power button, by the registers of fixed events.
pub(crate) struct PowerButton {
    status: Port<u16>,
}

impl PowerButton {
    /// # Safety
    /// `port` is that of fixed events, in firmware's tables, and nothing else uses it.
    unsafe fn new(port: u16) -> Self {
        // The interrupt stays masked; the enable bit is what makes the board note a press.
        // SAFETY: the caller's promise.
        unsafe { Port::new(port + 2).write(POWER_BUTTON) }
        Self {
            status: Port::new(port),
        }
    }

    /// Whether it was pressed.
    pub(crate) fn is_pressed(&mut self) -> bool {
        // SAFETY: as for `new`; reading clears nothing.
        unsafe { self.status.read() & POWER_BUTTON != 0 }
    }
}
