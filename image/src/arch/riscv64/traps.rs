//! Handlers of faults: an access that the tables allow by now is repeated; any other fault is printed,
//! then the image exits with a code of its own.

use core::arch::asm;
use core::fmt;
use core::sync::atomic::Ordering;

use firstlight_image::words::Test;
use firstlight_wire::{Outcome, marker};

use super::{cpus, marker, stale, translation};
use crate::arch::common::fault_stack::FAULT_STACK_BYTES;
use crate::arch::common::paging;

/// The values that `traps.s` stores: x1 to x31 behind the place of the fault.
#[repr(C)]
struct Registers {
    at: u64,
    x: [u64; 31],
    sstatus: u64,
    _fcsr: u64,
    _f: [u64; 32],
}

const _: () = assert!(size_of::<Registers>() == 528);

impl Registers {
    /// Whether the fault is one of a handler: what it interrupted has lost its frame.
    fn are_of_handler(&self) -> bool {
        let stack_end = core::ptr::from_ref(self).addr() as u64 + size_of::<Self>() as u64;
        let [_ra, sp, ..] = self.x;
        stack_end.wrapping_sub(sp) < FAULT_STACK_BYTES as u64
    }
}

/// Names of registers x1 to x31.
const NAMES: [&str; 31] = [
    "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// Names of exceptions 0 to 15, as the processor's manual has them.
const EXCEPTIONS: [&str; 16] = [
    "instruction address misaligned",
    "instruction access fault",
    "illegal instruction",
    "breakpoint",
    "load address misaligned",
    "load access fault",
    "store address misaligned",
    "store access fault",
    "call from U-mode",
    "call from S-mode",
    "reserved",
    "call from M-mode",
    "instruction page fault",
    "load page fault",
    "reserved",
    "store page fault",
];

/// Faults are reported since the first instructions.
///
/// # Safety
/// None is needed here.
pub(crate) unsafe fn install() {}

/// One line a fault, for the log.
struct Fault<'r> {
    registers: &'r Registers,
    cause: u64,
    value: u64,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = EXCEPTIONS.get(self.cause as usize).copied();
        let name = name.unwrap_or("unknown exception");
        let (cause, at) = (self.cause, self.registers.at);
        write!(f, "{name} (cause {cause:#x}) at {at:#x}")?;
        let access = match self.cause {
            0 | 1 | 12 => "executing",
            4 | 5 | 13 => "reading",
            6 | 7 | 15 => "writing",
            _ => return Ok(()),
        };
        write!(f, ": {access} {:#x}", self.value)
    }
}

/// Every exception. A hart may cache that a page is absent, and go on refusing it once another hart
/// has made it appear: then the access is repeated. All other faults end the machine.
#[unsafe(no_mangle)]
extern "C" fn exception_main(registers: &Registers, cause: u64, value: u64) {
    if registers.are_of_handler() || !allows(cause, value) {
        report(registers, cause, value)
    }
    translation::flush_page(value);
}

/// Whether the page tables allow what page fault `cause` refused at `address`.
pub(super) fn allows(cause: u64, address: u64) -> bool {
    let entry = paging::entry(address).map(|(entry, _)| entry.load(Ordering::Relaxed));
    entry.is_some_and(|entry| translation::allows(entry, cause))
}

/// Prints a fault and leaves.
fn report(registers: &Registers, cause: u64, value: u64) -> ! {
    marker(marker::FAULT);
    // First of all: the rest may fault again.
    let console = crate::end::only_reporter(Outcome::Fault);
    let cpu = cpus::current();
    let fault = Fault {
        registers,
        cause,
        value,
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
            format_args!("{}", x(28)),
            format_args!("sstatus {:#x}", registers.sstatus),
        ],
    )
}

/// Four registers from a number on, as far as there are.
struct Four<'r>(&'r Registers, usize);

impl fmt::Display for Four<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = NAMES.iter().zip(&self.0.x);
        for (name, value) in all.skip(self.1).take(4) {
            write!(f, "{name:<3} {value:016x} ")?;
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
                    "sb zero, 0({})",
                    in(reg) 0_u64,
                    in("t0") 0x1111_u64,
                    in("t1") 0x2222_u64,
                    options(nostack)
                )
            }
        }
        Test::EarlyTouch => {
            let unaccepted = super::DirectMap::TABLES_BELOW.get();
            // SAFETY: as above, where that memory was hidden; else it is memory.
            unsafe { asm!("lb {0}, 0({0})", inout(reg) unaccepted => _, options(nostack)) }
        }
        Test::DoubleFault => {
            // A fault whose stack can't be used, nor the pointer to the hart's area.
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe { asm!("mv sp, {0}", "li tp, 1", "sb zero, 0({0})", in(reg) 0_u64) }
        }
        Test::StalePage => stale::test(),
        _ => {}
    }
}
