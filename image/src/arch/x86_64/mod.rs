//! x86-64: from PVH's 32-bit entry to Rust in long mode, and the processor's functions
//! after that.
//!
//! | file | contents |
//! |---|---|
//! | `entry.s` | the first instructions, first page tables, the start of the other CPUs |
//! | `traps.s`, `traps` | exceptions: print and leave; the interrupt that wakes a CPU |
//! | `segments` | GDT, TSS and IDT of each CPU |
//! | `translation` | entries of page tables |
//! | `apic` | the local interrupt controller: this CPU's id, starting and waking others |
//! | `cpu` | one CPU: its own memory, starting, waking |
//! | `restart` | the image as it was loaded, entered once more |
//! | `clock` | the frequency of the TSC |
//! | `vector` | vector registers, for filling memory alone |
//! | `runtime` | the way to UEFI's services |
//! | `device` | configuration space of PCI |
//! | `hotplug` | the ports of DIMM slots and of the power button |
//! | `serial`, `port` | serial ports, markers, the way out |

#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this architecture"
)]

use core::arch::global_asm;

use ::x86_64::registers::model_specific::Msr;
use firstlight::layout::LayoutPolicy;
use raw_cpuid::CpuId;

mod apic;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod device;
pub(crate) mod hotplug;
mod port;
pub(crate) mod restart;
pub(crate) mod runtime;
mod segments;
pub(crate) mod serial;
pub(crate) mod translation;
mod traps;
mod vector;

pub(crate) use super::common::cpus;
pub(crate) use super::common::direct::DirectMap;
pub(crate) use super::common::frame_buffer;
pub(crate) use super::common::handover::Handover;
pub(crate) use super::common::paging::image_range;
pub(crate) use port::{end_by_host, exit, marker};
pub(crate) use translation::protect;
pub(crate) use traps::{install as install_traps, provoke};
pub(crate) use vector::writer;

global_asm!(include_str!("entry.s"));
global_asm!(include_str!("traps.s"));

/// The protocol by which the loader entered.
pub(crate) const fn boot_protocol() -> &'static str {
    "PVH"
}

/// The zones of this processor.
pub(crate) const POLICY: LayoutPolicy = LayoutPolicy::DEFAULT;

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor with long mode has it, and user mode does not exist here.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// What was added to the time stamp counter since it counts, if the processor tells and it is not 0.
pub(crate) fn ticks_added() -> Option<i64> {
    const TSC_ADJUST: Msr = Msr::new(0x3b);
    let features = CpuId::new().get_extended_feature_info();
    let tells = features.is_some_and(|features| features.has_tsc_adjust_msr());
    // SAFETY: the processor has the register, and reading it has no effect.
    let added = tells.then(|| unsafe { TSC_ADJUST.read() }.cast_signed());
    added.filter(|added| *added != 0)
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
