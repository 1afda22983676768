//! What loader and firmware left in memory, by one facade: read in place, checked, reserved.
//! Which tables there are follows from the processor:
//!
//! | file | tables | where |
//! |---|---|---|
//! | `pvh` | the hand-over of a PVH loader: memory map, command line | x86-64, aarch64 from the UEFI loader |
//! | `acpi` | CPUs, nodes, timers; how long firmware took | the same |
//! | `uefi` | the hand-over of the UEFI loader, in a module of PVH; a screen, variables, the way out | the same |
//! | `late` | ACPI's tables that are read once memory is up | x86-64, aarch64 |
//! | `port` | one of them: the serial port of the console | x86-64 |
//! | `times` | none; events and lines of the time before the entry, where firmware is UEFI | the same |
//! | `tree` | a device tree, with all of that | aarch64, riscv64 |
//! | `pc`, `either`, `board` | none: they choose | x86-64; aarch64; riscv64 |
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
//! | [`registers`] | registers that have to be mapped before they are used |
//! | [`virtio`] | registers of virtio devices in memory |

#[cfg(uefi)]
mod acpi;
#[cfg(target_arch = "aarch64")]
mod either;
#[cfg(uefi)]
pub(crate) mod late;
#[cfg(target_arch = "x86_64")]
pub(crate) mod port;
#[cfg(uefi)]
mod pvh;
#[cfg(uefi)]
mod times;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod tree;
#[cfg(uefi)]
pub(crate) mod uefi;
#[cfg(not(uefi))]
#[path = "no_uefi.rs"]
pub(crate) mod uefi;

#[cfg(target_arch = "x86_64")]
mod pc;
#[cfg(target_arch = "x86_64")]
pub(crate) use pc::{
    FIXED, Loader, LoaderError, Root, Tables, registers, reserve, root, tables, virtio,
};

#[cfg(target_arch = "aarch64")]
pub(crate) use either::{
    FIXED, Loader, LoaderError, Port, Root, Tables, port, psci, registers, reserve, root, tables,
    virtio,
};

#[cfg(target_arch = "riscv64")]
mod board;
#[cfg(target_arch = "riscv64")]
pub(crate) use board::{
    FIXED, Loader, LoaderError, Root, Tables, registers, reserve, root, tables, tree, uart, virtio,
};

use core::fmt::Display;

use firstlight::clock::Frequency;
use firstlight::map::MapEntry;
use firstlight::start::{Boot, BootMemory, BootSlots, StartError};

use crate::arch::clock;
use crate::console::note;

/// A CPU that firmware lists as usable.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    /// The processor's own number for it: an APIC id, the affinity of MPIDR, a hart id.
    pub(crate) id: u64,
}

/// Takes a memory map for what is known of it so far.
fn early<'b>(
    map: impl IntoIterator<Item = MapEntry>,
    boot: Boot<'b, ()>,
    slots: BootSlots<'static>,
    log: &mut dyn FnMut(&dyn Display),
) -> Result<BootMemory<'b, 'static>, StartError> {
    let Boot {
        map: (),
        command_line,
        reserved,
        freeable,
        nodes,
        policy,
    } = boot;
    let boot = Boot {
        map,
        command_line,
        reserved,
        freeable,
        nodes,
        policy,
    };
    boot.early(slots, log)
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
