//! RISC-V: from SBI's hand-over (hart id in a0, device tree in a1, S-mode) to Rust, and the
//! processor's functions after that.
//!
//! | file | contents |
//! |---|---|
//! | `entry.s` | the first instructions of every hart, first page tables |
//! | `traps.s`, `traps` | exceptions: repeat what is allowed by now, else print and leave |
//! | `stale.s`, `stale` | a test of that |
//! | `translation` | entries of page tables, of 5, 4 or 3 levels |
//! | `cpu` | one hart: its own memory, starting by SBI, waking by its interrupt |
//! | `sbi` | calls to firmware |
//! | `port` | the way out |
//! | `serial` | the 16550 that the tree names |
//! | `clock` | the frequency of `time` |

#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this architecture"
)]

use core::arch::{asm, global_asm};

use firstlight::layout::LayoutPolicy;
use firstlight::memmap::Writer;

pub(crate) mod clock;
pub(crate) mod cpu;
mod port;
mod sbi;
pub(crate) mod serial;
mod stale;
pub(crate) mod translation;
mod traps;

pub(crate) use super::common::absent::{device, frame_buffer, hotplug, restart};
pub(crate) use super::common::cpus;
pub(crate) use super::common::direct::DirectMap;
pub(crate) use super::common::handover::Handover;
pub(crate) use super::common::paging::{image_range, protect};
pub(crate) use super::common::semihosting::marker;
pub(crate) use port::exit;
pub(crate) use traps::{install as install_traps, provoke};

global_asm!(include_str!("entry.s"));
global_asm!(include_str!("traps.s"));
global_asm!(include_str!("stale.s"));

/// The protocol by which the loader entered.
pub(crate) const fn boot_protocol() -> &'static str {
    "SBI"
}

/// `time`, the same on all harts.
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter, which every hart with supervisor mode has.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nostack)) }
    ticks
}

/// Marks a waiting loop for the processor, and for the host under it.
pub(crate) fn relax() {
    sbi::pass_turn();
}

/// Stops this hart for good.
pub(crate) fn halt() -> ! {
    loop {
        // SAFETY: waits; no interrupt is enabled.
        unsafe { asm!("csrw sie, zero", "wfi", options(nostack, nomem)) }
    }
}

/// The zones of this processor: Linux's.
pub(crate) const POLICY: LayoutPolicy = LayoutPolicy::riscv64();

/// Plain stores.
pub(crate) fn writer() -> Writer {
    Writer::plain()
}
