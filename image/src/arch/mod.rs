//! Everything that depends on the processor. A folder for each, all with the same names; the
//! rest of the image uses no others. [What a further processor needs](README.md).
//!
//! | name | meaning |
//! |---|---|
//! | `Handover` | values of the loader and the first instructions: its tables, time of entry |
//! | `boot_protocol` | the protocol by which the loader entered |
//! | `ticks` | the counter that starts with the machine |
//! | `marker` | one byte that the host can see at once |
//! | `exit`, `end_by_host` | leaves the machine with an outcome; the same only where an emulator listens |
//! | `halt`, `relax` | stop for good; spin politely |
//! | `protect`, `image_range`, `DirectMap` | page tables: the image's own protection, where it lies, all of memory |
//! | `install_traps`, `provoke` | handlers of faults; faults on purpose |
//! | `clock` | the frequency of ticks; turns of CPUs that share one clock (`take_turns`) |
//! | `serial` | the ports for the log and the events; what a device tree calls them (`COMPATIBLE`) |
//! | `POLICY` | zones, where the loader's tables do not say them |
//! | `device` | registers of devices; the configuration space of PCI (`pci`), where there is one |
//! | `hotplug` | slots of DIMMs and the power button, where there are some |
//! | `runtime`, `frame_buffer` | what UEFI leaves: variables and the reset, a screen; where there is a loader for UEFI |
//! | `cpus` | starting the others and running work on them |
//! | `restart` | the image entered once more, without firmware, where that can be |
//! | `writer` | the fastest way to fill memory |
//!
//! [`common`] has what they share; it uses two modules of a processor's folder:
//!
//! | name | meaning |
//! |---|---|
//! | `cpu` | one CPU: its id, its own memory, starting, waking and waiting |
//! | `translation` | entries of page tables, their root, what must be flushed or seen first, where registers may be |

mod common;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;

#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "riscv64")]
pub(crate) use riscv64::*;
