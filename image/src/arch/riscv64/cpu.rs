//! One hart: its id, its own memory by `tp`, starting by SBI, waking by its software interrupt,
//! which is never taken.

use core::arch::asm;
use core::ptr::addr_of;

use super::sbi;
use crate::arch::common::cpus::{AREA_ORDER, Area};

pub(crate) use crate::arch::common::fault_stack::Own;
pub(crate) use crate::arch::common::starter::{FIRST_PAGE_END, Starter, stop};

/// The bit of software interrupts in their registers.
const SOFTWARE_BIT: u64 = 1 << 1;

// `traps.s` finds the area by that.
const _: () = assert!(AREA_ORDER.bytes() == 1 << 16);

unsafe extern "C" {
    static boot_hart: u64;
}

/// This hart's id, which only firmware can read.
pub(crate) fn own_id() -> u64 {
    // SAFETY: an area is never freed; the first hart's id was written before Rust.
    unsafe { area().as_ref().map_or(*addr_of!(boot_hart), |area| area.id) }
}

/// This hart's area; null on the first one.
pub(crate) fn area() -> *const Area {
    let area: u64;
    // SAFETY: reads a register that only `entry.s`, `traps.s` and `enter` write: there are no threads.
    unsafe { asm!("mv {}, tp", out(reg) area, options(nostack, nomem)) }
    area as *const Area
}

/// Called on another hart, before it works.
pub(crate) fn enter(area: *mut Area, own: &'static mut Own) {
    let stack_end = own.end();
    // SAFETY: nothing else uses the two registers; the handlers of faults use that stack.
    unsafe {
        asm!(
            "mv tp, {}",
            "csrw sscratch, {}",
            in(reg) area,
            in(reg) stack_end,
            options(nostack)
        );
    }
}

/// Waits until `done`, which [`wake`] announces: an interrupt that is pending ends the wait.
pub(crate) fn sleep_until(done: impl Fn() -> bool) {
    // SAFETY: it is enabled to end the wait; that of all interrupts stays off.
    unsafe { asm!("csrs sie, {}", in(reg) SOFTWARE_BIT, options(nostack)) }
    loop {
        // What comes from here on is pending at the wait. Without the fence `done` could be asked
        // first: an interrupt between the two would be cleared and not seen.
        // SAFETY: an interrupt that has come has done what it is for.
        unsafe { asm!("csrc sip, {}", "fence iorw, iorw", in(reg) SOFTWARE_BIT, options(nostack)) }
        if done() {
            return;
        }
        // SAFETY: waits.
        unsafe { asm!("wfi", options(nostack)) }
    }
}

/// Ends the sleep of the hart with `id`.
pub(crate) fn wake(id: u64) {
    // SAFETY: what was stored can be seen first; firmware interrupts by a register.
    unsafe { asm!("fence rw, iorw", options(nostack)) }
    sbi::interrupt(id);
}

/// Who starts harts.
pub(crate) const FIRMWARE: &str = "SBI";

/// Whether a hart with this id can be started at all: the last one stands for all.
pub(crate) fn can_reach(id: u64) -> bool {
    id != u64::MAX
}

pub(in crate::arch) use super::sbi::hart_start as start;
