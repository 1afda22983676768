//! One CPU: its id, its own memory by the base of `gs`, starting by INIT-SIPI-SIPI, waking by
//! an interrupt.

use core::ptr::copy_nonoverlapping;
use core::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::{PhysAddr, PhysRange};
use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::GsBase;

use super::segments::{self, WAKE_VECTOR};
use super::{apic, traps, vector};
use crate::arch::common::cpus::{Area, Cpus};

/// What a CPU has of its own besides its stack.
pub(crate) use super::segments::Segments as Own;

/// Other CPUs begin in real mode, which reaches no further.
pub(crate) const FIRST_PAGE_END: Option<PhysAddr> = Some(PhysAddr::new(1 << 20));

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
}

/// This CPU's APIC id.
pub(crate) fn own_id() -> u64 {
    apic::own_id().into()
}

/// This CPU's area; null on the first one.
pub(crate) fn area() -> *const Area {
    GsBase::read().as_ptr()
}

/// Called on another CPU, before it works.
pub(crate) fn enter(area: *mut Area, own: &'static mut Own) {
    GsBase::write(VirtAddr::from_ptr(area));
    own.load();
    apic::enable();
    vector::enable();
}

/// Halts until `done`, which [`wake`] announces.
pub(crate) fn sleep_until(done: impl Fn() -> bool) {
    loop {
        interrupts::disable();
        if done() {
            interrupts::enable();
            return;
        }
        // Interrupts are enabled together with the halt: none is missed.
        interrupts::enable_and_hlt();
    }
}

/// Ends the sleep of the CPU with `id`, which was added.
pub(crate) fn wake(id: u64) {
    apic::interrupt(id as u32, WAKE_VECTOR);
}

/// One more than the id of the first CPU; 0 until it starts others.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Interrupts the first CPU, whatever it does; another one calls this.
pub(super) fn interrupt_first() {
    let first = FIRST.load(Ordering::Relaxed).checked_sub(1);
    if let Some(first) = first.filter(|first| *first != own_id()) {
        apic::interrupt_always(first as u32);
    }
}

/// Halts all other CPUs that have started, whatever they do: their stacks and mailboxes stay as they are. Halted,
/// not waiting for a start as after an INIT: firmware's management mode may wait until each of them has come
/// there, and such a CPU does not. This CPU reports the end of the run.
pub(crate) fn stop_others() {
    let own = own_id();
    interrupt_first();
    let others = || Cpus::areas().filter(|area| area.id != own);
    let started = others().filter(|area| area.has_started());
    let first = FIRST.load(Ordering::Relaxed);
    let is_other = first != 0 && first != own.wrapping_add(1);
    let mut wanted = usize::from(is_other);
    for area in started {
        apic::interrupt_always(area.id as u32);
        wanted += 1;
    }
    // One that is lost in firmware's code is not waited for.
    for _ in 0..MOST_LOOKS {
        if traps::halted() >= wanted {
            break;
        }
        super::relax();
    }
    // One that comes late is not to run any more.
    let late = others().filter(|area| !area.has_started());
    late.for_each(|area| stop(area.id));
}

/// Looks for CPUs that have halted: some milliseconds.
const MOST_LOOKS: u32 = 1 << 20;

/// Stops another CPU than the first: it waits for a start as after a reset, wherever it is.
pub(crate) fn stop(id: u64) {
    apic::init(id as u32);
}

/// Starts CPUs, on a page below 1 MiB.
pub(crate) struct Starter {
    page: u64,
}

impl Starter {
    /// INIT, then STARTUP twice: how long to wait after each, in ns. The 10 ms of the first
    /// multiprocessor PCs after INIT are no longer needed; CPUs that run ignore STARTUP.
    pub(crate) const STEPS: [u64; 3] = [100_000, 200_000, 0];

    /// # Safety
    /// The page has no other use, now or later. Called once.
    pub(crate) unsafe fn new(page: PhysRange) -> Self {
        let start = page.start().get();
        let (from, to) = (&raw const trampoline, &raw const trampoline_end);
        // SAFETY: the code is shorter than a page, the page is ours and mapped.
        unsafe {
            copy_nonoverlapping(from, start as *mut u8, to as usize - from as usize);
        }
        FIRST.store(own_id().wrapping_add(1), Ordering::Relaxed);
        apic::silence_old_controllers();
        apic::enable();
        // SAFETY: once, before others start; interrupts are enabled next.
        unsafe { segments::acknowledge_all() };
        interrupts::enable();
        Self { page: start }
    }

    /// Whether a CPU with this id can be started at all.
    pub(crate) fn can_reach(&self, id: u64) -> bool {
        u32::try_from(id).is_ok_and(apic::can_reach)
    }

    /// A step of the start of the CPU with this area; nothing refuses.
    pub(crate) fn step(&self, step: usize, area: &'static Area) -> bool {
        let id = area.id as u32;
        match step {
            0 => apic::init(id),
            _ => apic::startup(id, self.page),
        }
        true
    }
}
