//! The way to firmware's services: registers as its code expects them, and a stack.

use core::arch::{asm, naked_asm};

pub(crate) use crate::arch::common::services::Services;
use crate::arch::common::services::{STACK, STACK_BYTES};

/// Registers as firmware's code expects them: it may use SSE, which this image does not. No interrupt comes.
pub(in crate::arch) fn prepare() {
    const CONTROL: u32 = 0x1f80;
    let control = CONTROL;
    ::x86_64::instructions::interrupts::disable();
    // SAFETY: every processor with long mode has them; no code of this image uses them now.
    unsafe {
        ::x86_64::registers::control::Cr4::update(|flags| {
            flags.insert(
                ::x86_64::registers::control::Cr4Flags::OSFXSR
                    | ::x86_64::registers::control::Cr4Flags::OSXMMEXCPT_ENABLE,
            );
        });
        asm!("fninit", "ldmxcsr [{}]", in(reg) &raw const control, options(nostack));
    }
}

/// Goes on with `work` on a stack that nothing else uses.
///
/// # Safety
/// Called once.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_own_stack(work: extern "C" fn() -> !) -> ! {
    naked_asm!(
        "lea rsp, [rip + {stack} + {bytes}]",
        "xor ebp, ebp",
        "call rdi",
        "ud2",
        stack = sym STACK,
        bytes = const STACK_BYTES,
    )
}
