//! In place of `first_map` where pages have 16 or 64 KiB: the UEFI loader refuses such an image, because firmware's map
//! has borders within a block. The first page tables are those of `entry.s`. A processor without these pages says so.

use firstlight::addr::PAGE_BYTES;

use crate::arch::DirectMap;
use crate::arch::common::paging::Content;
use crate::firmware::Loader;
use crate::{console, end};

/// The UEFI loader cannot have entered.
pub(crate) const fn is_by_uefi() -> bool {
    false
}

/// What the lowest block holds.
pub(crate) const fn lowest() -> Content {
    Content::Registers
}

/// Called by `entry.s` in place of `first_cpu_main` where the processor has no pages of this size: on a table of its
/// own, on which all is where it is.
#[unsafe(no_mangle)]
extern "C" fn without_pages(tables: u64, entry_ticks: u64) -> ! {
    // For the port that a tree names. SAFETY: nothing is allocated.
    let _ = Loader::read(unsafe { DirectMap::new() }, tables);
    console::install(entry_ticks);
    // SAFETY: this is the first CPU, and this is done once.
    unsafe { super::install_traps() }
    end::machine(format_args!(
        "this processor has no pages of {} KiB: expected one with them, or the image with pages of 4 KiB",
        PAGE_BYTES >> 10
    ))
}
