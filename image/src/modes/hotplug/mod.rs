//! `hotplug`: memory comes and goes while the machine runs, until the power button is pressed: DIMMs in
//! slots, and blocks of virtio memory devices.
//!
//! | file | contents |
//! |---|---|
//! | `memory` | [`Plugged`](memory::Plugged): memory that came into the allocator's lists, is used, and goes |
//! | `dimms` | slots: a DIMM comes, another is to go |
//! | `resized` | devices whose size the host changes |
//! | `refused` | why memory is not used, or does not go |

mod dimms;
mod memory;
mod refused;
mod resized;

use firstlight_wire::{Outcome, marker};
use log::{error, info};

use crate::arch::hotplug::open;
use crate::arch::{marker, relax};
use crate::machine::Machine;
use crate::processors::Processors;
use dimms::Dimms;
use memory::Plugging;
use resized::Resized;

/// Serves it.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    // SAFETY: nothing else in this image uses the registers of slots and of the power button.
    let Some((slots, mut button)) = (unsafe { open(machine) }) else {
        error!(
            "hotplug: this machine has no slots of DIMMs or no power button, which would end it; \
             expected pc or q35 of x86_64, or virt of aarch64 by UEFI with ACPI"
        );
        return Outcome::Machine;
    };
    let dimms = Dimms::new(machine, slots);
    // No memory came yet: lists are in what stays.
    let (Some(mut plugging), Some(mut dimms), Some(mut resized)) = (
        Plugging::new(machine, processors),
        dimms,
        Resized::find(machine),
    ) else {
        error!("hotplug: no memory for lists of DIMMs, of devices and of work on descriptors");
        return Outcome::Machine;
    };
    dimms.take_all(&mut plugging);
    if dimms.count() == 0 && resized.count() == 0 {
        error!(
            "hotplug: this machine has neither slots of DIMMs nor a virtio memory device that can be used; \
             QEMU has -m 2G,slots=4,maxmem=8G and -device virtio-mem-pci"
        );
        return Outcome::Machine;
    }
    plugging.list_blocks();
    info!(
        "hotplug: {} slots, {} memory devices, until the power button is pressed",
        dimms.count(),
        resized.count()
    );
    marker(marker::HOTPLUG);
    loop {
        let has_changed = dimms.serve(&mut plugging) | resized.serve(&mut plugging);
        if !has_changed {
            if button.is_pressed() {
                break;
            }
            relax();
        }
    }
    let valid = machine.frames.validate();
    if let Err(violation) = valid {
        error!("hotplug: {violation}");
    }
    match plugging.failures + u64::from(valid.is_err()) {
        0 => Outcome::Ok,
        _ => Outcome::CheckFailed,
    }
}
