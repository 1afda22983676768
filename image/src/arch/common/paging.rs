//! Page tables: a radix tree whose tables are a page each. All sizes follow from the engine's page: of 4 KiB it makes
//! 512 entries a table and blocks of 2 MiB and 1 GiB, of 16 KiB 2,048 and blocks of 32 MiB, of 64 KiB 8,192 and blocks
//! of 512 MiB. The first tables are in `entry.s` and map [`BOOT_END`] bytes. [`protect`] protects the image's pages,
//! [`Mapper`] adds the rest of memory. Entries are [`translation`]'s.

use core::ptr::addr_of;
use core::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::{Order, PAGE_BYTES, PhysRange};

use super::sole;
use crate::arch::translation;

/// An entry without this bit is not there, on every processor here.
pub(crate) const PRESENT: u64 = 1;
/// Size of the memory that the first page tables map.
pub(crate) const BOOT_END: u64 = 4 << 30;

/// Entries of a table.
pub(crate) const ENTRIES: usize = PAGE_BYTES as usize / size_of::<u64>();
/// What an entry of the lowest level covers, and one of the level above.
pub(crate) const SIZE_PAGE: u64 = PAGE_BYTES;
pub(crate) const SIZE_BLOCK: u64 = SIZE_PAGE * ENTRIES as u64;
pub(crate) const SIZE_1G: u64 = 1 << 30;
/// Memory is mapped in multiples of this, whatever firmware's borders are.
const GRAIN: u64 = 2 << 20;
/// The largest page that is hidden: as much is accepted at once.
const HIDDEN: u64 = if SIZE_BLOCK <= Order::HUGE.bytes() {
    SIZE_BLOCK
} else {
    SIZE_PAGE
};

/// One page table of any level.
#[cfg_attr(feature = "page-64k", repr(C, align(65536)))]
#[cfg_attr(feature = "page-16k", repr(C, align(16384)))]
#[cfg_attr(
    not(any(feature = "page-16k", feature = "page-64k")),
    repr(C, align(4096))
)]
pub(crate) struct Table(pub(crate) [u64; ENTRIES]);
const _: () =
    assert!(size_of::<Table>() as u64 == PAGE_BYTES && align_of::<Table>() == size_of::<Table>());

impl Table {
    pub(crate) const EMPTY: Self = Self([0; ENTRIES]);
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The image's code: it can't be written.
    Code,
    /// It can't be written or executed.
    Constants,
    /// It can't be executed.
    Data,
    /// Registers of devices, which can't be executed or cached.
    Registers,
}

