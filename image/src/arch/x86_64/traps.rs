//! Handlers of faults: print the fault, then exit with a code of its own.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use firstlight_wire::{Outcome, marker};
use x86_64::registers::control::Cr2;

use super::segments::{self, Segments};
use super::{apic, cpu, cpus, marker};
use crate::arch::common::sole;

/// The first CPU's segments, zero until [`install`]; the others have theirs in their areas.
static mut FIRST: MaybeUninit<Segments> = MaybeUninit::zeroed();

/// The values that `traps.s` pushes, lowest address first.
#[repr(C)]
struct Registers {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    vector: u64,
    error_code: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

/// Names of exceptions 0 to 21, as the processor's manual has them.
const NAMES: [&str; 22] = [
    "divide error",
    "debug exception",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound range exceeded",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor segment overrun",
    "invalid TSS",
    "segment not present",
    "stack-segment fault",
    "general protection fault",
    "page fault",
    "reserved",
    "floating-point error",
    "alignment check",
    "machine check",
    "SIMD floating-point exception",
    "virtualization exception",
    "control protection exception",
];

/// Reports faults from now on.
///
/// # Safety
/// Called once, on the first CPU, before the others start.
pub(crate) unsafe fn install() {
    // SAFETY: once, and nothing else uses either (the caller's promise).
    unsafe {
        segments::fill_gates();
        Segments::begin(sole(&raw mut FIRST)).load();
    }
    super::vector::enable();
}

/// One line a fact, for the log.
impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = usize::try_from(self.vector)
            .ok()
            .and_then(|at| NAMES.get(at));
        let name = name.unwrap_or(&"exception");
        write!(
            f,
            "{name} (vector {}, error code {:#x}) at {:#x}",
            self.vector, self.error_code, self.rip
        )?;
        if self.vector == 14 {
            let access = match (self.error_code & 16 != 0, self.error_code & 2 != 0) {
                (true, _) => "executing",
                (_, true) => "writing",
                _ => "reading",
            };
            let reason = match (self.error_code & 8 != 0, self.error_code & 1) {
                (true, _) => "reserved bits set in a page table",
                (_, 0) => "not mapped",
                _ => "not allowed there",
            };
            write!(f, ": {access} {:#x}, {reason}", Cr2::read_raw())?;
        }
        Ok(())
    }
}

/// CPUs that were halted because another one ends the run.
static HALTED: AtomicUsize = AtomicUsize::new(0);

/// How many have halted so far.
pub(super) fn halted() -> usize {
    HALTED.load(Ordering::Relaxed)
}

/// Every exception ends here, but for an NMI in this CPU's own report.
#[unsafe(no_mangle)]
extern "C" fn exception_main(registers: &Registers) {
    if registers.vector == 2 && crate::end::is_reported() {
        if crate::end::is_reported_elsewhere() {
            // That CPU ends the run and has stopped this one.
            HALTED.fetch_add(1, Ordering::Relaxed);
            super::halt()
        }
        return;
    }
    marker(marker::FAULT);
    // First of all: the rest may fault again.
    let console = crate::end::only_reporter(Outcome::Fault);
    let cpu = cpus::current();
    let r = registers;
    crate::end::fault(
        console,
        format_args!("CPU {cpu}: {registers}"),
        &[
            format_args!(
                "rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}",
                r.rax, r.rbx, r.rcx, r.rdx
            ),
            format_args!(
                "rsi {:016x} rdi {:016x} rbp {:016x} rsp {:016x}",
                r.rsi, r.rdi, r.rbp, r.rsp
            ),
            format_args!(
                "r8  {:016x} r9  {:016x} r10 {:016x} r11 {:016x}",
                r.r8, r.r9, r.r10, r.r11
            ),
            format_args!(
                "r12 {:016x} r13 {:016x} r14 {:016x} r15 {:016x}",
                r.r12, r.r13, r.r14, r.r15
            ),
            format_args!("cs {:#x} ss {:#x} rflags {:#x}", r.cs, r.ss, r.rflags),
        ],
    )
}

/// The interrupt that ends a halt: it is only acknowledged.
#[unsafe(no_mangle)]
extern "C" fn wake_main() {
    apic::acknowledge();
}

/// Whether a CPU is ready to interrupt the first one; stored Release, pairs with the Acquire before
/// that one's fault.
static INTERRUPTER: AtomicBool = AtomicBool::new(false);

/// A note that interrupts the first CPU in its report, which waits for the console meanwhile.
struct Interrupter;

impl fmt::Display for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        INTERRUPTER.store(true, Ordering::Release);
        while !crate::end::is_reported_elsewhere() {
            super::relax();
        }
        for _ in 0..100 {
            cpu::interrupt_first();
            super::relax();
        }
        f.write_str("the report was interrupted")
    }
}

/// Causes a fault, for tests.
pub(crate) fn provoke(fault: firstlight_image::words::Test) {
    use firstlight_image::words::Test;
    match fault {
        Test::PageFault => {
            // Address zero is not writable.
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe { core::arch::asm!("mov byte ptr [{}], 1", in(reg) 0_u64, options(nostack)) }
        }
        Test::EarlyTouch => {
            let unaccepted = super::DirectMap::TABLES_BELOW.get();
            // SAFETY: as above, where that memory was hidden; else it is memory.
            unsafe {
                core::arch::asm!("mov al, byte ptr [{}]", in(reg) unaccepted, out("al") _, options(nostack))
            }
        }
        Test::DoubleFault => {
            // A page fault that can't be delivered becomes a double fault.
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe {
                segments::drop_gate(14);
                core::arch::asm!("mov byte ptr [{}], 1", in(reg) 0_u64, options(nostack));
            }
        }
        Test::FaultInterrupted if cpus::current() == 0 => {
            while !INTERRUPTER.load(Ordering::Acquire) {
                super::relax();
            }
            provoke(Test::PageFault);
        }
        Test::FaultInterrupted => crate::console::note(Interrupter),
        // Firmware's vector of the timer, in some.
        Test::PendingTimer => apic::leave_pending(0x68),
        _ => {}
    }
}
