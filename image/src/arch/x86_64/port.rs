//! Ports of the host: markers and the exit device.

use firstlight_wire::{Outcome, marker};
use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;

/// QEMU's `isa-debug-exit`.
const EXIT_PORT: u16 = 0xf4;
/// The keyboard controller, of which one command resets the machine.
const KEYBOARD_PORT: u16 = 0x64;
const KEYBOARD_RESET: u8 = 0xfe;

/// Shows `code` to the host, on the port where firmware shows its progress.
pub(crate) fn marker(code: u8) {
    // SAFETY: only a diagnostic display is on this port.
    unsafe { Port::new(marker::PORT).write(code) }
}

/// Ends the machine. Without the exit device: a reset, by which Firecracker and Cloud
/// Hypervisor end; on a real machine, the CPU stops.
pub(crate) fn exit(outcome: Outcome) -> ! {
    // SAFETY: the ports are the exit device's and the keyboard controller's, or unused.
    unsafe {
        Port::new(EXIT_PORT).write(u32::from(outcome.code()));
        if CpuId::new()
            .get_feature_info()
            .is_some_and(|info| info.has_hypervisor())
        {
            Port::new(KEYBOARD_PORT).write(KEYBOARD_RESET);
        }
    }
    super::halt()
}
