//! [`EarlyMemory`]: the allocator of the time before there is an allocator.
//!
//! Two sets of ranges, memory and reserved memory, each range with a node and
//! flags, in storage the caller provides; the semantics kernels know as memblock. Firmware's [map](crate::map) fills it, the
//! [topology](crate::topology) gives its ranges nodes, the
//! [layout](crate::layout) consumes it.
//!
//! | file | concept |
//! |---|---|
//! | `region` | [`EarlyRegion`] and [`EarlyFlags`] |
//! | `set` | sorted, disjoint, merged regions in caller-provided storage |
//! | `request` | [`EarlyRequest`], [`Direction`] |
//! | `from_map` | early memory of a firmware map |
//! | `allocate` | which attempts a request is worth |
//! | `search` | which address a request gets; [`FreeRanges`] |
//! | `preserve` | what the previous kernel left, reserved |
//! | `owners` | [`Allocation`]: what each range is for |
//! | `error` | [`EarlyError`] |
#![deny(unsafe_code)]

mod allocate;
mod error;
mod from_map;
mod owners;
mod preserve;
mod region;
mod request;
mod search;
mod set;

pub use error::{EarlyError, EarlySet};
pub use owners::Allocation;
pub use region::{EarlyFlags, EarlyRegion};
pub use request::{Direction, EarlyRequest};
pub use search::FreeRanges;

use crate::addr::{PhysAddr, PhysRange};
use crate::node::NodeId;
use crate::store::Full;
use owners::OwnerLog;
use set::RegionSet;

/// Memory at boot: what there is, what of it is reserved, and what for.
///
/// ```
/// use firstlight_memory::addr::PhysRange;
/// use firstlight_memory::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest};
///
/// let mut memory = [EarlyRegion::EMPTY; 8];
/// let mut reserved = [EarlyRegion::EMPTY; 8];
/// let mut owners = [Allocation::EMPTY; 8];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
/// early.add(PhysRange::new(0x10_0000, 0x80_0000).unwrap(), EarlyFlags::NONE)?;
/// early.reserve(PhysRange::new(0x10_0000, 0x20_0000).unwrap(), "kernel")?;
///
/// let table = early.allocate(&EarlyRequest::new(0x3000, 0x1000, "page tables"))?;
/// assert_eq!(table, PhysRange::new(0x7f_d000, 0x80_0000).unwrap()); // from the top
/// assert_eq!(early.owners()[1].owner(), "page tables");
/// early.free(table)?;
/// assert_eq!(early.free_ranges().map(|r| r.range.bytes()).sum::<u64>(), 0x60_0000);
/// # Ok::<(), firstlight_memory::early::EarlyError>(())
/// ```
#[derive(Debug)]
pub struct EarlyMemory<'s> {
    memory: RegionSet<'s>,
    reserved: RegionSet<'s>,
    owners: OwnerLog<'s>,
    limit: PhysAddr,
    direction: Direction,
    movable_node: bool,
    /// Some region was freeable at some time.
    has_freeable: bool,
    /// Some memory was mirrored at some time.
    has_mirror: bool,
}

impl<'s> EarlyMemory<'s> {
    /// No memory, and no storage for any: what lies in a kernel's `static` before and after early memory does.
    /// Requests find [`EarlyError::NoSpace`]. For a mapper that takes page tables from a global
    /// allocator: the example is at `BootMemory::with_early`.
    pub const EMPTY: Self = Self::new(&mut [], &mut [], &mut []);

    /// No memory yet, in the storage provided.
    ///
    /// `owners` may have fewer slots than there are reservations; see [`Self::untracked`].
    pub const fn new(
        memory: &'s mut [EarlyRegion],
        reserved: &'s mut [EarlyRegion],
        owners: &'s mut [Allocation],
    ) -> Self {
        Self {
            memory: RegionSet::new(memory),
            reserved: RegionSet::new(reserved),
            owners: OwnerLog::new(owners),
            limit: PhysAddr::new(u64::MAX),
            direction: Direction::TopDown,
            movable_node: false,
            has_freeable: false,
            has_mirror: false,
        }
    }

