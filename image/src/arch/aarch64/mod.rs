//! AArch64: from Linux's boot protocol (a device tree in x0, EL2 or EL1) or the UEFI loader to Rust at
//! EL1, and the processor's functions after that.
//!
//! | file | contents |
//! |---|---|
//! | `entry.s` | the file's header, the first instructions of every CPU, first page tables |
//! | `traps.s`, `traps` | exceptions: repeat what is mapped by now, else print and leave |
//! | `stale.s`, `stale` | a test of that |
//! | `translation` | entries of page tables |
//! | `first_map` | the first page tables where firmware is UEFI; `larger_pages` in its place where pages have 16 or 64 KiB |
//! | `runtime` | the way to UEFI's services |
//! | `cpu` | one CPU: its own memory, starting by PSCI, waking by events |
//! | `psci` | calls to firmware |
//! | `semihosting` | the way out: a call to a debugger or emulator |
//! | `serial` | the port that tree or ACPI name: a PL011, or by ACPI a 16550 |
//! | `clock` | the generic timer |
//! | `device`, `hotplug` | by ACPI: PCI; slots of DIMMs and the power button |

#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this architecture"
)]

use core::arch::{asm, global_asm};

use firstlight::addr::PAGE_SHIFT;
use firstlight::layout::LayoutPolicy;
use firstlight::memmap::Writer;

pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod device;
#[cfg(not(any(feature = "page-16k", feature = "page-64k")))]
mod first_map;
#[cfg(any(feature = "page-16k", feature = "page-64k"))]
#[path = "larger_pages.rs"]
mod first_map;
pub(crate) mod hotplug;
mod psci;
pub(crate) mod runtime;
mod semihosting;
pub(crate) mod serial;
mod stale;
pub(crate) mod translation;
mod traps;

pub(crate) use super::common::absent::restart;
pub(crate) use super::common::cpus;
pub(crate) use super::common::direct::DirectMap;
pub(crate) use super::common::frame_buffer;
pub(crate) use super::common::handover::Handover;
pub(crate) use super::common::paging::{image_range, protect};
pub(crate) use super::common::semihosting::marker;
pub(crate) use first_map::is_by_uefi;
pub(crate) use semihosting::{end_by_host, exit};
pub(crate) use traps::{install as install_traps, provoke};

global_asm!(include_str!("entry.s"), page_shift = const PAGE_SHIFT);
global_asm!(include_str!("traps.s"));
global_asm!(include_str!("stale.s"));

/// The protocol by which the loader entered.
pub(crate) fn boot_protocol() -> &'static str {
    match first_map::is_by_uefi() {
        true => "the UEFI loader",
        false => "Linux's boot protocol for arm64",
    }
}

/// The virtual counter of the generic timer.
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter that EL1 has; the barrier keeps it from being read early.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) }
    ticks
}

/// What was added to the counter since it counts: no register tells.
pub(crate) fn ticks_added() -> Option<i64> {
    None
}

/// Marks a waiting loop for the processor, and for the host under it.
pub(crate) fn relax() {
    // Not `spin_loop`, which is a barrier on this processor: an emulator does not yield at it.
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nostack, nomem, preserves_flags)) }
}

/// Stops this CPU for good.
pub(crate) fn halt() -> ! {
    loop {
        // SAFETY: waits; interrupts are masked.
        unsafe { asm!("wfi", options(nostack, nomem, preserves_flags)) }
    }
}

/// The zones of this processor: Linux's where all devices reach 32 bits of addresses and memory
/// begins below, as it does where this image runs.
pub(crate) const POLICY: LayoutPolicy = LayoutPolicy::arm64(0, 32);

/// Plain stores.
pub(crate) fn writer() -> Writer {
    Writer::plain()
}
