//! Entries of page tables, and what the first ones in `entry.s` map: devices in the first GiB,
//! memory in the three after it, as on boards whose memory begins at 1 GiB; from the UEFI loader, what
//! [`first_map`](super::first_map) makes of them.

use core::arch::asm;

use firstlight::addr::PhysRange;

use crate::arch::common::paging::{
    self, Access, Content, ENTRIES, PRESENT, SIZE_1G, SIZE_BLOCK, SIZE_PAGE, Table,
};

/// Of the upper levels: a table, not a page. Of the lowest: a page.
const TABLE_OR_SMALL_PAGE: u64 = 1 << 1;
/// The type of memory: registers of devices, in the order of `entry.s`.
const REGISTERS: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const SHARED: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
/// For EL1, and for EL0, of which there is none.
const NO_EXECUTE: u64 = 1 << 53 | 1 << 54;
const ADDRESS: u64 = (VIRTUAL_END - 1) & !(SIZE_PAGE - 1);

/// End of the lower half of virtual addresses, which equal physical ones.
const VIRTUAL_END: u64 = 1 << 48;

/// What an entry of the root covers: the table of the most levels that these addresses have.
const ROOT_ENTRY: u64 = {
    let mut size = SIZE_BLOCK;
    while size * ENTRIES as u64 <= VIRTUAL_END / 2 {
        size *= ENTRIES as u64;
    }
    size
};

/// Where there is no memory, whatever a table says: the first GiB is mapped as registers. From the UEFI loader, where
/// its map says so, and the first page is not mapped.
pub(crate) fn devices() -> PhysRange {
    let end = if super::first_map::is_by_uefi() {
        SIZE_PAGE
    } else {
        SIZE_1G
    };
    PhysRange::new(0, end).unwrap_or_default()
}
/// Nothing is read there: it is not mapped.
pub(crate) const FIRST_PAGE: Option<Content> = None;

/// Whether devices' registers can be in `range`: what is mapped as memory would be cached. By Linux's boot protocol only
/// where the first page tables have some.
pub(crate) fn can_be_registers(range: PhysRange) -> bool {
    match super::first_map::is_by_uefi() {
        true => !paging::has_memory(range),
        false => paging::allows(range, Access::Registers),
    }
}

unsafe extern "C" {
    pub(super) static mut boot_root: Table;
}

/// The root, and how much memory an entry of it covers.
pub(crate) fn root() -> (*mut Table, u64) {
    (&raw mut boot_root, ROOT_ENTRY)
}

/// First address that can't be mapped: the processor's physical addresses end.
pub(crate) fn limit() -> u64 {
    let features: u64;
    // SAFETY: reads a register of features.
    unsafe { asm!("mrs {}, id_aa64mmfr0_el1", out(reg) features, options(nostack, nomem)) }
    // 52 bits need other tables.
    let bits = match features & 15 {
        0 => 32,
        1 => 36,
        2 => 40,
        3 => 42,
        4 => 44,
        _ => 48,
    };
    1 << bits
}

/// End of the virtual addresses that can equal physical ones.
pub(crate) const fn virtual_end() -> u64 {
    VIRTUAL_END
}

/// Size of the largest page: one of 1 GiB is for tables of pages of 4 KiB.
pub(crate) fn largest() -> u64 {
    match ENTRIES {
        512 => SIZE_1G,
        _ => SIZE_BLOCK,
    }
}

/// The flags of a page of `size`.
pub(crate) fn flags(content: Content, size: u64) -> u64 {
    let protection = match content {
        Content::Code => READ_ONLY,
        Content::Constants => READ_ONLY | NO_EXECUTE,
        Content::Data => NO_EXECUTE,
        Content::Registers => return page(size) | REGISTERS | NO_EXECUTE,
    };
    page(size) | SHARED | protection
}

/// The entry of a page in the lowest GiB: registers, but where the UEFI loader found memory.
pub(crate) fn lowest(size: u64) -> u64 {
    flags(super::first_map::lowest(), size)
}

const fn page(size: u64) -> u64 {
    let small = if size == SIZE_PAGE {
        TABLE_OR_SMALL_PAGE
    } else {
        0
    };
    small | PRESENT | ACCESSED
}

/// An address in an entry.
pub(crate) const fn at(address: u64) -> u64 {
    address
}

/// An entry that points to the table at `address`.
pub(crate) const fn table(address: u64) -> u64 {
    address | PRESENT | TABLE_OR_SMALL_PAGE
}

/// The address that an entry points to.
pub(crate) const fn address(entry: u64) -> u64 {
    entry & ADDRESS
}

/// Whether an entry above the lowest level is a page.
pub(crate) const fn is_leaf(entry: u64) -> bool {
    entry & TABLE_OR_SMALL_PAGE == 0
}

/// Whether a page can be written.
pub(crate) const fn is_writable(entry: u64) -> bool {
    entry & READ_ONLY == 0
}

/// Whether a page holds memory.
pub(crate) const fn is_memory(entry: u64) -> bool {
    entry & REGISTERS == 0
}

/// Whether a page holds registers of devices.
pub(crate) const fn is_registers(entry: u64) -> bool {
    entry & REGISTERS != 0
}

/// Whether entries say what may be cached.
pub(crate) const TYPES_IN_TABLES: bool = true;

/// Called between writing a table and the entry that points to it: whoever finds the table, another
/// CPU's processor among them, finds it written.
pub(crate) fn publish() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) }
}

/// Flushes all cached translations of all CPUs, after the tables are written.
pub(crate) fn flush() {
    // SAFETY: the same tables; entries in use keep their addresses.
    unsafe {
        asm!(
            "dsb ishst",
            "tlbi vmalle1is",
            "dsb ish",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// Replaces a page by a table of smaller ones, none of them in use: it must not be there meanwhile.
pub(crate) fn replace(entry: &mut u64, table: u64) {
    // SAFETY: one store each, which the flush sees; the compiler must not drop the first.
    unsafe {
        (&raw mut *entry).write_volatile(0);
        flush();
        (&raw mut *entry).write_volatile(table);
    }
}

/// Whether a page that was refused may be refused again once it is there, without a flush.
pub(crate) const CACHES_ABSENCE: bool = false;

/// Called after entries that were absent became pages: absence is not cached, but the entry must
/// be seen.
pub(crate) fn added() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) }
}

/// An entry of firmware's own code, which runs; registers never do.
pub(crate) const fn running(entry: u64) -> u64 {
    if is_registers(entry) {
        entry
    } else {
        entry & !NO_EXECUTE
    }
}
