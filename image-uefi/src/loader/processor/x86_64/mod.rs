//! x86-64: the way out of long mode, and what the processor says of the machine.

use core::arch::x86_64::_rdtsc;
use core::arch::{asm, global_asm};

use firstlight_image_uefi::confidential::{self, Confidential, Processor};
pub(crate) use firstlight_image_uefi::elf::Image;
use raw_cpuid::cpuid;
use uefi::boot::MemoryType;
use uefi::{CStr16, cstr16};

use super::super::error::StartError;
use super::super::memory::Pages;

global_asm!(include_str!("enter.s"));

unsafe extern "C" {
    static enter: u8;
    static enter_end: u8;
}

/// The image's file.
pub(crate) const IMAGE: &str = "\\firstlight\\image.elf";
pub(crate) const IMAGE_PATH: &CStr16 = cstr16!("\\firstlight\\image.elf");

/// The register that says which encryption is active.
const SEV_STATUS: u32 = 0xc001_0131;

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor with long mode has it, and firmware allows it.
    unsafe { _rdtsc() }
}

pub(crate) fn has_hypervisor() -> bool {
    cpuid!(1).ecx & 1 << 31 != 0
}

/// What tells confidential guests from others.
fn processor() -> Processor {
    let highest_leaf = cpuid!(0).eax;
    let highest_extended_leaf = cpuid!(0x8000_0000).eax;
    let tdx_name = match highest_leaf >= 0x21 {
        true => {
            let leaf = cpuid!(0x21, 0);
            [leaf.ebx, leaf.edx, leaf.ecx]
        }
        false => [0; 3],
    };
    let encryption = match highest_extended_leaf >= 0x8000_001f {
        true => cpuid!(0x8000_001f).eax,
        false => 0,
    };
    Processor {
        highest_leaf,
        tdx_name,
        highest_extended_leaf,
        encryption,
    }
}

/// The register that says which encryption is active; the processor has it.
fn sev_status() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading the register has no effect; `confidential::kind` asks only where CPUID
    // says that it is there.
    unsafe {
        core::arch::asm!("rdmsr", in("ecx") SEV_STATUS, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// What kind of confidential guest this is, if it is one.
pub(crate) fn confidential() -> Option<Confidential> {
    confidential::kind(&processor(), sev_status)
}

/// The image is written: this processor sees that.
pub(crate) fn written(_: &[u8]) {}

/// The code of `enter.s` below 4 GiB.
pub(crate) struct Code(u64);

impl Code {
    /// Where this program has it, or a copy.
    pub(crate) fn new() -> Result<Self, StartError> {
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
    pub(crate) unsafe fn enter(&self, start_info: u64, entry: u64) -> ! {
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
