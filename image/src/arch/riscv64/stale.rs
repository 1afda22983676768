//! `test=stale-page`: the fault of [`common::stale`](crate::arch::common::stale), made in `stale.s`, and
//! which faults are repeated.

use core::ptr::addr_of;

use super::cpu;
use super::traps::allows;
use crate::arch::common::stale::{self, Fault};

/// x1, `fcsr`, x3 to x31, f0 to f31.
type Registers = [u64; 63];
const FCSR: usize = 1;
const TP: usize = 3;

unsafe extern "C" {
    fn stale_fault(before: *const Registers, after: *mut Registers);
    static image_start: u8;
    static boot_stack_guard: u8;
}

/// Provokes the fault, and panics if not all is as it was.
pub(super) fn test() {
    check_what_is_allowed();
    let mut before = stale::pattern();
    // All flags, and a rounding mode.
    before[FCSR] = 0x7f;
    // If the fault is reported instead, the report needs it.
    before[TP] = cpu::area() as u64;
    stale::test(Fault {
        before,
        address: 9,
        result: 10,
        provoke: stale_fault,
    });
}

/// What is repeated and what is reported.
fn check_what_is_allowed() {
    let (code, guard) = (
        addr_of!(image_start) as u64,
        addr_of!(boot_stack_guard) as u64,
    );
    let data = guard - 1;
    for (address, allowed) in [
        (code, [true, true, false]),
        (data, [false, true, true]),
        (guard, [false; 3]),
        (0, [false; 3]),
        (u64::MAX, [false; 3]),
    ] {
        for (cause, allowed) in [12, 13, 15].into_iter().zip(allowed) {
            assert_eq!(
                allows(cause, address),
                allowed,
                "cause {cause} at {address:#x}"
            );
        }
        assert!(!allows(5, address), "an access fault at {address:#x}");
    }
}
