//! What loader and firmware left in memory, by one facade: read in place, checked, reserved.
//! Which tables there are follows from the processor:
//!
//! | file | tables | where |
//! |---|---|---|
//! | `pvh` | the hand-over of a PVH loader: memory map, command line | x86-64 |
//! | `acpi` | CPUs, nodes, timers; how long firmware took | x86-64 |
//! | `uefi` | the hand-over of the UEFI loader, in a module of PVH; a screen, variables, the way out | x86-64 |
//! | `late` | the serial port of the console and the slots of DIMMs, by ACPI, once memory is up | x86-64 |
//! | `times` | none; events and lines of the time before the entry, where firmware is UEFI | x86-64 |
//! | `tree` | a device tree, with all of that | aarch64, riscv64 |
//!
//! Names of the facade:
//!
//! | name | meaning |
//! |---|---|
//! | [`Loader`], [`LoaderError`] | the hand-over: command line, memory map, zones; how to reserve it |
//! | [`FIXED`] | memory that is never allocated, whatever a map says |
//! | [`Root`], [`root`], [`reserve`] | where further tables begin; how to reserve them |
//! | [`Tables`], [`tables`] | CPUs, their domains, tables of nodes |
//! | [`Cpu`], [`frequency`] | a CPU that is listed; the clock |
//! | [`virtio`] | registers of virtio devices in memory |

#[cfg(target_arch = "x86_64")]
mod acpi;
#[cfg(target_arch = "x86_64")]
mod pvh;
#[cfg(target_arch = "x86_64")]
pub(crate) use {
    acpi::{Root, Tables, reserve, root, tables, virtio},
    pvh::{FIXED, Loader, LoaderError},
};

#[cfg(target_arch = "x86_64")]
pub(crate) mod late;
#[cfg(target_arch = "x86_64")]
mod times;
#[cfg(target_arch = "x86_64")]
pub(crate) mod uefi;

#[cfg(not(target_arch = "x86_64"))]
#[path = "no_uefi.rs"]
pub(crate) mod uefi;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod tree;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use tree::{
    FIXED, Loader, LoaderError, Root, Tables, reserve, root, tables, tree, uart, virtio,
};

use firstlight::clock::Frequency;

use crate::arch::clock;
use crate::console::note;

/// A CPU that firmware lists as usable.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    /// The processor's own number for it: an APIC id, the affinity of MPIDR, a hart id.
    pub(crate) id: u64,
}

/// The frequency of ticks and its source: the command line, if it has one, else
/// [`clock`].
pub(crate) fn frequency(
    given: Option<Frequency>,
    tables: &Tables,
) -> Option<(Frequency, &'static str)> {
    if let Some(given) = given {
        return Some((given, "command line"));
    }
    clock::frequency(tables)
        .inspect_err(|error| note(format_args!("times stay in ticks: {error}")))
        .ok()
}
