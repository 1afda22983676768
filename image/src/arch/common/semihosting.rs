//! Markers by a call to a debugger or emulator that listens. Where nothing listens it has no effect
//! (`traps.s`).

unsafe extern "C" {
    /// In `traps.s`.
    fn semihosting_character(character: u64);
}

/// Shows `code` to the host.
pub(crate) fn marker(code: u8) {
    // SAFETY: the host reads one byte of the stack.
    unsafe { semihosting_character(code.into()) }
}
