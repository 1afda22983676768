//! Ports the host watches: markers and the way out.

use firstlight_image::outcome::Outcome;
use x86_64::instructions::port::Port;

/// Where firmware shows its progress on two digits; free for us, visible to the host.
const MARKER_PORT: u16 = 0x80;
/// QEMU's `isa-debug-exit`.
const EXIT_PORT: u16 = 0xf4;

/// Shows `code` to the host.
pub(crate) fn marker(code: u8) {
    // SAFETY: nothing but a diagnostic display answers on this port.
    unsafe { Port::new(MARKER_PORT).write(code) }
}

/// Ends the machine. Where nobody listens on the port, the CPU stops for good.
pub(crate) fn exit(outcome: Outcome) -> ! {
    // SAFETY: the port is the exit device's, or nobody's.
    unsafe { Port::new(EXIT_PORT).write(u32::from(outcome.code())) }
    super::halt()
}
