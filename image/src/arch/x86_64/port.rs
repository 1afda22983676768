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

/// Ends the machine if the host has QEMU's exit device. On a real machine another device may
/// be at its port.
fn exit_to_host(outcome: Outcome) {
    // SAFETY: the port is the exit device's, or unused in a virtual machine.
    unsafe { Port::new(EXIT_PORT).write(u32::from(outcome.code())) }
}

/// Whether a hypervisor says that it is there.
fn has_hypervisor() -> bool {
    let info = CpuId::new().get_feature_info();
    info.is_some_and(|info| info.has_hypervisor())
}

/// Ends the machine if a hypervisor says that it is there, and has QEMU's exit device.
pub(crate) fn end_by_host(outcome: Outcome) {
    if has_hypervisor() {
        exit_to_host(outcome);
    }
}

/// Ends the machine. Without the exit device: a reset, by which Firecracker and Cloud
/// Hypervisor end; on a real machine, the CPU stops.
pub(crate) fn exit(outcome: Outcome) -> ! {
    // Only the UEFI loader starts the image on a real machine; any other loader by PVH is a
    // hypervisor's, also where that hides.
    if has_hypervisor() || !crate::firmware::uefi::is_loader() {
        exit_to_host(outcome);
    }
    if has_hypervisor() {
        // SAFETY: the keyboard controller's port, or unused.
        unsafe { Port::new(KEYBOARD_PORT).write(KEYBOARD_RESET) }
    }
    super::halt()
}
