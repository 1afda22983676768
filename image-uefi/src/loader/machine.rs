//! What firmware and processor say of the machine.

use core::arch::x86_64::_rdtsc;

use firstlight_image_uefi::confidential::Processor;
use firstlight_wire::handover::Screen;
use raw_cpuid::cpuid;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::console::gop::{GraphicsOutput, PixelFormat};
use uefi::table::cfg::ConfigTableEntry;

/// The register that says which encryption is active.
const SEV_STATUS: u32 = 0xc001_0131;

/// The time stamp counter.
pub(super) fn ticks() -> u64 {
    // SAFETY: every processor with long mode has it, and firmware allows it.
    unsafe { _rdtsc() }
}

pub(super) fn has_hypervisor() -> bool {
    cpuid!(1).ecx & 1 << 31 != 0
}

/// What tells confidential guests from others.
pub(super) fn processor() -> Processor {
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
pub(super) fn sev_status() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading the register has no effect; `confidential::kind` asks only where CPUID
    // says that it is there.
    unsafe {
        core::arch::asm!("rdmsr", in("ecx") SEV_STATUS, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

pub(super) fn system_table() -> u64 {
    uefi::table::system_table_raw().map_or(0, |table| table.as_ptr() as u64)
}

/// The root of ACPI's tables, the newer one if there are two; 0 without ACPI.
pub(super) fn rsdp() -> u64 {
    uefi::system::with_config_table(|tables| {
        let of = |guid| tables.iter().find(|table| table.guid == guid);
        of(ConfigTableEntry::ACPI2_GUID)
            .or_else(|| of(ConfigTableEntry::ACPI_GUID))
            .map_or(0, |table| table.address as u64)
    })
}

/// The first screen with a frame buffer of 4 bytes a pixel; one that only copies blocks
/// (`BltOnly`) cannot be used without boot services.
pub(super) fn screen() -> Option<Screen> {
    let handles = boot::find_handles::<GraphicsOutput>().unwrap_or_default();
    handles.into_iter().find_map(|handle| {
        let params = OpenProtocolParams {
            handle,
            agent: boot::image_handle(),
            controller: None,
        };
        // Opened exclusively, it would be taken from the console, which still shows text.
        // SAFETY: the screen is not removed before this function returns.
        let output = unsafe {
            boot::open_protocol::<GraphicsOutput>(params, OpenProtocolAttributes::GetProtocol)
        };
        let mut output = output.ok()?;
        let mode = output.current_mode_info();
        if !matches!(mode.pixel_format(), PixelFormat::Rgb | PixelFormat::Bgr) {
            return None;
        }
        let (width, height) = mode.resolution();
        let mut buffer = output.frame_buffer();
        let screen = Screen {
            address: buffer.as_mut_ptr() as u64,
            bytes: buffer.size() as u64,
            width: u32::try_from(width).ok()?,
            height: u32::try_from(height).ok()?,
            stride: u32::try_from(mode.stride()).ok()?,
        };
        screen.checked().ok()
    })
}
