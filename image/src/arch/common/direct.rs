//! Physical memory at equal virtual addresses: [`DirectMap`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use firstlight::addr::{PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::firmware::PhysRead;
use firstlight::platform::{NotAccepted, Platform};

use super::paging::{self, Access, Mapper};
use crate::arch::{relax, ticks, translation, writer};

/// Ticks to accept a page where that is simulated, else 0.
static ACCEPT_TICKS: AtomicU32 = AtomicU32::new(0);

/// Whether memory from [`DirectMap::TABLES_BELOW`] on was never written to.
static FRESH: AtomicBool = AtomicBool::new(false);

/// Longest table or list that is read, whatever a header claims. The MADT of 100,000 CPUs
/// has 1.6 MB.
const LONGEST_BYTES: usize = 16 << 20;

/// All memory, mapped where it is: at first the lowest 4 GiB, the rest after
/// [`DirectMap::map`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectMap(());

impl DirectMap {
    /// # Safety
    /// Everything in use (the image, firmware's tables, the loader's lists) is reserved
    /// before memory is allocated, one `Layout` is used with it, and no code frees frames that are not
    /// its own.
    pub(crate) const unsafe fn new() -> Self {
        Self(())
    }

    /// First address that can't be mapped on this processor.
    pub(crate) fn limit() -> PhysAddr {
        PhysAddr::new(translation::limit().min(translation::virtual_end()))
    }

    /// Registers: reading there has effects, and they are never memory.
    pub(crate) fn devices() -> PhysRange {
        translation::devices()
    }

    /// Whether page tables say what may be cached.
    #[cfg(uefi)]
    pub(crate) const TYPES_IN_TABLES: bool = translation::TYPES_IN_TABLES;

    /// Page tables are allocated below this address.
    pub(crate) const TABLES_BELOW: PhysAddr = PhysAddr::new(paging::BOOT_END);

    /// Adds the memory of the start, `ranges` that do not overlap; before anything else is added. `table` gives pages
    /// for page tables.
    ///
    /// # Errors
    /// Those of `table`.
    pub(crate) fn add_first<E>(
        &self,
        ranges: impl Iterator<Item = PhysRange>,
        table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        self.add_by(Mapper::first(), ranges, table)
    }

    /// Adds `ranges`, as far as nothing is mapped there. Only the first CPU adds to the map; others may run, as what
    /// they use stays as it is.
    ///
    /// # Errors
    /// Those of `table`.
    pub(crate) fn add<E>(
        &self,
        ranges: impl Iterator<Item = PhysRange>,
        table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        self.add_by(Mapper::new(), ranges, table)
    }

    /// Adds memory that came while the machine runs, in whole pages of 2 MiB. Only the first CPU calls this, and no
    /// other uses that memory yet.
    ///
    /// # Errors
    /// Those of `table`.
    pub(crate) fn plug<E>(
        &self,
        range: PhysRange,
        table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        paging::turn_to_memory(range);
        self.add(core::iter::once(range), table)
    }

    /// Adds `ranges` as registers of devices, as far as nothing is mapped there.
    ///
    /// # Errors
    /// Those of `table`.
    pub(crate) fn add_registers<E>(
        &self,
        ranges: impl Iterator<Item = PhysRange>,
        table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        self.add_by(Mapper::registers(), ranges, table)
    }

    /// Adds `ranges` as memory that a confidential machine would have to accept, at
    /// `ticks_per_page`: an earlier touch is a fault.
    ///
    /// # Errors
    /// Those of `table`.
    pub(crate) fn add_unaccepted<E>(
        &self,
        ranges: impl Iterator<Item = PhysRange>,
        ticks_per_page: u32,
        table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        ACCEPT_TICKS.store(ticks_per_page, Ordering::Relaxed);
        self.add_by(Mapper::hidden(), ranges, table)
    }

    /// From now on memory from [`DirectMap::TABLES_BELOW`] on counts as zero until it is
    /// written, by the promise on the command line.
    pub(crate) fn promise_fresh() {
        FRESH.store(true, Ordering::Relaxed);
    }

    /// The bytes of `range`, if they are below 4 GiB and neither devices nor the image.
    ///
    /// # Safety
    /// The range is memory; nothing else uses it while the slice is in use.
    pub(crate) unsafe fn place(range: PhysRange) -> Option<&'static mut [u8]> {
        let forbidden = range.overlaps(Self::devices()) || range.overlaps(paging::image_range());
        let start = NonNull::new(range.start().get() as *mut u8)?;
        let is_place = range.end() <= Self::TABLES_BELOW && !forbidden;
        if !is_place || !paging::allows(range, Access::Write) {
            return None;
        }
        let bytes = usize::try_from(range.bytes()).ok()?;
        // SAFETY: not null, mapped, and the caller's alone.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }

    fn add_by<E>(
        &self,
        mut mapper: Mapper,
        ranges: impl Iterator<Item = PhysRange>,
        mut table: impl FnMut() -> Result<PhysRange, E>,
    ) -> Result<(), E> {
        let mut table = || table().map(|page| page.start().get());
        // An empty one, rounded outwards, would be a page.
        for range in ranges.filter(|range| !range.is_empty()) {
            mapper.map(range, &mut table)?;
        }
        Ok(())
    }
}

impl PhysRead<'static> for DirectMap {
    /// Firmware's tables and the loader's lists, at any address, which may be hostile:
    /// only mapped memory, no devices, not the image itself.
    fn read(&self, range: PhysRange) -> Option<&'static [u8]> {
        let bytes = usize::try_from(range.bytes()).ok()?;
        let start = NonNull::new(range.start().get() as *mut u8)?;
        if bytes > LONGEST_BYTES {
            return None;
        }
        let forbidden = range.overlaps(Self::devices()) || range.overlaps(paging::image_range());
        if forbidden || !paging::allows(range, Access::Read) {
            return None;
        }
        // SAFETY: not null, mapped, and reserved by the reader before any memory is
        // allocated, or no memory of the map at all, so that nothing writes there.
        Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) })
    }
}

// SAFETY: mapped memory is readable and writable on every CPU by the same page
// tables; `new`'s caller promised that ranges the engine reserves are free, and used once.
unsafe impl Platform for DirectMap {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        NonNull::new(range.start().get() as *mut u8)
            .filter(|_| paging::allows(range, Access::Write))
    }

    fn is_zero(&self, range: PhysRange) -> bool {
        FRESH.load(Ordering::Relaxed) && range.start() >= Self::TABLES_BELOW
    }

    /// Simulated, if the command line has `accept=`; refused else.
    unsafe fn accept(&self, range: PhysRange) -> Result<(), NotAccepted> {
        let ticks_per_page = ACCEPT_TICKS.load(Ordering::Relaxed);
        if ticks_per_page == 0 || range.start() < Self::TABLES_BELOW {
            return Err(NotAccepted { range, code: 0 });
        }
        let begin = ticks();
        paging::reveal(range);
        let bytes = usize::try_from(range.bytes()).map_err(|_| NotAccepted { range, code: 0 })?;
        let first = range.start().get() as *mut u64;
        // SAFETY: visible now, and not in use before this call returns.
        let memory = unsafe { core::slice::from_raw_parts_mut(first, bytes / 8) };
        writer().fill(memory, &[0; 8]);
        let cost = u64::from(ticks_per_page) * (range.bytes() / PAGE_BYTES);
        while ticks().saturating_sub(begin) < cost {
            relax();
        }
        Ok(())
    }
}
