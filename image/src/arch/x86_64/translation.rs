//! Entries of page tables, and what the first ones in `entry.s` map: the lowest 4 GiB in
//! pages of 2 MiB.

use core::sync::atomic::{Ordering, compiler_fence};

use firstlight::addr::PhysRange;
use raw_cpuid::CpuId;
use x86_64::registers::control::Cr3;
use x86_64::registers::model_specific::{Efer, EferFlags};

use crate::arch::common::paging::{Content, PRESENT, SIZE_1G, SIZE_BLOCK, SIZE_PAGE, Table};
use crate::arch::common::{paging, sole};

const WRITABLE: u64 = 1 << 1;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// End of the lower half of virtual addresses, which equal physical ones.
const VIRTUAL_END: u64 = 1 << 47;

/// Interrupt controllers.
const DEVICES: PhysRange = match PhysRange::new(0xfec0_0000, 0xff00_0000) {
    Some(range) => range,
    None => PhysRange::EMPTY,
};
/// Where there is no memory, whatever a map says: [`DEVICES`].
pub(crate) const fn devices() -> PhysRange {
    DEVICES
}

/// The first page can't be written; loaders put their memory map there, so it can be read.
pub(crate) const FIRST_PAGE: Option<Content> = Some(Content::Constants);

/// Whether devices' registers can be in `range`, mapped: the processor knows what may be cached.
pub(crate) fn can_be_registers(_: PhysRange) -> bool {
    true
}

unsafe extern "C" {
    static mut boot_pml4: Table;
    static mut boot_pdpt: Table;
    /// The first of four.
    static mut boot_pd: Table;
}

/// The root, and how much memory an entry of it covers.
pub(crate) fn root() -> (*mut Table, u64) {
    (&raw mut boot_pml4, 1 << 39)
}

/// First address that can't be mapped: the processor's physical addresses end.
pub(crate) fn limit() -> u64 {
    let bits = CpuId::new()
        .get_processor_capacity_feature_info()
        .map_or(36, |info| info.physical_address_bits());
    1 << bits.clamp(32, 63)
}

/// End of the virtual addresses that can equal physical ones.
pub(crate) const fn virtual_end() -> u64 {
    VIRTUAL_END
}

/// Size of the largest page.
pub(crate) fn largest() -> u64 {
    let giant = CpuId::new()
        .get_extended_processor_and_feature_identifiers()
        .is_some_and(|features| features.has_1gib_pages());
    if giant { SIZE_1G } else { SIZE_BLOCK }
}

/// The flags of a page of `size`.
pub(crate) fn flags(content: Content, size: u64) -> u64 {
    let large = if size == SIZE_PAGE { 0 } else { LARGE };
    large
        | match content {
            Content::Code => PRESENT,
            Content::Constants => PRESENT | no_execute(),
            Content::Data | Content::Registers => PRESENT | WRITABLE | no_execute(),
        }
}

/// The entry of a page in the lowest GiB.
pub(crate) fn lowest(size: u64) -> u64 {
    flags(Content::Data, size)
}

/// An address in an entry.
pub(crate) const fn at(address: u64) -> u64 {
    address
}

/// An entry that points to the table at `address`.
pub(crate) const fn table(address: u64) -> u64 {
    address | PRESENT | WRITABLE
}

/// The address that an entry points to.
pub(crate) const fn address(entry: u64) -> u64 {
    entry & ADDRESS
}

/// Whether an entry above the lowest level is a page.
pub(crate) const fn is_leaf(entry: u64) -> bool {
    entry & LARGE != 0
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

/// Whether entries say what may be cached.
pub(crate) const TYPES_IN_TABLES: bool = false;

/// Called between writing a table and the entry that points to it: the processor's stores are seen
/// in order, the compiler's are here.
pub(crate) fn publish() {
    compiler_fence(Ordering::Release);
}

/// Flushes all cached translations of this CPU.
pub(crate) fn flush() {
    let (frame, flags) = Cr3::read();
    // SAFETY: the same tables again.
    unsafe { Cr3::write(frame, flags) }
}

/// Replaces a page by a table of smaller ones, by one store: it may be in use, and what was is still
/// allowed. The flush makes a mistake in that a fault at once.
pub(crate) fn replace(entry: &mut u64, table: u64) {
    publish();
    *entry = table;
    flush();
}

/// Called after entries that were absent became pages: processors do not cache absence.
pub(crate) fn added() {}

/// Protects the image's pages, and forbids execution anywhere else.
///
/// # Safety
/// Called once, on the first CPU, before the other CPUs start.
pub(crate) unsafe fn protect() {
    let no_execute = no_execute();
    let image = paging::image_range().start().get();
    // SAFETY: nothing else uses the tables now (the caller's promise), and no reference
    // to them is kept.
    unsafe {
        // In the image's GiB, all but its own 2 MiB, which run; the others as a whole.
        let gib = (image / SIZE_1G) as usize;
        let pdpt = &mut sole(&raw mut boot_pdpt).0[..4];
        forbid_all_but(gib, pdpt.as_chunks_mut::<4>().0, no_execute);
        let pd = &mut sole((&raw mut boot_pd).add(gib)).0;
        let own = (image / SIZE_BLOCK % 512) as usize;
        forbid_all_but(own, pd.as_chunks_mut::<8>().0, no_execute);
        paging::protect();
    }
}

/// Sets `no_execute` in all entries but that with number `own`, which runs. In chunks: this is a
/// large part of the way up.
fn forbid_all_but<const N: usize>(own: usize, chunks: &mut [[u64; N]], no_execute: u64) {
    for (number, chunk) in chunks.iter_mut().enumerate() {
        if number != own / N {
            chunk.iter_mut().for_each(|entry| *entry |= no_execute);
        } else {
            let others = chunk
                .iter_mut()
                .enumerate()
                .filter(|(at, _)| *at != own % N);
            others.for_each(|(_, entry)| *entry |= no_execute);
        }
    }
}

/// The bit that forbids execution, where the processor has it.
fn no_execute() -> u64 {
    match Efer::read().contains(EferFlags::NO_EXECUTE_ENABLE) {
        true => NO_EXECUTE,
        false => 0,
    }
}

/// An entry of firmware's own code, which runs.
pub(crate) const fn running(entry: u64) -> u64 {
    entry & !NO_EXECUTE
}
