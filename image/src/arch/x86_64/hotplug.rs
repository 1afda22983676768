//! Ports of memory hotplug: the registers of slots and those of fixed events, [`Ports`].

use firstlight_image::hotplug::{Place, PowerButton};
use firstlight_image::virtio::Registers;
use x86_64::instructions::port::{Port, PortRead, PortWrite};

use crate::firmware::late;
use crate::machine::Machine;

/// So many ports from the first on; without any, all of it reads as ones, as a bus does.
#[derive(Default)]
pub(crate) struct Ports {
    first: u16,
    bytes: u16,
}

/// The registers of slots, if there are some, and the power button, on a machine with one: it ends their use.
///
/// # Safety
/// Nothing else uses their ports.
pub(crate) unsafe fn open(machine: &Machine) -> Option<(Ports, PowerButton<Ports>)> {
    let events = Ports {
        first: machine.tables.rest.event_port?,
        bytes: 4,
    };
    // On other boards anything may be at those ports: they are not even looked at.
    let slots = match late::dsdt(machine).and_then(Place::of_slots) {
        Some(Place::Ports(first)) => Ports { first, bytes: 24 },
        _ => Ports::default(),
    };
    Some((slots, PowerButton::fixed(events)))
}

impl Ports {
    /// The port of a value of type `V`; `None` outside.
    fn port<V>(&self, at: u32) -> Option<Port<V>> {
        let at = u16::try_from(at).ok()?;
        let end = usize::from(at) + size_of::<V>();
        let port = self.first.checked_add(at)?;
        (end <= self.bytes.into()).then(|| Port::new(port))
    }

    fn read<V: PortRead>(&self, at: u32, nothing: V) -> V {
        match self.port(at) {
            // SAFETY: firmware's tables name the registers; reading them has no effect.
            Some(mut port) => unsafe { port.read() },
            None => nothing,
        }
    }

    fn write<V: PortWrite>(&self, at: u32, value: V) {
        if let Some(mut port) = self.port(at) {
            // SAFETY: the ports are this driver's (the promise of `open`).
            unsafe { port.write(value) }
        }
    }
}

impl Registers for Ports {
    fn bytes(&self) -> u32 {
        self.bytes.into()
    }
    fn read8(&self, at: u32) -> u8 {
        self.read(at, u8::MAX)
    }
    fn read16(&self, at: u32) -> u16 {
        self.read(at, u16::MAX)
    }
    fn read32(&self, at: u32) -> u32 {
        self.read(at, u32::MAX)
    }
    fn write8(&mut self, at: u32, value: u8) {
        self.write(at, value);
    }
    fn write16(&mut self, at: u32, value: u16) {
        self.write(at, value);
    }
    fn write32(&mut self, at: u32, value: u32) {
        self.write(at, value);
    }
}
