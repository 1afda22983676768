//! AArch64: to the image as firmware runs this program, on its translation; the image ends that itself.

use core::arch::asm;

use firstlight_image_uefi::confidential::Confidential;
pub(crate) use firstlight_image_uefi::flat::Image;
use uefi::boot;
use uefi::mem::memory_map::MemoryAttribute;
use uefi::proto::security::MemoryProtection;
use uefi::{CStr16, cstr16};

use super::super::error::StartError;

/// The image's file.
pub(crate) const IMAGE: &str = "\\firstlight\\image-aarch64";
pub(crate) const IMAGE_PATH: &CStr16 = cstr16!("\\firstlight\\image-aarch64");

/// The generic timer's counter: at EL2 the physical one, as the virtual one has an offset until the image clears it.
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads registers that every level above EL0 has.
    unsafe {
        asm!(
            "isb",
            "mrs {level}, CurrentEL",
            "mrs {ticks}, cntvct_el0",
            "cmp {level}, #8",
            "b.ne 2f",
            "mrs {ticks}, cntpct_el0",
            "2:",
            level = out(reg) _,
            ticks = out(reg) ticks,
            options(nostack, nomem)
        );
    }
    ticks
}

/// Whether the processor is a program: other hypervisors are not told from a machine.
pub(crate) fn has_hypervisor() -> bool {
    let id: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, midr_el1", out(reg) id, options(nostack, nomem)) }
    // No maker has number 0.
    id >> 24 & 0xff == 0
}

/// None is known here: realms (CCA) have no loader by UEFI yet.
pub(crate) fn confidential() -> Option<Confidential> {
    None
}

/// Writes the image from the caches to memory, where it is read while translation is off, forgets instructions that
/// were there, and makes it run.
pub(crate) fn written(image: &[u8]) {
    make_run(image);
    let sizes: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nostack, nomem)) }
    // Log2 of a line's words of 4 bytes.
    let line = 4_usize << (sizes >> 16 & 15);
    let range = image.as_ptr_range();
    let (mut at, end) = (range.start as usize & !(line - 1), range.end as usize);
    while at < end {
        // SAFETY: memory of this program, whose content does not change.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack)) }
        at += line;
    }
    // SAFETY: barriers, and a cache without content of its own.
    unsafe { asm!("dsb sy", "ic ialluis", "dsb sy", "isb", options(nostack)) }
}

/// Makes the image's memory run, where firmware maps none of a loader so. Without the protocol for that, which such firmware
/// has, there is nothing to do; a refusal shows where the image is entered.
fn make_run(image: &[u8]) {
    let Ok(handle) = boot::get_handle_for_protocol::<MemoryProtection>() else {
        return;
    };
    let Ok(protection) = boot::open_protocol_exclusive::<MemoryProtection>(handle) else {
        return;
    };
    let range = image.as_ptr_range();
    let none = MemoryAttribute::EXECUTE_PROTECT | MemoryAttribute::READ_ONLY;
    let _ = protection.clear_memory_attributes(range.start as u64..range.end as u64, none);
}

/// Nothing is needed on the way.
pub(crate) struct Code;

impl Code {
    /// There is nothing to copy.
    #[expect(clippy::unnecessary_wraps, reason = "other processors need memory")]
    pub(crate) fn new() -> Result<Self, StartError> {
        Ok(Self)
    }

    /// Enters the image.
    ///
    /// # Safety
    /// Boot services have ended; `entry` is the entry of the loaded image, `start_info` its start info.
    pub(crate) unsafe fn enter(&self, start_info: u64, entry: u64) -> ! {
        // SAFETY: the code never comes back, and needs what the caller promises.
        unsafe { asm!("br {}", in(reg) entry, in("x0") start_info, options(noreturn)) }
    }
}
