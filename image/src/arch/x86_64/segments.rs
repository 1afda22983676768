//! Segments, task state and interrupt table, which a CPU needs to handle a fault.

use core::mem::MaybeUninit;
use core::ptr::addr_of;

use x86_64::VirtAddr;
use x86_64::instructions::tables::{lidt, load_tss};
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

use crate::arch::common::sole;

/// Interrupt that wakes a halted CPU.
pub(super) const WAKE_VECTOR: u8 = 0xf0;
/// Spurious interrupt of the local APIC.
pub(super) const SPURIOUS_VECTOR: u8 = 0xff;
/// Entries in `exception_entries`, [`ENTRY_BYTES`] each.
const EXCEPTIONS: usize = 32;
const ENTRY_BYTES: u64 = 16;
/// Vectors with a stack of their own: double fault, page fault and machine check may come while the
/// stack is unusable. An NMI may come while this stack is in use, and goes on with the current one:
/// where that is unusable, it becomes one of these.
const OWN_STACK: [usize; 3] = [8, 14, 18];
/// The report of a fault needs two buffers of several KiB, and there is no guard below.
const FAULT_STACK_BYTES: usize = 16384;
/// The 64-bit code segment: first in the table.
const CODE: u128 = 0x8;

unsafe extern "C" {
    static exception_entries: u8;
    static wake_entry: u8;
    static spurious_entry: u8;
}

/// The interrupt table, the same on all CPUs.
static mut GATES: [u128; 256] = [0; 256];

/// An interrupt gate to `handler`; `stack` 1 is the fault stack, 0 goes on with the current one.
const fn gate(handler: u64, stack: u128) -> u128 {
    const PRESENT_INTERRUPT_GATE: u128 = 0x8e00;
    let handler = handler as u128;
    (handler & 0xffff)
        | CODE << 16
        | stack << 32
        | PRESENT_INTERRUPT_GATE << 32
        | (handler >> 16 & 0xffff) << 48
        | (handler >> 32) << 64
}

/// Fills the interrupt table.
///
/// # Safety
/// Called once, on the first CPU, before the others start.
pub(super) unsafe fn fill_gates() {
    let entries = addr_of!(exception_entries) as u64;
    // SAFETY: nothing else reads or writes the table yet (the caller's promise).
    let gates = unsafe { sole(&raw mut GATES) };
    let addresses = (entries..).step_by(ENTRY_BYTES as usize);
    for (vector, (slot, address)) in gates.iter_mut().zip(addresses).take(EXCEPTIONS).enumerate() {
        *slot = gate(address, u128::from(OWN_STACK.contains(&vector)));
    }
    gates[usize::from(WAKE_VECTOR)] = gate(addr_of!(wake_entry) as u64, 0);
    gates[usize::from(SPURIOUS_VECTOR)] = gate(addr_of!(spurious_entry) as u64, 0);
}

/// Acknowledges whatever interrupt firmware left pending: each one else is a fault, as soon as
/// interrupts are enabled.
///
/// # Safety
/// Called on the first CPU, before the others start and while interrupts are disabled.
pub(super) unsafe fn acknowledge_all() {
    // SAFETY: no other CPU uses the table yet, and no interrupt can come (the caller's promise).
    let gates = unsafe { sole(&raw mut GATES) };
    let acknowledge = gate(addr_of!(wake_entry) as u64, 0);
    let missing = gates[EXCEPTIONS..].iter_mut().filter(|gate| **gate == 0);
    missing.for_each(|gate| *gate = acknowledge);
}

/// Makes exception `vector` undeliverable, for tests.
///
/// # Safety
/// No CPU may change the table at the same time.
pub(super) unsafe fn drop_gate(vector: u8) {
    // SAFETY: one write, by the caller's promise alone; processors read whole entries.
    unsafe {
        (&raw mut GATES)
            .cast::<u128>()
            .add(vector.into())
            .write_volatile(0)
    }
}

/// The rest, for each CPU. It is never moved.
#[repr(C, align(16))]
pub(crate) struct Segments {
    fault_stack: [u8; FAULT_STACK_BYTES],
    gdt: GlobalDescriptorTable,
    tss: TaskStateSegment,
}

impl Segments {
    pub(crate) const fn new() -> Self {
        Self {
            fault_stack: [0; FAULT_STACK_BYTES],
            gdt: GlobalDescriptorTable::new(),
            tss: TaskStateSegment::new(),
        }
    }

    /// Begins with what is in `place`, whose bytes are zero.
    ///
    /// # Safety
    /// All bytes of `place` are zero.
    pub(super) unsafe fn begin(place: &'static mut MaybeUninit<Self>) -> &'static mut Self {
        let segments = place.as_mut_ptr();
        // SAFETY: the stack's bytes are zero (the caller's promise), which are valid, and the rest is written.
        unsafe {
            (&raw mut (*segments).gdt).write(GlobalDescriptorTable::new());
            (&raw mut (*segments).tss).write(TaskStateSegment::new());
            place.assume_init_mut()
        }
    }

    /// Makes the CPU that runs this use it. [`fill_gates`] has been called.
    pub(super) fn load(&'static mut self) {
        let Self {
            fault_stack,
            gdt,
            tss,
        } = self;
        let stack_end = VirtAddr::from_ptr(fault_stack.as_ptr_range().end);
        tss.interrupt_stack_table[0] = stack_end;
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        let task = gdt.append(Descriptor::tss_segment(tss));
        gdt.load();
        let idt = DescriptorTablePointer {
            limit: 256 * 16 - 1,
            base: VirtAddr::new(addr_of!(GATES) as u64),
        };
        // SAFETY: the selectors are of the table just loaded, flat as before; the
        // interrupt table is filled and static.
        unsafe {
            CS::set_reg(code);
            SS::set_reg(data);
            DS::set_reg(data);
            ES::set_reg(data);
            load_tss(task);
            lidt(&idt);
        }
    }
}
