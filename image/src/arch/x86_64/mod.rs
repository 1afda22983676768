//! x86-64: from PVH's 32-bit entry to Rust in long mode, and the processor's functions
//! after that.
//!
//! | file | contents |
//! |---|---|
//! | `entry.s` | the first instructions, first page tables, the start of the other CPUs |
//! | `traps.s`, `traps` | exceptions: print and leave; the interrupt that wakes a CPU |
//! | `segments` | GDT, TSS and IDT of each CPU |
//! | `paging` | protection of the image, a direct map of all memory |
//! | `direct` | physical memory as slices and pointers |
//! | `apic` | the local interrupt controller: this CPU's id, starting and waking others |
//! | `cpus` | every CPU's area, starting, mailboxes |
//! | `restart` | the image as it was loaded, entered once more |
//! | `clock` | the frequency of the TSC |
//! | `vector` | vector registers, for filling memory alone |
//! | `device` | devices' registers, and configuration space of PCI |
//! | `hotplug` | the ports of DIMM slots and of the power button |
//! | `serial`, `port` | serial ports, markers, the way out |

#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this architecture"
)]

use core::arch::global_asm;

mod apic;
pub(crate) mod clock;
pub(crate) mod cpus;
pub(crate) mod device;
mod direct;
pub(crate) mod hotplug;
mod paging;
mod port;
pub(crate) mod restart;
mod segments;
pub(crate) mod serial;
mod traps;
mod vector;

pub(crate) use direct::DirectMap;
pub(crate) use paging::{image_range, protect};
pub(crate) use port::{exit, marker};
pub(crate) use traps::{install as install_traps, provoke};
pub(crate) use vector::writer;

global_asm!(include_str!("entry.s"));
global_asm!(include_str!("traps.s"));

/// Values from the first instructions.
#[derive(Clone, Copy)]
pub(crate) struct Handover {
    /// Physical address of PVH's start info.
    pub(crate) start_info: u64,
    /// The time stamp counter at the first instruction; it starts with the machine.
    pub(crate) entry_ticks: u64,
}

/// Called by `entry.s` on the first CPU, on its stack, in long mode.
#[unsafe(no_mangle)]
extern "C" fn first_cpu_main(start_info: u64, entry_ticks: u64) -> ! {
    crate::main(Handover {
        start_info,
        entry_ticks,
    })
}

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor with long mode has it, and user mode does not exist here.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Marks a waiting loop for the processor, and for the host under it.
pub(crate) fn relax() {
    core::hint::spin_loop();
}

/// Stops this CPU for good.
pub(crate) fn halt() -> ! {
    loop {
        ::x86_64::instructions::interrupts::disable();
        ::x86_64::instructions::hlt();
    }
}

/// A reference to `place`, a static.
///
/// # Safety
/// There is no other use of it while the reference is in use.
unsafe fn sole<T>(place: *mut T) -> &'static mut T {
    // SAFETY: a static is never freed; the rest is the caller's promise.
    unsafe { &mut *place }
}
