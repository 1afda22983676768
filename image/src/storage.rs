//! Static storage for the engine, which has no heap. Sizes are generous; for a machine
//! that needs more, the error has the size needed (no list is cut).

use firstlight::events::Event;
use firstlight::start::{BootSlots, BootStorage};
use spin::{Mutex, MutexGuard};

/// For 1,024 ranges of every kind and 256 nodes.
#[unsafe(link_section = ".bss.stale")]
static BOOT: Mutex<BootStorage<1024, 256>> = Mutex::new(BootStorage::EMPTY);

static EVENTS: Mutex<[Event; 64]> = Mutex::new([Event::EMPTY; 64]);

/// The storage of the way up, as an earlier kernel left it after a restart.
///
/// # Safety
/// Called once by each kernel.
pub(crate) unsafe fn boot() -> BootSlots<'static> {
    // SAFETY: the only use in this kernel, as the caller promises; a kernel before is gone.
    unsafe { BOOT.force_unlock() };
    MutexGuard::leak(BOOT.lock()).into()
}

/// Slots for the events of the way up; called once.
pub(crate) fn event_slots() -> &'static mut [Event] {
    &mut *MutexGuard::leak(EVENTS.lock())
}

/// The events so far, for a run that ends before it reports them.
///
/// # Safety
/// Called on the CPU that records them, and none is recorded any more.
#[cfg(uefi)]
pub(crate) unsafe fn recorded() -> impl Iterator<Item = Event> {
    // SAFETY: the slots' other user does not go on (the caller's promise).
    unsafe { EVENTS.force_unlock() };
    let slots = MutexGuard::leak(EVENTS.lock());
    slots.iter().copied().filter(|event| *event != Event::EMPTY)
}
