//! Ports of memory hotplug: the registers of slots, [`SlotPorts`], and the power button,
//! [`PowerButton`].

use firstlight_image::hotplug::Registers;
use x86_64::instructions::port::Port;

use crate::firmware::late;
use crate::machine::Machine;

/// The registers of slots, at their ports: the first; without slots there is none.
pub(crate) struct SlotPorts(Option<u16>);

/// Both, on a machine with a power button, which ends their use.
///
/// # Safety
/// Nothing else uses their ports.
pub(crate) unsafe fn open(machine: &Machine) -> Option<(SlotPorts, PowerButton)> {
    let port = machine.tables.rest.event_port?;
    // On other boards anything may be at those ports: they are not even looked at.
    let place = late::slots(machine).filter(|place| place.is_io);
    let first = place.and_then(|place| u16::try_from(place.address).ok());
    // SAFETY: firmware's tables name the port; the rest is the caller's promise.
    Some((SlotPorts(first), unsafe { PowerButton::new(port) }))
}

// Where there are none all of it reads as ones, as a bus does.
impl Registers for SlotPorts {
    fn read32(&self, at: u16) -> u32 {
        let Some(first) = self.0 else { return u32::MAX };
        // SAFETY: firmware names the registers; reading them has no effect.
        unsafe { Port::new(first + at).read() }
    }

    fn read8(&self, at: u16) -> u8 {
        let Some(first) = self.0 else { return u8::MAX };
        // SAFETY: as above.
        unsafe { Port::new(first + at).read() }
    }

    fn write32(&mut self, at: u16, value: u32) {
        let Some(first) = self.0 else { return };
        // SAFETY: the ports are this driver's (the promise of `open`).
        unsafe { Port::new(first + at).write(value) }
    }

    fn write8(&mut self, at: u16, value: u8) {
        let Some(first) = self.0 else { return };
        // SAFETY: as above.
        unsafe { Port::new(first + at).write(value) }
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
