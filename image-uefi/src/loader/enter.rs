//! The last steps: PVH's start info, and the way out of long mode.

use core::arch::{asm, global_asm};

use firstlight::firmware::pvh::{MAGIC, V1_BYTES};
use uefi::boot::MemoryType;

use super::error::StartError;
use super::memory::Pages;

global_asm!(include_str!("enter.s"));

unsafe extern "C" {
    static enter: u8;
    static enter_end: u8;
}

const MODULE_BYTES: usize = 32;

/// Start info, list of modules and command line, one after the other. There is no memory map in
/// it: the module has it.
pub(super) fn start_info(line: &[u8], rsdp: u64, module: &Pages) -> Result<Pages, StartError> {
    const LINE: usize = V1_BYTES + MODULE_BYTES;
    let bytes = LINE + line.len() + 1;
    let mut pages = Pages::new("the start info", bytes, MemoryType::LOADER_DATA)?;
    let at = pages.address();
    let words = [
        u64::from(MAGIC) | 1 << 32, // version 1
        1 << 32,                    // one module
        at + V1_BYTES as u64,
        at + LINE as u64,
        rsdp,
        0,
        0,
        module.address(),
        module.len() as u64,
    ];
    let slots = pages.bytes_mut().chunks_exact_mut(8);
    for (slot, word) in slots.zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    let text = pages.bytes_mut().get_mut(LINE..).unwrap_or_default();
    for (slot, byte) in text.iter_mut().zip(line) {
        *slot = *byte;
    }
    Ok(pages)
}

/// The code of `enter.s` below 4 GiB.
pub(super) struct Code(u64);

impl Code {
    /// Where this program has it, or a copy.
    pub(super) fn new() -> Result<Self, StartError> {
        let (start, end) = (&raw const enter, &raw const enter_end);
        if end as u64 <= u32::MAX.into() {
            return Ok(Self(start as u64));
        }
        let bytes = end as usize - start as usize;
        let mut pages = Pages::new("code", bytes, MemoryType::LOADER_CODE)?;
        // SAFETY: the symbols are the two ends of the code.
        let code = unsafe { core::slice::from_raw_parts(start, bytes) };
        for (slot, byte) in pages.bytes_mut().iter_mut().zip(code) {
            *slot = *byte;
        }
        Ok(Self(pages.address()))
    }

    /// Leaves long mode and enters the image.
    ///
    /// # Safety
    /// Boot services have ended; `entry` is the PVH entry of the loaded image, `start_info` its
    /// start info.
    pub(super) unsafe fn enter(&self, start_info: u64, entry: u64) -> ! {
        // SAFETY: firmware maps all memory where it is; the code never comes back, and needs
        // what the caller promises.
        unsafe {
            asm!(
                "jmp {}",
                in(reg) self.0, in("rsi") start_info, in("rdx") entry,
                options(noreturn)
            )
        }
    }
}