unsafe extern "C" {
    static boot_stack_guard: u8;
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// Where the image lies.
pub(crate) fn image_range() -> PhysRange {
    // Symbols of the linker script: only their addresses have a meaning.
    let (start, end) = (addr_of!(image_start) as u64, addr_of!(image_end) as u64);
    PhysRange::new(start, end).unwrap_or(PhysRange::EMPTY)
}

/// Tables for [`protect`]: at most two for each of its two blocks; of larger pages the lowest alone needs one.
static mut SPARE: [Table; SPARES] = [const { Table::EMPTY }; SPARES];
const SPARES: usize = if ENTRIES == 512 { 4 } else { 1 };

/// Protects the image's pages: code can't be written, data can't be executed, and the page
/// below the stack is not mapped. The first page is what [`translation::FIRST_PAGE`] says.
///
/// # Safety
/// Called once, on the first CPU, before the other CPUs start.
pub(crate) unsafe fn protect() {
    let at = |symbol: *const u8| symbol as u64;
    let start = at(addr_of!(image_start));
    // SAFETY: nothing else uses these tables now (the caller's promise), and no reference to
    // them is kept. Mapped pages stay mapped at their addresses.
    unsafe {
        let mut spare = sole(&raw mut SPARE).iter_mut();
        split(0, translation::lowest, &mut spare, |table| {
            fill(
                table,
                0,
                SIZE_BLOCK,
                SIZE_PAGE,
                translation::lowest(SIZE_PAGE),
            );
            table.0[0] = translation::FIRST_PAGE.map_or(0, |content| page(0, content));
        });
        let data = |size| translation::flags(Content::Data, size);
        split(start, data, &mut spare, |table| {
            let mut from = start & !(SIZE_BLOCK - 1);
            for (to, content) in [
                (start, Content::Data),
                (at(addr_of!(text_end)), Content::Code),
                (at(addr_of!(rodata_end)), Content::Constants),
                (from + SIZE_BLOCK, Content::Data),
            ] {
                let flags = translation::flags(content, SIZE_PAGE);
                fill(table, from, to, SIZE_PAGE, flags);
                from = to;
            }
            table.0[index(at(addr_of!(boot_stack_guard)), SIZE_PAGE)] = 0;
        });
    }
    translation::flush();
}

/// An entry for a page of the lowest level.
fn page(at: u64, content: Content) -> u64 {
    translation::at(at) | translation::flags(content, SIZE_PAGE)
}

/// Makes the block around `at` pages of the lowest level, all written by `write`; larger pages around them have
/// `flags` by their size. A table is complete before an entry points to it: the code that does this
/// may run there. Without space for tables nothing is changed.
///
/// # Safety
/// As for [`protect`].
unsafe fn split(
    at: u64,
    flags: impl Fn(u64) -> u64,
    spare: &mut core::slice::IterMut<'static, Table>,
    write: impl FnOnce(&mut Table),
) {
    let (mut table, mut size) = translation::root();
    while size > SIZE_PAGE {
        // SAFETY: tables are mapped at their own addresses; the rest is the caller's promise.
        let entry = unsafe { &mut (*table).0[index(at, size)] };
        if *entry & PRESENT == 0 {
            return;
        }
        if translation::is_leaf(*entry) {
            if let Some(smaller) = smaller(at, size, &flags, spare, write) {
                translation::replace(entry, smaller);
            }
            return;
        }
        table = translation::address(*entry) as *mut Table;
        size /= ENTRIES as u64;
    }
    // SAFETY: as above.
    write(unsafe { &mut *table });
}

/// An entry for a table of smaller pages than the one of `size` around `at`, as [`split`] makes them.
fn smaller(
    at: u64,
    size: u64,
    flags: &impl Fn(u64) -> u64,
    spare: &mut core::slice::IterMut<'static, Table>,
    write: impl FnOnce(&mut Table),
) -> Option<u64> {
    let table = spare.next()?;
    let small = size / ENTRIES as u64;
    if small == SIZE_PAGE {
        write(table);
    } else {
        let from = at & !(size - 1);
        fill(table, from, from + size, small, flags(small));
        table.0[index(at, small)] = smaller(at, small, flags, spare, write)?;
    }
    Some(translation::table(&raw const *table as u64))
}

/// Writes the entries for `from..to`, pages of `size` in one table.
fn fill(table: &mut Table, from: u64, to: u64, size: u64, flags: u64) {
    let (first, pages) = (index(from, size), (to - from) / size);
    let mut next = translation::at(from) | flags;
    // A slice: this is a large part of the way up.
    let entries = table.0.get_mut(first..).unwrap_or_default();
    let pages = entries.len().min(pages as usize);
    for entry in entries.get_mut(..pages).unwrap_or_default() {
        *entry = next;
        next += translation::at(size);
    }
}

/// Adds memory to the direct map.
pub(crate) struct Mapper {
    /// Size of the largest page.
    largest: u64,
    /// Whether pages are not there at first.
    hidden: bool,
    /// Whether nothing is mapped yet, from [`BOOT_END`] on.
    is_first: bool,
    content: Content,
}

impl Mapper {
    pub(crate) fn new() -> Self {
        Self {
            largest: translation::largest(),
            hidden: false,
            is_first: false,
            content: Content::Data,
        }
    }

    /// The first mapper, of ranges that do not overlap: it does not look at what is there.
    pub(crate) fn first() -> Self {
        Self {
            is_first: true,
            ..Self::new()
        }
    }

    /// A mapper of registers of devices.
    pub(crate) fn registers() -> Self {
        Self {
            content: Content::Registers,
            ..Self::new()
        }
    }

    /// A mapper whose pages are not there until [`reveal`] is called, [`HIDDEN`] each at most.
    pub(crate) fn hidden() -> Self {
        Self {
            largest: HIDDEN,
            hidden: true,
            ..Self::new()
        }
    }

    /// Maps `range`, rounded outwards to 2 MiB, at equal addresses, as far as nothing is mapped there: a page that is
    /// stays what it is, and so does memory below 4 GiB. `table` allocates a page for a table, at a mapped address.
    pub(crate) fn map<E>(
        &mut self,
        range: PhysRange,
        table: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<(), E> {
        let at = (range.start().get() & !(GRAIN - 1)).max(BOOT_END);
        let end = range.end().get().next_multiple_of(GRAIN);
        if at < end {
            let (root, size) = translation::root();
            // SAFETY: only one CPU at a time adds, while no other reference exists. Others may walk the tables
            // meanwhile (`entry`): words are written whole, and nothing that was mapped changes.
            let root = unsafe { sole(root) };
            self.map_within(root, size, at, end, table)?;
            translation::flush();
        }
        Ok(())
    }

    /// Maps `at..stop`, all within `within`, of which an entry covers `size`.
    fn map_within<E>(
        &self,
        within: &mut Table,
        size: u64,
        mut at: u64,
        stop: u64,
        table: &mut dyn FnMut() -> Result<u64, E>,
    ) -> Result<(), E> {
        while at < stop {
            if size <= self.largest && at.is_multiple_of(size) && stop - at >= size {
                let mut end = stop & !(size - 1);
                if !self.is_first {
                    end = at + absent(within, index(at, size), (end - at) / size) * size;
                }
                if at < end {
                    let mut flags = translation::flags(self.content, size);
                    if self.hidden {
                        flags &= !PRESENT;
                    }
                    fill(within, at, end, size, flags);
                    at = end;
                    continue;
                }
            }
            let end = stop.min((at | (size - 1)) + 1);
            let entry = &mut within.0[index(at, size)];
            // A page may be there from a range before, perhaps hidden.
            let is_table = *entry & PRESENT != 0 && !translation::is_leaf(*entry);
            // What is mapped in whole blocks does not come to the lowest level.
            let is_above = GRAIN >= SIZE_BLOCK || size > SIZE_PAGE;
            if is_above && (*entry == 0 || is_table) {
                self.map_within(below(entry, table)?, size / ENTRIES as u64, at, end, table)?;
            }
            at = end;
        }
        Ok(())
    }
}

/// How many entries from `first` on are not in use, of `most`: all or the first of them.
fn absent(table: &Table, first: usize, most: u64) -> u64 {
    let entries = table.0.get(first..).unwrap_or_default().iter();
    let absent = entries.take(most as usize).take_while(|entry| **entry == 0);
    absent.count() as u64
}

/// Makes pages of memory of those of registers in `range`: there the first page tables, by firmware's map, have what was
/// no memory at the start. Other CPUs may run, but use none of it.
pub(crate) fn turn_to_memory(range: PhysRange) {
    let low = PhysRange::new(0, BOOT_END).unwrap_or_default();
    let (start, end) = (range.start().get(), range.intersect(low).end().get());
    if start >= end {
        return;
    }
    let pages = || {
        let all = (start & !(SIZE_BLOCK - 1)..end).step_by(SIZE_BLOCK as usize);
        all.filter_map(|at| match entry(at)? {
            (entry, SIZE_BLOCK) => Some((at, entry)),
            _ => None,
        })
    };
    for (_, entry) in pages() {
        if !translation::is_memory(entry.load(Ordering::Relaxed)) {
            entry.store(0, Ordering::Relaxed);
        }
    }
    // No CPU may have a page as both in its caches.
    translation::flush();
    for (at, entry) in pages() {
        if entry.load(Ordering::Relaxed) == 0 {
            let page = translation::at(at) | translation::flags(Content::Data, SIZE_BLOCK);
            entry.store(page, Ordering::Release);
        }
    }
    translation::added();
}

/// Makes hidden pages that hold some of `range` visible; from any CPU. Other CPUs are not flushed:
/// x86-64 does not cache that a page is absent; riscv64 may, and aarch64 may look for a page too early:
/// there such a fault is repeated (`traps`).
pub(crate) fn reveal(range: PhysRange) {
    let mut at = range.start().get();
    while at < range.end().get()
        && let Some((entry, size)) = entry(at)
    {
        if entry.load(Ordering::Relaxed) != 0 {
            entry.fetch_or(PRESENT, Ordering::AcqRel);
        }
        at = (at | (size - 1)) + 1;
    }
    translation::added();
}

/// Changes by `to` the entries of the pages of `range`, whole pages each, and those of the tables on the way there; what
/// is not mapped stays so. Other CPUs may walk the tables meanwhile, and reveal pages. The caller flushes.
///
/// # Safety
/// What is used of these pages stays allowed, at its address.
#[cfg(uefi)]
pub(in crate::arch) unsafe fn change(range: PhysRange, to: fn(u64) -> u64) {
    let at_most = translation::virtual_end();
    let (mut at, end) = (range.start().get(), range.end().get().min(at_most));
    while at < end {
        let (mut table, mut size) = translation::root();
        loop {
            // SAFETY: tables are mapped, writable and never freed; entries in use are only changed atomically.
            let entry = unsafe { AtomicU64::from_ptr(&raw mut (*table).0[index(at, size)]) };
            let value = entry.load(Ordering::Relaxed);
            if value & PRESENT == 0 {
                break;
            }
            let changed = |entry| Some(to(entry));
            // It never fails.
            let _ = entry.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
            if size == SIZE_PAGE || translation::is_leaf(value) {
                break;
            }
            table = translation::address(value) as *mut Table;
            size /= ENTRIES as u64;
        }
        at = (at | (size - 1)) + 1;
    }
}

/// The entry that decides about `at`, of a page or absent, and how much it covers; none above the
/// addresses that can be mapped.
pub(in crate::arch) fn entry(at: u64) -> Option<(&'static AtomicU64, u64)> {
    // Above, an index into the tables would mean another address.
    if at >= translation::virtual_end() {
        return None;
    }
    let (mut table, mut size) = translation::root();
    loop {
        // SAFETY: tables are mapped and never freed; entries in use are only changed atomically, and those that
        // `Mapper` adds meanwhile are of no address that this CPU was told of.
        let entry = unsafe { AtomicU64::from_ptr(&raw mut (*table).0[index(at, size)]) };
        let value = entry.load(Ordering::Relaxed);
        if value & PRESENT == 0 || size == SIZE_PAGE || translation::is_leaf(value) {
            return Some((entry, size));
        }
        table = translation::address(value) as *mut Table;
        size /= ENTRIES as u64;
    }
}

/// Where in its table the entry for `at` is, when an entry covers `size`.
const fn index(at: u64, size: u64) -> usize {
    (at / size % ENTRIES as u64) as usize
}

/// The table an entry points to; a new one where it points to none.
fn below<'t, E>(
    entry: &mut u64,
    table: &mut dyn FnMut() -> Result<u64, E>,
) -> Result<&'t mut Table, E> {
    if *entry & PRESENT == 0 {
        let page = table()?;
        // SAFETY: a page of its own at a mapped address; any bytes are a table.
        unsafe { (page as *mut Table).write_bytes(0, 1) }
        translation::publish();
        *entry = translation::table(page);
    }
    // SAFETY: the entry points to a table that was mapped when it was made, and
    // the one borrow ends before the next table is read.
    Ok(unsafe { &mut *(translation::address(*entry) as *mut Table) })
}

