//! UEFI where no loader for it starts the image.

use core::iter::Empty;

use firstlight::addr::PhysRange;
use firstlight::clock::Frequency;
use firstlight::events::Events;
use firstlight::start::BootSlots;
use firstlight_wire::Outcome;

use crate::arch::DirectMap;
use crate::arch::frame_buffer::FrameBuffer;
use crate::console::Console;

/// There is no hand-over.
#[derive(Clone, Copy)]
pub(crate) enum Uefi {}

impl Uefi {
    pub(crate) fn slots(self) -> Option<BootSlots<'static>> {
        match self {}
    }

    pub(crate) fn used_later(self, _: bool) -> Empty<PhysRange> {
        match self {}
    }
}

pub(crate) fn install(found: Uefi, _: &mut Events<'_>) {
    match found {}
}

pub(crate) fn frame_buffer() -> Option<FrameBuffer> {
    None
}

pub(crate) fn report(_: DirectMap, _: Option<Frequency>, _: &mut Events<'_>) {}

pub(crate) fn report_early(_: &mut Console) {}

pub(crate) fn is_firmware() -> bool {
    false
}

pub(crate) fn leave(_: &'static mut Console, outcome: Outcome) -> ! {
    crate::arch::exit(outcome)
}

/// There is no firmware to ask.
pub(crate) fn firmware_failed() {}
