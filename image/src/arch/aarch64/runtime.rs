//! The way to firmware's services: a stack. Interrupts are masked, vector registers are on, since the entry.

use core::arch::naked_asm;

pub(crate) use crate::arch::common::services::Services;
use crate::arch::common::services::{STACK, STACK_BYTES};

/// Nothing is to be done.
pub(in crate::arch) fn prepare() {}

/// Goes on with `work` on a stack that nothing else uses.
///
/// # Safety
/// Called once.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_own_stack(work: extern "C" fn() -> !) -> ! {
    naked_asm!(
        "adrp x1, {stack}",
        "add x1, x1, :lo12:{stack}",
        "add x1, x1, {bytes}",
        "mov sp, x1",
        "mov x29, xzr",
        "blr x0",
        "brk #1",
        stack = sym STACK,
        bytes = const STACK_BYTES,
    )
}
