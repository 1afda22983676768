//! Calls to firmware by SBI.

use core::arch::asm;

const TIMER: u64 = 0x5449_4d45;
const INTERRUPT: u64 = 0x73_5049;
const HART_STATE: u64 = 0x48_534d;
const RESET: u64 = 0x5352_5354;
/// Of the first version; firmware's own console.
const PUT_CHARACTER: u64 = 1;

/// The bit of the timer in the registers of interrupts.
const TIMER_BIT: u64 = 1 << 5;

/// Starts the hart with `id` at `entry`, with `context` in a1.
///
/// # Safety
/// `entry` is code for a hart that starts, and can use `context`.
pub(in crate::arch) unsafe fn hart_start(id: u64, entry: u64, context: u64) -> Result<(), i64> {
    // SAFETY: the caller's promise.
    match unsafe { call(HART_STATE, 0, [id, entry, context]) } {
        0 => Ok(()),
        code => Err(code),
    }
}

/// Interrupts the hart with `id`.
pub(super) fn interrupt(id: u64) {
    // A mask of one bit, from this hart on.
    // SAFETY: that hart only wakes by it.
    unsafe { call(INTERRUPT, 0, [1, id, 0]) };
}

/// Switches the machine off, where firmware can.
pub(super) fn switch_off() {
    // SAFETY: nothing goes on after it.
    unsafe { call(RESET, 0, [0; 3]) };
}

/// A byte for firmware's console.
pub(super) fn put_character(byte: u8) {
    // SAFETY: no memory is involved.
    unsafe { call(PUT_CHARACTER, 0, [byte.into(), 0, 0]) };
}

/// Sleeps for a tick: an emulator that runs one hart at a time goes on with another only at such a
/// moment.
pub(super) fn pass_turn() {
    // SAFETY: the timer wakes this hart; its interrupt is never taken.
    unsafe {
        call(TIMER, 0, [super::ticks() + 1, 0, 0]);
        asm!("csrs sie, {0}", "wfi", "csrc sie, {0}", in(reg) TIMER_BIT, options(nostack));
    }
}

/// One call; what it returns as an error, 0 if none.
///
/// # Safety
/// As the function has it.
unsafe fn call(extension: u64, function: u64, [a, b, c]: [u64; 3]) -> i64 {
    let result;
    // SAFETY: firmware keeps all registers but a0 and a1.
    unsafe {
        asm!(
            "ecall",
            inlateout("a0") a => result,
            inlateout("a1") b => _,
            in("a2") c, in("a6") function, in("a7") extension,
            options(nostack)
        );
    }
    result
}
