//! What firmware says of the machine.

use firstlight::firmware::fdt::Fdt;
use firstlight_wire::handover::Screen;
use uefi::boot::{self, OpenProtocolAttributes, OpenProtocolParams};
use uefi::proto::console::gop::{GraphicsOutput, PixelFormat};
use uefi::table::cfg::ConfigTableEntry;
use uefi::{Guid, guid};

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

/// Where a device tree is, and its bytes, where firmware has one and no ACPI.
pub(super) fn tree() -> Option<(u64, u64)> {
    const TREE: Guid = guid!("b1b621d5-f19c-41a5-830b-d9152c69aae0");
    if rsdp() != 0 {
        return None;
    }
    let address = uefi::system::with_config_table(|tables| {
        let table = tables.iter().find(|table| table.guid == TREE)?;
        Some(table.address as u64)
    })?;
    // SAFETY: firmware says that a tree is there, which has its length in its first eight bytes.
    let head = unsafe { core::slice::from_raw_parts(address as *const u8, 8) };
    let bytes = Fdt::total_bytes(head).ok()?;
    Some((address, bytes.into()))
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
