//! The way out with a status: a call to a debugger or emulator that listens. Where nothing listens
//! it has no effect (`traps.s`).

use core::sync::atomic::{AtomicBool, Ordering};

use firstlight_wire::Outcome;

use super::psci;

const EXIT_EXTENDED: u64 = 0x20;
/// The program ends by itself.
const APPLICATION_EXIT: u64 = 0x2_0026;

unsafe extern "C" {
    fn semihosting(operation: u64, parameter: *const u64) -> i64;
}

/// Ends the machine. Where nothing listens it is switched off; else the CPU stops.
pub(crate) fn exit(outcome: Outcome) -> ! {
    // A fault on the way ends here again.
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !TRIED.swap(true, Ordering::Relaxed) {
        end_by_host(outcome);
    }
    psci::system_off();
    super::halt()
}

/// Ends the machine where something listens.
pub(crate) fn end_by_host(outcome: Outcome) {
    let status = u64::from(outcome.exit_status().unsigned_abs());
    let block = [APPLICATION_EXIT, status];
    // SAFETY: the host reads the block.
    unsafe { semihosting(EXIT_EXTENDED, block.as_ptr()) };
}