    /// Adds memory. Bytes that were added before keep their node and flags.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn add(&mut self, range: PhysRange, flags: EarlyFlags) -> Result<(), EarlyError> {
        self.has_mirror |= flags.contains(EarlyFlags::MIRROR);
        let added = self.memory.add(EarlyRegion {
            range,
            node: None,
            flags,
        });
        added.map_err(full(EarlySet::Memory, range))
    }

    /// Removes memory, as if it had never been added. What is reserved of it stays so.
    ///
    /// # Errors
    /// [`EarlyError::Full`] if a hole in the middle of a range finds no slot.
    pub fn remove(&mut self, range: PhysRange) -> Result<(), EarlyError> {
        self.memory
            .remove(range)
            .map_err(full(EarlySet::Memory, range))
    }

    /// Reserves `range` for `owner` for ever, whether it is memory or not, and whether
    /// parts of it are reserved already or not.
    ///
    /// For ever is the default: a range marked freeable by mistake is handed out while
    /// in use, one not marked costs its bytes.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn reserve(&mut self, range: PhysRange, owner: &'static str) -> Result<(), EarlyError> {
        self.claim(Allocation::reserved(range, owner), EarlyFlags::NONE)
    }

    /// Reserves `range` for boot only: the frame allocator starts with it allocated
    /// and accepts it back. What is reserved for ever already stays so.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn reserve_freeable(
        &mut self,
        range: PhysRange,
        owner: &'static str,
    ) -> Result<(), EarlyError> {
        self.claim(Allocation::reserved(range, owner), EarlyFlags::FREEABLE)
    }

    /// Reserves each of `ranges` for ever, as [`Self::reserve`] does: modules of a loader, rows of a table.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn reserve_all(
        &mut self,
        ranges: impl IntoIterator<Item = (PhysRange, &'static str)>,
    ) -> Result<(), EarlyError> {
        let mut ranges = ranges.into_iter();
        ranges.try_for_each(|(range, owner)| self.reserve(range, owner))
    }

    /// Sets the node of the memory in `range`; holes have none.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn set_node(&mut self, range: PhysRange, node: NodeId) -> Result<(), EarlyError> {
        let done = self.memory.update(range, |region| region.node = Some(node));
        done.map_err(full(EarlySet::Memory, range))
    }

    /// Sets `flags` on the memory in `range`.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn set_flags(&mut self, range: PhysRange, flags: EarlyFlags) -> Result<(), EarlyError> {
        self.has_mirror |= flags.contains(EarlyFlags::MIRROR);
        let done = self.memory.update(range, |region| region.flags |= flags);
        done.map_err(full(EarlySet::Memory, range))
    }

    /// Clears `flags` on the memory in `range`.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn clear_flags(&mut self, range: PhysRange, flags: EarlyFlags) -> Result<(), EarlyError> {
        let done = self
            .memory
            .update(range, |region| region.flags = region.flags.without(flags));
        done.map_err(full(EarlySet::Memory, range))
    }

    /// Sets `flags` (no-init, preserved, freeable) on what is reserved in `range`.
    ///
    /// # Errors
    /// [`EarlyError::Full`].
    pub fn set_reserved_flags(
        &mut self,
        range: PhysRange,
        flags: EarlyFlags,
    ) -> Result<(), EarlyError> {
        self.has_freeable |= flags.contains(EarlyFlags::FREEABLE);
        let done = self.reserved.update(range, |region| region.flags |= flags);
        done.map_err(full(EarlySet::Reserved, range))
    }

    /// The memory there is: sorted, disjoint; ranges that touch differ in node or flags.
    #[inline]
    pub fn memory(&self) -> &[EarlyRegion] {
        &self.memory
    }

    /// What is reserved, likewise. It may reach outside memory.
    #[inline]
    pub fn reserved(&self) -> &[EarlyRegion] {
        &self.reserved
    }

    /// Reservations and allocations, oldest first; they may overlap, freed parts are gone.
    pub fn owners(&self) -> &[Allocation] {
        &self.owners.entries
    }

    /// What the oldest reservation with a byte in `range` is for.
    #[inline]
    pub fn owner_of(&self, range: PhysRange) -> Option<&'static str> {
        let mut entries = self.owners.entries.iter();
        let met = entries.find(|entry| entry.range.overlaps(range));
        met.map(Allocation::owner)
    }

    /// Reservations (or halves of those freed in the middle) the owner log had no slot for.
    pub fn untracked(&self) -> u64 {
        self.owners.untracked
    }

    /// Bytes of memory, reserved or not.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Bytes reserved, inside memory or not.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.bytes()
    }

    /// First byte after the last memory.
    pub fn end(&self) -> PhysAddr {
        self.memory.last().map_or(PhysAddr::ZERO, |r| r.range.end())
    }

    /// The memory region `addr` lies in.
    pub fn region_at(&self, addr: PhysAddr) -> Option<&EarlyRegion> {
        let at = self.memory.partition_point(|r| r.range.end() <= addr);
        self.memory.get(at).filter(|r| r.range.contains(addr))
    }

    /// Whether every byte of `range` is reserved.
    pub fn is_reserved(&self, range: PhysRange) -> bool {
        self.reserved.covers(range)
    }

    /// The current limit: where requests without a `max` end, and those with one at the latest.
    pub fn limit(&self) -> PhysAddr {
        self.limit
    }

    /// Sets the current limit, for example to what is mapped so far.
    pub fn set_limit(&mut self, limit: PhysAddr) {
        self.limit = limit;
    }

    /// The end of memory from which requests are served.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Sets the end of memory from which requests are served.
    pub fn set_direction(&mut self, direction: Direction) {
        self.direction = direction;
    }

    /// Whether allocations avoid memory that can be unplugged.
    pub fn set_movable_node(&mut self, on: bool) {
        self.movable_node = on;
    }

    /// Frees what was reserved or allocated, wholly or in part; possible until a
    /// [layout](crate::layout) consumes early memory.
    ///
    /// # Errors
    /// [`EarlyError::NotReserved`] if some of it is free already, or
    /// [`EarlyError::Full`] if a hole in the middle of a range finds no slot.
    pub fn free(&mut self, range: PhysRange) -> Result<(), EarlyError> {
        if !self.reserved.covers(range) {
            return Err(EarlyError::NotReserved { range });
        }
        self.reserved
            .remove(range)
            .map_err(full(EarlySet::Reserved, range))?;
        self.owners.release(range);
        Ok(())
    }

    /// Memory that is not reserved, ascending, with its node and flags.
    pub fn free_ranges(&self) -> FreeRanges<'_> {
        FreeRanges::new(&self.memory, &self.reserved)
    }

    fn claim(&mut self, claim: Allocation, flags: EarlyFlags) -> Result<(), EarlyError> {
        let range = claim.range;
        if range.is_empty() {
            return Ok(());
        }
        let region = EarlyRegion {
            range,
            node: None,
            flags,
        };
        let is_freeable = |region: &EarlyRegion| region.flags.contains(EarlyFlags::FREEABLE);
        let for_boot = is_freeable(&region);
        let added = if self.has_freeable && !for_boot {
            self.reserved.add_over(region, is_freeable)
        } else {
            self.reserved.add(region)
        };
        self.has_freeable |= for_boot;
        added.map_err(full(EarlySet::Reserved, range))?;
        self.owners.add(claim);
        Ok(())
    }
}

fn full(set: EarlySet, range: PhysRange) -> impl Fn(Full) -> EarlyError {
    move |full| EarlyError::Full { set, range, full }
}
