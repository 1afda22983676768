//! The local interrupt controller: x2APIC where the processor has it, else its
//! page of registers at the usual address.

use core::sync::atomic::{AtomicBool, Ordering};

use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use super::segments::SPURIOUS_VECTOR;

const BASE_MSR: u32 = 0x1b;
const BASE_ENABLE: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
/// First x2APIC register; register `r` of the page is at `r >> 4` from it.
const X2APIC_MSR: u32 = 0x800;
/// Where the registers are mapped, not cached, by the first page tables.
const PAGE: u64 = 0xfee0_0000;

/// Interrupt masks of the two controllers of the first PCs.
const OLD_MASK_PORTS: [u16; 2] = [0x21, 0xa1];

const EOI: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;

/// Entries for the CPU's own sources of interrupts: timer, two pins, errors.
const LOCAL: [u32; 4] = [0x320, 0x350, 0x360, 0x370];
const TIMER: u32 = LOCAL[0];
const TIMER_COUNT: u32 = 0x380;
const PENDING_REQUESTS: u32 = 0x200;
const MASKED: u32 = 1 << 16;

const ENABLE: u32 = 1 << 8;
const INIT: u32 = 0x4500;
const STARTUP: u32 = 0x4600;
const FIXED: u32 = 0x4000;
const NON_MASKABLE: u32 = 0x4400;
const PENDING: u32 = 1 << 12;

/// Set on the first CPU; the others are alike.
static X2APIC: AtomicBool = AtomicBool::new(false);

fn read(register: u32) -> u32 {
    // SAFETY: the registers' page is mapped and holds nothing but registers.
    unsafe { ((PAGE + u64::from(register)) as *const u32).read_volatile() }
}

fn write(register: u32, value: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // SAFETY: the mode was switched on, so the register is there.
        unsafe { Msr::new(X2APIC_MSR + (register >> 4)).write(value.into()) }
    } else {
        // SAFETY: as in `read`.
        unsafe { ((PAGE + u64::from(register)) as *mut u32).write_volatile(value) }
    }
}

/// This CPU's APIC id, from the processor itself; the same way as in `entry.s`.
pub(super) fn own_id() -> u32 {
    let cpuid = CpuId::new();
    let mut levels = cpuid.get_extended_topology_info().into_iter().flatten();
    match levels.next() {
        Some(level) if level.processors() > 0 => level.x2apic_id(),
        _ => cpuid
            .get_feature_info()
            .map_or(0, |info| info.initial_local_apic_id().into()),
    }
}

/// Switches the CPU's own controller on, so that it can be woken.
pub(super) fn enable() {
    let has_x2apic = CpuId::new()
        .get_feature_info()
        .is_some_and(|info| info.has_x2apic());
    let mut base = Msr::new(BASE_MSR);
    // SAFETY: every processor with long mode has this register; the address in it stays.
    unsafe {
        let value = base.read() | BASE_ENABLE;
        base.write(value);
        if has_x2apic {
            base.write(value | BASE_X2APIC);
        }
    }
    X2APIC.store(has_x2apic, Ordering::Relaxed);
    write(SPURIOUS, ENABLE | u32::from(SPURIOUS_VECTOR));
    // Firmware may have left them on; none is used.
    LOCAL.iter().for_each(|entry| write(*entry, MASKED));
}

/// Leaves an interrupt of the timer pending, as firmware may, for tests. Interrupts are disabled.
pub(super) fn leave_pending(vector: u8) {
    enable();
    write(TIMER, vector.into());
    write(TIMER_COUNT, 1);
    let (word, bit) = (u32::from(vector / 32), vector % 32);
    while read_any(PENDING_REQUESTS + word * 16) & 1 << bit == 0 {
        super::relax();
    }
}

fn read_any(register: u32) -> u32 {
    match X2APIC.load(Ordering::Relaxed) {
        // SAFETY: as in `write`.
        true => unsafe { Msr::new(X2APIC_MSR + (register >> 4)).read() as u32 },
        false => read(register),
    }
}

/// Keeps the old interrupt controllers quiet: their first vectors are those of exceptions.
pub(super) fn silence_old_controllers() {
    for port in OLD_MASK_PORTS {
        // SAFETY: their mask registers, or unused ports; nothing here uses their interrupts.
        unsafe { Port::<u8>::new(port).write(0xff) }
    }
}

/// Ends the interrupt being handled.
pub(super) fn acknowledge() {
    write(EOI, 0);
}

/// Sends one interrupt command to the CPU with `id`.
fn send(id: u32, command: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // In this mode the write is not ordered with other stores: the work that the
        // other CPU is woken for must be visible before.
        // SAFETY: fences; and as in `write`. The register has 64 bits in this mode.
        unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            Msr::new(X2APIC_MSR + (COMMAND >> 4)).write(u64::from(id) << 32 | u64::from(command));
        }
        return;
    }
    // Eight bits name a CPU here; `can_reach` was checked.
    write(COMMAND_HIGH, id << 24);
    write(COMMAND, command);
    while read(COMMAND) & PENDING != 0 {
        super::relax();
    }
}

/// Whether this controller can send to the CPU with `id`. The last id means all
/// CPUs, this one too: an INIT to it would be the end.
pub(super) fn can_reach(id: u32) -> bool {
    let everybody = match X2APIC.load(Ordering::Relaxed) {
        true => u32::MAX,
        false => 0xff,
    };
    id < everybody
}

/// Resets the CPU with `id`; it then waits for [`startup`].
pub(super) fn init(id: u32) {
    send(id, INIT);
}

/// Starts the CPU with `id` in real mode at `page`, below 1 MiB.
pub(super) fn startup(id: u32, page: u64) {
    send(id, STARTUP | ((page >> 12) & 0xff) as u32);
}

/// Interrupts the CPU with `id`, whatever it does.
pub(super) fn interrupt_always(id: u32) {
    send(id, NON_MASKABLE);
}

/// Interrupts the CPU with `id`.
pub(super) fn interrupt(id: u32, vector: u8) {
    send(id, FIXED | u32::from(vector));
}
