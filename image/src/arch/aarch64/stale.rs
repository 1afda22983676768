//! `test=stale-page`: the fault of [`common::stale`](crate::arch::common::stale), made in `stale.s`.

use crate::arch::common::stale::{self, Fault};

/// x0 to x30.
type Registers = [u64; 31];

unsafe extern "C" {
    fn stale_fault(before: *const Registers, after: *mut Registers);
}

/// Provokes the fault, and panics if not all is as it was.
pub(super) fn test() {
    stale::test(Fault {
        before: stale::pattern(),
        address: 0,
        result: 1,
        provoke: stale_fault,
    });
}
