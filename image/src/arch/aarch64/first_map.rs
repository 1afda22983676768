//! The first page tables where the UEFI loader entered: the lowest 4 GiB by firmware's map, in pages of
//! 2 MiB. What firmware calls memory that may be cached is; all else is mapped as registers of devices,
//! where a processor reads nothing before it has to.

use core::sync::atomic::{AtomicBool, Ordering};

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::firmware::PhysRead;
use firstlight::firmware::efi;
use firstlight::firmware::pvh::StartInfo;
use firstlight_image::merged::is_cached;
use firstlight_wire::handover::View;

use super::translation;
use crate::arch::common::paging::{BOOT_END, Content, SIZE_1G, SIZE_BLOCK, Table, image_range};
use crate::arch::common::sole;

/// Whether the UEFI loader entered.
static BY_UEFI: AtomicBool = AtomicBool::new(false);
/// Whether there is memory in the lowest 2 MiB, if so.
static LOWEST_IS_MEMORY: AtomicBool = AtomicBool::new(false);

/// Of each of the lowest 4 GiB.
static mut LOW: [Table; 4] = [const { Table::EMPTY }; 4];

unsafe extern "C" {
    static mut boot_middle: Table;
    static mut boot_image: Table;
}

/// Whether the UEFI loader entered, and not one by Linux's boot protocol.
pub(crate) fn is_by_uefi() -> bool {
    BY_UEFI.load(Ordering::Relaxed)
}

/// What the lowest 2 MiB hold.
pub(crate) fn lowest() -> Content {
    match LOWEST_IS_MEMORY.load(Ordering::Relaxed) {
        true => Content::Data,
        false => Content::Registers,
    }
}

/// Memory before there are tables of ours: on firmware's translation.
#[derive(Clone, Copy)]
struct FirmwareMemory;

impl PhysRead<'static> for FirmwareMemory {
    fn read(&self, range: PhysRange) -> Option<&'static [u8]> {
        let bytes = usize::try_from(range.bytes()).ok()?;
        let start = range.start().get() as *const u8;
        // SAFETY: firmware maps all memory at equal addresses, and what is read here the loader has written,
        // into memory of its own. Other loaders do not enter at the second instruction.
        (!start.is_null()).then(|| unsafe { core::slice::from_raw_parts(start, bytes) })
    }
}

/// The loader's copy of firmware's map: bytes, and those of a descriptor.
fn map(at: u64) -> Option<(&'static [u8], usize)> {
    let memory = FirmwareMemory;
    let info = StartInfo::read(&memory, PhysAddr::new(at)).ok()?;
    let modules = info.modules(&memory).ok()?;
    modules.into_iter().find_map(|module| {
        let bytes = memory.read(PhysRange::with_size(module.start, module.bytes)?)?;
        let view = View::read(bytes).ok()??;
        let descriptor_bytes = usize::try_from(view.handover.descriptor_bytes).ok()?;
        Some((view.map, descriptor_bytes))
    })
}

/// Writes the tables; called by `entry.s` on firmware's translation. Without a map that can be read all but
/// the image is registers, the hand-over and the screen among them: the run ends without a word.
#[unsafe(no_mangle)]
extern "C" fn map_by_uefi(start_info: u64) {
    BY_UEFI.store(true, Ordering::Relaxed);
    // SAFETY: nothing else runs yet, and translation is firmware's.
    let (root, middle, low) = unsafe {
        (
            sole(&raw mut translation::boot_root),
            sole(&raw mut boot_middle),
            sole(&raw mut LOW),
        )
    };
    let registers = translation::flags(Content::Registers, SIZE_BLOCK);
    let memory = translation::flags(Content::Data, SIZE_BLOCK);
    let entries = low.iter_mut().flat_map(|table| &mut table.0);
    for (entry, at) in entries.zip((0..).step_by(SIZE_BLOCK as usize)) {
        *entry = translation::at(at) | registers;
    }
    if let Some((map, descriptor_bytes)) = map(start_info)
        && let Ok(descriptors) = efi::descriptors(map, descriptor_bytes)
    {
        let cached = |of: &efi::Descriptor| is_cached(of.number, of.attributes);
        for descriptor in descriptors.filter(cached) {
            let end = descriptor
                .pages
                .saturating_mul(4096)
                .saturating_add(descriptor.start)
                .min(BOOT_END);
            let first = descriptor.start & !(SIZE_BLOCK - 1);
            for at in (first..end).step_by(SIZE_BLOCK as usize) {
                let table = &mut low[(at / SIZE_1G) as usize];
                table.0[(at / SIZE_BLOCK % 512) as usize] = translation::at(at) | memory;
            }
        }
    }
    if low[0].0[0] == memory {
        LOWEST_IS_MEMORY.store(true, Ordering::Relaxed);
    }
    // The image's own 2 MiB are small pages that run, as in the file.
    let image = image_range().start().get();
    low[(image / SIZE_1G % 4) as usize].0[(image / SIZE_BLOCK % 512) as usize] =
        translation::table(&raw mut boot_image as u64);
    for (entry, table) in middle.0.iter_mut().zip(low) {
        *entry = translation::table(&raw mut *table as u64);
    }
    root.0[0] = translation::table(&raw mut *middle as u64);
}
