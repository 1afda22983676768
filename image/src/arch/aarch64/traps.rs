//! Handlers of faults: print the fault, then exit with a code of its own. What `traps.s` repeats does
//! not come here.

use core::arch::asm;
use core::fmt;

use firstlight_image::words::Test;
use firstlight_wire::{Outcome, marker};

use super::{cpus, marker, stale};

/// The values that `traps.s` stores.
#[repr(C)]
struct Registers {
    x: [u64; 31],
    sp: u64,
    elr: u64,
    spsr: u64,
    vector: u64,
}

/// Faults are reported since the first instructions.
///
/// # Safety
/// None is needed here.
pub(crate) unsafe fn install() {}

/// One line a fault, for the log.
struct Fault<'r> {
    registers: &'r Registers,
    syndrome: u64,
    address: u64,
}

/// Names of kinds of vectors: four for each of the levels and stacks they come from.
const KINDS: [&str; 4] = ["synchronous", "interrupt", "fast interrupt", "system error"];

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.syndrome >> 26 & 0x3f;
        let name = match (self.registers.vector % 4, class) {
            (0, 0x00) => "unknown instruction",
            (0, 0x07) => "vector registers are off",
            (0, 0x0e) => "illegal state",
            (0, 0x15..=0x17) => "call",
            (0, 0x18) => "access to a system register",
            (0, 0x20 | 0x21) => "instruction abort",
            (0, 0x22) => "program counter not aligned",
            (0, 0x24 | 0x25) => "data abort",
            (0, 0x26) => "stack pointer not aligned",
            (0, 0x3c) => "breakpoint",
            (kind, _) => KINDS[kind as usize],
        };
        write!(
            f,
            "{name} (syndrome {:#x}) at {:#x}",
            self.syndrome, self.registers.elr
        )?;
        if let 0x20 | 0x21 | 0x24 | 0x25 = class {
            let access = match (class, self.syndrome & 1 << 6 != 0) {
                (0x20 | 0x21, _) => "executing",
                (_, true) => "writing",
                _ => "reading",
            };
            let reason = match self.syndrome & 0x3c {
                0x00 => "not an address",
                0x04 => "not mapped",
                0x08 => "not marked as accessed",
                0x0c => "not allowed there",
                _ => "refused by the bus",
            };
            write!(f, ": {access} {:#x}, {reason}", self.address)?;
        }
        Ok(())
    }
}

/// Every exception ends here.
#[unsafe(no_mangle)]
extern "C" fn exception_main(registers: &Registers, syndrome: u64, address: u64) -> ! {
    marker(marker::FAULT);
    // First of all: the rest may fault again.
    let console = crate::end::only_reporter(Outcome::Fault);
    let cpu = cpus::current();
    let fault = Fault {
        registers,
        syndrome,
        address,
    };
    let x = |first: usize| Four(registers, first);
    crate::end::fault(
        console,
        format_args!("CPU {cpu}: {fault}"),
        &[
            format_args!("{}", x(0)),
            format_args!("{}", x(4)),
            format_args!("{}", x(8)),
            format_args!("{}", x(12)),
            format_args!("{}", x(16)),
            format_args!("{}", x(20)),
            format_args!("{}", x(24)),
            format_args!(
                "x28 {:016x} x29 {:016x} x30 {:016x} sp  {:016x}",
                registers.x[28], registers.x[29], registers.x[30], registers.sp
            ),
            format_args!("spsr {:#x}", registers.spsr),
        ],
    )
}

/// Four registers from a number on.
struct Four<'r>(&'r Registers, usize);

impl fmt::Display for Four<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.1..self.1 + 4;
        for (value, number) in self.0.x[numbers.clone()].iter().zip(numbers) {
            write!(f, "x{number:<2} {value:016x} ")?;
        }
        Ok(())
    }
}

/// Causes a fault, for tests.
pub(crate) fn provoke(test: Test) {
    match test {
        Test::PageFault => {
            // Address zero is not mapped. Two registers hold what the report must show.
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe {
                asm!(
                    "strb wzr, [{}]",
                    in(reg) 0_u64,
                    in("x1") 0x1111_u64,
                    in("x2") 0x2222_u64,
                    options(nostack)
                )
            }
        }
        Test::EarlyTouch => {
            let unaccepted = super::DirectMap::TABLES_BELOW.get();
            // SAFETY: as above, where that memory was hidden; else it is memory.
            unsafe { asm!("ldrb {0:w}, [{0}]", inout(reg) unaccepted => _, options(nostack)) }
        }
        Test::DoubleFault => {
            // A fault whose stack can't be used.
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe { asm!("mov sp, {0}", "strb wzr, [{0}]", in(reg) 0_u64) }
        }
        Test::StalePage => stale::test(),
        _ => {}
    }
}
