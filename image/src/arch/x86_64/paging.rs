//! Page tables. The first ones are in `entry.s`: the lowest 4 GiB in pages of
//! 2 MiB. [`protect`] protects the image's pages, [`Mapper`] adds the rest of memory:
//! pages of 1 GiB where the processor has them.

use core::ptr::addr_of;
use core::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::PhysRange;
use raw_cpuid::CpuId;
use x86_64::registers::control::Cr3;
use x86_64::registers::model_specific::{Efer, EferFlags};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Size of the memory that the first page tables map.
pub(super) const BOOT_END: u64 = 4 << 30;

const SIZE_4K: u64 = 1 << 12;
const SIZE_2M: u64 = 1 << 21;
const SIZE_1G: u64 = 1 << 30;
/// End of the lower half of virtual addresses, which equal physical ones.
const VIRTUAL_END: u64 = 1 << 47;
/// Size of the memory of one top-level entry.
const SIZE_512G: u64 = 1 << 39;

/// One page table of any level.
#[repr(C, align(4096))]
struct Table([u64; 512]);

unsafe extern "C" {
    static mut boot_pml4: Table;
    static mut boot_pdpt: Table;
    /// The first of four.
    static mut boot_pd: Table;
    static boot_stack_guard: u8;
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// Tables for the lowest 4 MiB in pages of 4 KiB.
static mut LOWEST: [Table; 2] = [const { Table([0; 512]) }; 2];

/// Where the image lies.
pub(crate) fn image_range() -> PhysRange {
    // Symbols of the linker script: only their addresses have a meaning.
    let (start, end) = (addr_of!(image_start) as u64, addr_of!(image_end) as u64);
    PhysRange::new(start, end).unwrap_or(PhysRange::EMPTY)
}

/// First address that can't be mapped: the processor's physical addresses end,
/// or the half of virtual ones that equal them.
pub(super) fn limit() -> u64 {
    let bits = CpuId::new()
        .get_processor_capacity_feature_info()
        .map_or(36, |info| info.physical_address_bits());
    (1 << bits.clamp(32, 63)).min(VIRTUAL_END)
}

/// Protects the image's pages: code can't be written, data can't be executed, the page
/// below the stack is not mapped, and the first page can't be written (loaders put
/// their memory map there, so it can be read).
///
/// # Safety
/// Called once, on the first CPU, before the other CPUs start.
pub(crate) unsafe fn protect() {
    let no_execute = no_execute();
    let page = |address: u64| {
        let image = addr_of!(image_start) as u64..addr_of!(image_end) as u64;
        let flags = if address == addr_of!(boot_stack_guard) as u64 {
            return 0;
        } else if address == 0 {
            PRESENT | no_execute
        } else if !image.contains(&address) {
            PRESENT | WRITABLE | no_execute
        } else if address < addr_of!(text_end) as u64 {
            PRESENT
        } else if address < addr_of!(rodata_end) as u64 {
            PRESENT | no_execute
        } else {
            PRESENT | WRITABLE | no_execute
        };
        address | flags
    };
    // SAFETY: nothing else uses the tables now (the caller's promise), and no reference
    // to them is kept. Mapped pages stay mapped at their addresses.
    unsafe {
        let lowest = super::sole(&raw mut LOWEST);
        let addresses = (0..).step_by(SIZE_4K as usize);
        let entries = lowest.iter_mut().flat_map(|table| table.0.iter_mut());
        entries
            .zip(addresses)
            .for_each(|(entry, address)| *entry = page(address));
        let pdpt = super::sole(&raw mut boot_pdpt);
        pdpt.0[1..4]
            .iter_mut()
            .for_each(|entry| *entry |= no_execute);
        let pd = super::sole(&raw mut boot_pd);
        pd.0[2..].iter_mut().for_each(|entry| *entry |= no_execute);
        for (entry, table) in pd.0.iter_mut().zip(lowest) {
            *entry = &raw const *table as u64 | PRESENT | WRITABLE;
        }
    }
    flush();
}

/// The bit that forbids execution, where the processor has it.
fn no_execute() -> u64 {
    match Efer::read().contains(EferFlags::NO_EXECUTE_ENABLE) {
        true => NO_EXECUTE,
        false => 0,
    }
}

/// Flushes all cached translations.
fn flush() {
    let (frame, flags) = Cr3::read();
    // SAFETY: the same tables again.
    unsafe { Cr3::write(frame, flags) }
}

/// Adds memory to the direct map.
pub(super) struct Mapper {
    /// Size of the largest page.
    largest: u64,
    /// Flags of every page.
    flags: u64,
}

impl Mapper {
    pub(super) fn new() -> Self {
        let giant = CpuId::new()
            .get_extended_processor_and_feature_identifiers()
            .is_some_and(|features| features.has_1gib_pages());
        Self {
            largest: if giant { SIZE_1G } else { SIZE_2M },
            flags: PRESENT | WRITABLE | LARGE | no_execute(),
        }
    }

    /// A mapper whose pages are not there until [`reveal`] is called, 2 MiB each.
    pub(super) fn hidden() -> Self {
        Self {
            largest: SIZE_2M,
            flags: Self::new().flags & !PRESENT,
        }
    }

    /// Maps `range`, rounded outwards to 2 MiB, at equal addresses; memory below 4 GiB is
    /// mapped already. `table` allocates a page for a table, at a mapped address.
    pub(super) fn map<E>(
        &mut self,
        range: PhysRange,
        table: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<(), E> {
        let mut at = (range.start().get() & !(SIZE_2M - 1)).max(BOOT_END);
        let end = range.end().get().next_multiple_of(SIZE_2M);
        while at < end {
            let stop = end.min((at | (SIZE_512G - 1)) + 1);
            // SAFETY: the root is only used here, on one CPU, while no reference to it exists.
            let root = unsafe { super::sole(&raw mut boot_pml4) };
            let entry = &mut root.0[index(at, SIZE_512G)];
            at = self.map_within(below(entry, table)?, at, stop, table)?;
        }
        flush();
        Ok(())
    }

    /// Maps `at..stop`, which `pdpt` covers.
    fn map_within<E>(
        &self,
        pdpt: &mut Table,
        mut at: u64,
        stop: u64,
        table: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<u64, E> {
        while at < stop {
            let whole = at.is_multiple_of(SIZE_1G) && self.largest == SIZE_1G;
            if let Some(pages) = whole
                .then(|| (stop - at) / SIZE_1G)
                .filter(|pages| *pages > 0)
            {
                at = self.fill(pdpt, at, pages, SIZE_1G);
                continue;
            }
            let end = stop.min((at | (SIZE_1G - 1)) + 1);
            let entry = &mut pdpt.0[index(at, SIZE_1G)];
            if *entry & LARGE == 0 {
                self.fill(below(entry, table)?, at, (end - at) / SIZE_2M, SIZE_2M);
            }
            at = end;
        }
        Ok(at)
    }

    /// Maps `pages` pages of `size` from `at` on, all in `table`; returns the address after them.
    fn fill(&self, table: &mut Table, at: u64, pages: u64, size: u64) -> u64 {
        let mut address = at;
        for entry in table
            .0
            .iter_mut()
            .skip(index(at, size))
            .take(pages as usize)
        {
            *entry = address | self.flags;
            address += size;
        }
        address
    }
}

/// Makes hidden pages that hold some of `range` visible; from any CPU. No flush is
/// needed: processors do not cache that a page is absent.
pub(super) fn reveal(range: PhysRange) {
    let first = range.start().get() & !(SIZE_2M - 1);
    for at in (first..range.end().get()).step_by(SIZE_2M as usize) {
        let mut table = &raw const boot_pml4;
        for size in [SIZE_512G, SIZE_1G] {
            // SAFETY: these levels were made by `Mapper` before other CPUs
            // started, and have not changed since.
            let entry = unsafe { (*table).0[index(at, size)] };
            if entry & PRESENT == 0 || entry & LARGE != 0 {
                return;
            }
            table = (entry & ADDRESS) as *const Table;
        }
        // SAFETY: a whole entry of a mapped table, which from now on is only
        // changed here, atomically.
        let entry = unsafe { &*table.cast::<AtomicU64>().add(index(at, SIZE_2M)) };
        if entry.load(Ordering::Relaxed) & LARGE != 0 {
            entry.fetch_or(PRESENT, Ordering::AcqRel);
        }
    }
}

/// Where in its table the entry for `at` is, when an entry covers `size`.
const fn index(at: u64, size: u64) -> usize {
    (at / size % 512) as usize
}

/// The table an entry points to; a new one where it points to none.
fn below<'t, E>(
    entry: &mut u64,
    table: &mut dyn FnMut() -> Result<u64, E>,
) -> Result<&'t mut Table, E> {
    if *entry & PRESENT == 0 {
        let page = table()?;
        // SAFETY: a page of its own at a mapped address; any bytes are a table.
        unsafe { (page as *mut Table).write(Table([0; 512])) }
        *entry = page | PRESENT | WRITABLE;
    }
    // SAFETY: the entry points to a table that was mapped when it was made, and
    // the one borrow ends before the next table is read.
    Ok(unsafe { &mut *((*entry & ADDRESS) as *mut Table) })
}

/// The access that a range must allow.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

/// Whether every byte of `range` is mapped for `access`.
pub(super) fn allows(range: PhysRange, access: Access) -> bool {
    let (mut at, end) = (range.start().get(), range.end().get());
    // Above, an index into the tables would mean another address.
    if end > VIRTUAL_END {
        return false;
    }
    while at < end {
        match leaf_end(at, access) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// End of the page that maps `at`; none if nothing maps it for `access`.
fn leaf_end(at: u64, access: Access) -> Option<u64> {
    let needed = match access {
        Access::Read => PRESENT,
        Access::Write => PRESENT | WRITABLE,
    };
    let mut table = &raw const boot_pml4;
    for size in [SIZE_512G, SIZE_1G, SIZE_2M, SIZE_4K] {
        // SAFETY: tables are mapped; they change only while `Mapper` works, on this CPU.
        let entry = unsafe { (*table).0[index(at, size)] };
        if entry & needed != needed {
            return None;
        }
        if size == SIZE_4K || entry & LARGE != 0 {
            return Some((at | (size - 1)) + 1);
        }
        table = (entry & ADDRESS) as *const Table;
    }
    None
}
