//! Entries of page tables, and what the first ones in `entry.s` map: 4 GiB, in which devices and
//! memory lie; the processor knows which is which.

use core::arch::asm;
use core::ptr::addr_of;

use firstlight::addr::PhysRange;

use crate::arch::common::paging::{Content, PRESENT, SIZE_1G, Table};

const READABLE: u64 = 1 << 1;
const WRITABLE: u64 = 1 << 2;
const EXECUTABLE: u64 = 1 << 3;
/// Supervisor mode has no access.
const USER: u64 = 1 << 4;
/// Not for the processor to set: some fault instead.
const ACCESSED_AND_WRITTEN: u64 = 3 << 6;
/// Bits of the number of a page, behind the flags.
const PAGE_BITS: u32 = 44;
const FLAG_BITS: u32 = 10;

/// Physical addresses have 56 bits.
const PHYSICAL_END: u64 = 1 << (PAGE_BITS + 12);

/// Registers are not memory in any tree.
pub(crate) const fn devices() -> PhysRange {
    PhysRange::EMPTY
}

/// Nothing is read there: it is not mapped.
pub(crate) const FIRST_PAGE: Option<Content> = None;

/// Whether devices' registers can be in `range`, mapped: the processor knows what may be cached.
pub(crate) fn can_be_registers(_: PhysRange) -> bool {
    true
}

unsafe extern "C" {
    /// The root, and log2 of what one of its entries covers.
    static boot_root: [u64; 2];
}

/// The root, and how much memory an entry of it covers.
pub(crate) fn root() -> (*mut Table, u64) {
    // SAFETY: written before the first instruction of Rust.
    let [root, bits] = unsafe { *addr_of!(boot_root) };
    (root as *mut Table, 1 << bits)
}

/// First address that can't be mapped: physical addresses end.
pub(crate) fn limit() -> u64 {
    PHYSICAL_END
}

/// End of the virtual addresses that can equal physical ones: half of what the root covers.
pub(crate) fn virtual_end() -> u64 {
    256 * root().1
}

/// Size of the largest page.
pub(crate) fn largest() -> u64 {
    SIZE_1G
}

/// The flags of a page of any size.
pub(crate) fn flags(content: Content, _: u64) -> u64 {
    let access = match content {
        Content::Code => READABLE | EXECUTABLE,
        Content::Constants => READABLE,
        Content::Data | Content::Registers => READABLE | WRITABLE,
    };
    PRESENT | access | ACCESSED_AND_WRITTEN
}

/// The entry of a page in the lowest GiB.
pub(crate) fn lowest(size: u64) -> u64 {
    flags(Content::Data, size)
}

/// An address in an entry.
pub(crate) const fn at(address: u64) -> u64 {
    address >> (12 - FLAG_BITS)
}

/// An entry that points to the table at `address`.
pub(crate) const fn table(address: u64) -> u64 {
    at(address) | PRESENT
}

/// The address that an entry points to.
pub(crate) const fn address(entry: u64) -> u64 {
    (entry >> FLAG_BITS & ((1 << PAGE_BITS) - 1)) << 12
}

/// Whether an entry is a page.
pub(crate) const fn is_leaf(entry: u64) -> bool {
    entry & (READABLE | WRITABLE | EXECUTABLE) != 0
}

/// Whether a page can be written.
pub(crate) const fn is_writable(entry: u64) -> bool {
    entry & WRITABLE != 0
}

/// Whether a page can hold memory, and registers of devices: the processor knows what may be cached.
pub(crate) const fn is_memory(_: u64) -> bool {
    true
}

/// See [`is_memory`].
pub(crate) const fn is_registers(_: u64) -> bool {
    true
}

/// Called between writing a table and the entry that points to it: another hart that finds the table
/// finds it written.
pub(crate) fn publish() {
    // SAFETY: a fence.
    unsafe { asm!("fence w, w", options(nostack)) }
}

/// Flushes all cached translations of this hart.
pub(crate) fn flush() {
    // SAFETY: the same tables.
    unsafe { asm!("sfence.vma", options(nostack)) }
}

/// Replaces a page by a table of smaller ones, by one store: it may be in use, and what was is still
/// allowed. The flush makes a mistake in that a fault at once.
pub(crate) fn replace(entry: &mut u64, table: u64) {
    publish();
    *entry = table;
    flush();
}

/// Whether a page that was refused may be refused again once it is there, without a flush.
pub(crate) const CACHES_ABSENCE: bool = true;

/// Called after entries that were absent became pages: this processor may cache absence. Only this
/// hart is flushed: another that has tried the page before faults, and tries again (`traps`).
pub(crate) fn added() {
    flush();
}

/// Flushes what this hart has cached of the page at `address`, valid or absent.
pub(super) fn flush_page(address: u64) {
    // SAFETY: the same tables.
    unsafe { asm!("sfence.vma {}, zero", in(reg) address, options(nostack)) }
}

/// Whether a page can be accessed in the way whose page fault has the number `cause`.
pub(super) fn allows(entry: u64, cause: u64) -> bool {
    let access = match cause {
        12 => EXECUTABLE,
        13 => READABLE,
        15 => WRITABLE,
        _ => return false,
    };
    let needed = PRESENT | access | ACCESSED_AND_WRITTEN;
    entry & (needed | USER) == needed
}
