//! Starting CPUs where firmware does it, by one call: [`Starter`].

use firstlight::addr::{PhysAddr, PhysRange};

use super::cpus::Area;
use crate::arch::cpu;
use crate::console::note;

/// Other CPUs begin anywhere.
pub(crate) const FIRST_PAGE_END: Option<PhysAddr> = None;

unsafe extern "C" {
    /// In `entry.s`.
    static other_cpu: u8;
}

/// Stops nothing: CPUs that have ended have no way back, and those that have not started stay so.
pub(crate) fn stop(_: u64) {}

/// Starts CPUs.
pub(crate) struct Starter(());

impl Starter {
    /// One call; how long to wait after it, in ns.
    pub(crate) const STEPS: [u64; 1] = [0];

    /// # Safety
    /// Called once.
    pub(crate) unsafe fn new(_: PhysRange) -> Self {
        Self(())
    }

    /// Whether a CPU with this id can be started at all.
    pub(crate) fn can_reach(&self, id: u64) -> bool {
        cpu::can_reach(id)
    }

    /// Starts the CPU with this area; false, with a note, where firmware refuses.
    pub(crate) fn step(&self, _: usize, area: &'static Area) -> bool {
        let entry = &raw const other_cpu as u64;
        let context = core::ptr::from_ref(area) as u64;
        // SAFETY: the CPU begins at `other_cpu`, which expects its area.
        let result = unsafe { cpu::start(area.id, entry, context) };
        if let Err(code) = result {
            note(format_args!(
                "CPU with id {:#x} not started: {} refuses with {code}",
                area.id,
                cpu::FIRMWARE
            ));
        }
        result.is_ok()
    }
}
