//! The time before the image's entry, where firmware is UEFI: by the loader's stamps of the time
//! stamp counter, and by firmware's own clock, if it has a performance data table (FPDT). Both
//! count from the processor's reset; firmware's times are shown as it states them.

use firstlight::clock::Frequency;
use firstlight::events::Events;
use firstlight::firmware::acpi::BootTimes;
use firstlight_wire::handover::Handover;
use firstlight_wire::milestone;

use crate::arch::ticks_added;
use crate::console::{line_at, note};

/// The loader's stamps, as events.
pub(super) fn note_stamps(handover: Handover, events: &mut Events<'_>) {
    for (ticks, name, _) in stamps(handover) {
        events.milestone(name, ticks);
    }
}

/// The loader's stamps, as lines.
pub(super) fn report_stamps(handover: Handover) {
    for (ticks, _, what) in stamps(handover) {
        line_at(ticks, format_args!("{what}"));
    }
    if let Some(added) = ticks_added() {
        note(format_args!(
            "firmware added {added} ticks to the time stamp counter: times do not count from the processor's reset"
        ));
    }
}

fn stamps(handover: Handover) -> [(u64, &'static str, &'static str); 3] {
    [
        (
            handover.entered_ticks,
            milestone::LOADER_ENTERED,
            "firmware starts the UEFI loader",
        ),
        (
            handover.read_ticks,
            milestone::LOADER_READ,
            "the loader has read and placed the image",
        ),
        (
            handover.exited_ticks,
            milestone::BOOT_SERVICES_ENDED,
            "UEFI's boot services have ended",
        ),
    ]
}

/// Firmware's own times, as lines and as events.
pub(super) fn report(times: BootTimes, clock: Option<Frequency>, events: &mut Events<'_>) {
    let Some(clock) = clock else {
        note(format_args!("firmware's times have no ticks: {times:?}"));
        return;
    };
    for (ns, name, what) in [
        (
            Some(times.reset_end_ns),
            milestone::FIRMWARE_STARTED,
            "firmware begins to run",
        ),
        (
            times.load_image_ns,
            milestone::LOADER_LOADING,
            "firmware loads the UEFI loader",
        ),
        (
            times.start_image_ns,
            milestone::LOADER_STARTING,
            "firmware starts the UEFI loader",
        ),
        (
            times.exit_entered_ns,
            milestone::BOOT_SERVICES_ENDING,
            "UEFI's boot services begin to end",
        ),
        (
            times.exit_left_ns,
            milestone::BOOT_SERVICES_LEFT,
            "UEFI's boot services have ended",
        ),
    ] {
        let Some(ticks) = ns.map(|ns| clock.ticks(ns)) else {
            continue;
        };
        events.milestone(name, ticks);
        line_at(ticks, format_args!("{what} (FPDT)"));
    }
}