/// The access that a range must allow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Of memory.
    Read,
    /// Of memory.
    Write,
    /// Of devices' registers.
    Registers,
    /// Of either.
    #[cfg(uefi)]
    Any,
}

/// Whether every byte of `range` is mapped for `access`.
pub(crate) fn allows(range: PhysRange, access: Access) -> bool {
    let (mut at, end) = (range.start().get(), range.end().get());
    while at < end {
        match leaf_end(at, access) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// Whether some of `range` is mapped as memory, or cannot be mapped.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_memory(range: PhysRange) -> bool {
    let (mut at, end) = (range.start().get(), range.end().get());
    while at < end {
        match entry(at).map(|(entry, size)| (entry.load(Ordering::Relaxed), size)) {
            Some((entry, size)) if entry & PRESENT == 0 || !translation::is_memory(entry) => {
                at = (at | (size - 1)) + 1;
            }
            _ => return true,
        }
    }
    false
}

/// End of the page that maps `at`; none if nothing maps it for `access`.
fn leaf_end(at: u64, access: Access) -> Option<u64> {
    let (entry, size) = entry(at)?;
    let entry = entry.load(Ordering::Relaxed);
    let allowed = match access {
        Access::Read => translation::is_memory(entry),
        Access::Write => translation::is_memory(entry) && translation::is_writable(entry),
        Access::Registers => translation::is_registers(entry) && translation::is_writable(entry),
        #[cfg(uefi)]
        Access::Any => true,
    };
    (allowed && entry & PRESENT != 0).then_some((at | (size - 1)) + 1)
}
