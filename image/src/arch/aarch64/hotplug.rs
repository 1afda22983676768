//! Memory hotplug as boards without fixed hardware have it: registers of slots and of a generic event device, in memory.

use firstlight_image::hotplug::{Place, PowerButton};

use crate::arch::common::registers::Window;
use crate::devices;
use crate::firmware::late;
use crate::machine::Machine;

/// The registers of slots, if there are some, and the power button, on a machine with one: it ends their use.
///
/// # Safety
/// Nothing else uses them.
pub(crate) unsafe fn open(machine: &Machine) -> Option<(Window, PowerButton<Window>)> {
    let dsdt = late::dsdt(machine)?;
    let at = |place| match place {
        Place::Memory(region) => devices::open(machine, region).ok(),
        Place::Ports(_) => None,
    };
    let events = Place::of_events(dsdt).and_then(at)?;
    let slots = Place::of_slots(dsdt).and_then(at).unwrap_or_default();
    Some((slots, PowerButton::Event(events)))
}
