//! Times of what our image says: ticks as nanoseconds, milestones by their names.

use crate::record::Milestones;
use firstlight_wire::milestone;

/// From ticks to nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) hz: Option<u64>,
}

impl Time {
    /// `None` where ticks are not known to be any time, or too many.
    pub(super) fn ns(self, ticks: u64) -> Option<u64> {
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.hz?);
        u64::try_from(ns).ok()
    }
}

/// Sets the milestone of this name.
pub(super) fn reach(name: &str, ns: Option<u64>, milestones: &mut Milestones) {
    let slot = match name {
        milestone::LOADER_ENTERED => &mut milestones.loader_entered_ns,
        milestone::LOADER_READ => &mut milestones.loader_read_ns,
        milestone::BOOT_SERVICES_ENDED => &mut milestones.boot_services_ended_ns,
        milestone::ENTRY => &mut milestones.entry_ns,
        milestone::LAYOUT => &mut milestones.layout_ns,
        milestone::FIRST_FRAME => &mut milestones.first_frame_ns,
        milestone::ALL_ALLOCATABLE => &mut milestones.all_allocatable_ns,
        milestone::CPUS_STARTED => &mut milestones.cpus_started_ns,
        milestone::ALL_DESCRIBED => &mut milestones.all_described_ns,
        // By firmware's own clock, or of a later image; it is among the raw events.
        _ => return,
    };
    *slot = ns;
}
