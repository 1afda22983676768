//! PVH's start info, on every processor: what is not PVH's is in a module.

use firstlight::firmware::pvh::{MAGIC, V1_BYTES};
use uefi::boot::MemoryType;

use super::error::StartError;
use super::memory::Pages;

const MODULE_BYTES: usize = 32;

/// Start info, list of modules and command line, one after the other. There is no memory map in
/// it: the first module has it. A device tree is the second, of which address and bytes are given.
pub(super) fn start_info(
    line: &[u8],
    rsdp: u64,
    module: &Pages,
    tree: Option<(u64, u64)>,
) -> Result<Pages, StartError> {
    const LINE: usize = V1_BYTES + 2 * MODULE_BYTES;
    let bytes = LINE + line.len() + 1;
    let (tree_start, tree_bytes) = tree.unwrap_or_default();
    let mut pages = Pages::new("the start info", bytes, MemoryType::LOADER_DATA)?;
    let at = pages.address();
    let words = [
        u64::from(MAGIC) | 1 << 32,            // version 1
        (1 + u64::from(tree.is_some())) << 32, // modules
        at + V1_BYTES as u64,
        at + LINE as u64,
        rsdp,
        0,
        0,
        module.address(),
        module.len() as u64,
        0,
        0,
        tree_start,
        tree_bytes,
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
