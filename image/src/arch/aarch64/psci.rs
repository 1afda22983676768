//! Calls to firmware by PSCI 0.2 and later, by the instruction that tree or ACPI name.

use core::arch::asm;

use firstlight::firmware::psci::PsciConduit;

use crate::firmware::psci as conduit;

const CPU_ON: u64 = 0xc400_0003;
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Whether firmware names an instruction for calls.
pub(super) fn is_there() -> bool {
    conduit().is_some()
}

/// Starts the CPU with `id` at `entry`, with `context` in x0.
///
/// # Safety
/// `entry` is code for a CPU that starts, and can use `context`.
pub(in crate::arch) unsafe fn cpu_on(id: u64, entry: u64, context: u64) -> Result<(), i64> {
    // SAFETY: a barrier; then the caller's promise. What the other CPU reads is written before it starts.
    let code = unsafe {
        asm!("dsb ishst", options(nostack, preserves_flags));
        call(CPU_ON, [id, entry, context])
    };
    match code {
        0 => Ok(()),
        code => Err(code),
    }
}

/// Switches the machine off, where firmware can.
pub(super) fn system_off() {
    // SAFETY: nothing goes on after it.
    unsafe { call(SYSTEM_OFF, [0; 3]) };
}

/// One call; -1, not supported, where firmware names no instruction.
///
/// # Safety
/// As the function has it.
unsafe fn call(function: u64, [a, b, c]: [u64; 3]) -> i64 {
    let result;
    // SAFETY: firmware names the instruction; firmware keeps all registers but x0 to x17.
    unsafe {
        match conduit() {
            Some(PsciConduit::Hvc) => asm!(
                "hvc #0",
                inlateout("x0") function => result,
                in("x1") a, in("x2") b, in("x3") c,
                clobber_abi("C")
            ),
            Some(PsciConduit::Smc) => asm!(
                "smc #0",
                inlateout("x0") function => result,
                in("x1") a, in("x2") b, in("x3") c,
                clobber_abi("C")
            ),
            None => result = -1,
        }
    }
    result
}
