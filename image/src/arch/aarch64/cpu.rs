//! One CPU: its id, its own memory by `tpidr_el1`, starting by PSCI, waking by events.

use core::arch::asm;

use super::psci;
use crate::arch::common::cpus::Area;

pub(crate) use crate::arch::common::fault_stack::Own;
pub(crate) use crate::arch::common::starter::{FIRST_PAGE_END, Starter, stop};

/// The bits of MPIDR that name a CPU.
const AFFINITY: u64 = 0xff_00ff_ffff;

/// This CPU's affinity.
pub(crate) fn own_id() -> u64 {
    let id: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) id, options(nostack, nomem)) }
    id & AFFINITY
}

/// This CPU's area; null on the first one.
pub(crate) fn area() -> *const Area {
    let area: u64;
    // SAFETY: reads a register that only `entry.s` and `enter` write.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) area, options(nostack, nomem)) }
    area as *const Area
}

/// Called on another CPU, before it works.
pub(crate) fn enter(area: *mut Area, own: &'static mut Own) {
    let stack_end = own.end();
    // SAFETY: nothing else uses the two registers; the handlers of faults use that stack.
    unsafe {
        asm!(
            "msr tpidr_el1, {}",
            "msr tpidrro_el0, {}",
            in(reg) area,
            in(reg) stack_end,
            options(nostack)
        );
    }
}

/// Waits until `done`, which [`wake`] announces: an event that comes before the wait ends it.
pub(crate) fn sleep_until(done: impl Fn() -> bool) {
    while !done() {
        // SAFETY: waits for an event.
        unsafe { asm!("wfe", options(nostack)) }
    }
}

/// Ends the sleep of all CPUs.
pub(crate) fn wake(_: u64) {
    // SAFETY: what was stored can be seen, then the event is sent.
    unsafe { asm!("dsb ishst", "sev", options(nostack)) }
}

/// Stops nothing: no interrupt is set up by which a CPU could. The others keep to their stacks and to memory of the
/// allocator; what is left to do, and firmware, use neither.
pub(crate) fn stop_others() {}

/// Who starts CPUs.
pub(crate) const FIRMWARE: &str = "PSCI";

/// Whether a CPU with this id can be started at all.
pub(crate) fn can_reach(id: u64) -> bool {
    id & !AFFINITY == 0 && psci::is_there()
}

pub(in crate::arch) use super::psci::cpu_on as start;
