//! The memory map: firmware's list, made sorted, disjoint and typed.
//!
//! Firmware describes memory as a list of entries in any order. They overlap,
//! wrap, end in the middle of a page and use unknown types.
//! [`MemoryMap::build`] turns them into [`Region`]s that do none of that, and
//! reports every [`Correction`], with the entry it came from:
//!
//! - where entries overlap, the more restrictive [`MemoryKind`] wins;
//! - memory to allocate from ([`MemoryKind::is_memory`]) shrinks to whole
//!   pages; the bytes cut off stay in the map as reserved;
//! - what lies past [`PHYS_END`] is clipped, what is empty is dropped.
//!
//! Neighbouring regions of the same kind and attributes are one region, except
//! special-purpose and persistent memory, whose entries mark the borders of
//! devices and so stay apart. Cost: O(n log n) for n entries, no heap; both
//! lists are caller-provided.
//!
//! Neighbours: `firmware` makes the entries, [`crate::early`] takes
//! the regions.
#![deny(unsafe_code)]

mod correction;
mod entry;
mod normalise;
mod rewrite;
mod sweep;

pub use correction::{Correction, MapError};
pub use entry::{Attributes, Doubt, MapEntry, MemoryKind, Region};
pub use sweep::ScratchEntry;

use crate::addr::{PHYS_END, PhysAddr, PhysRange};
use normalise::Normaliser;
use rewrite::{Change, Rewriter};

/// A sorted, disjoint, typed map of physical memory.
///
/// ```
/// use firstlight_memory::map::{Correction, MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
///
/// let entries = [
///     MapEntry::new(0x10_0000, 0x70_0000, MemoryKind::Usable),
///     MapEntry::new(0, 0x9_fc00, MemoryKind::Usable), // ends inside a page
///     MapEntry::new(0x20_0000, 0x1000, MemoryKind::Reserved), // inside the first
/// ];
/// let mut scratch = [ScratchEntry::EMPTY; 3];
/// let mut regions = [Region::default(); 8];
/// let mut corrections = 0;
/// let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_: Correction| {
///     corrections += 1;
/// })
/// .unwrap();
/// let usable: Vec<String> = map.usable().map(|region| region.range.to_string()).collect();
/// assert_eq!(usable, [
///     "[0x0000000000000000-0x000000000009efff]",
///     "[0x0000000000100000-0x00000000001fffff]",
///     "[0x0000000000201000-0x00000000007fffff]",
/// ]);
/// assert_eq!(corrections, 2);
/// ```
#[derive(Debug)]
pub struct MemoryMap<'s> {
    slots: &'s mut [Region],
    len: usize,
}

impl<'s> MemoryMap<'s> {
    /// Sorts `entries` and resolves contradictions between them.
    ///
    /// `scratch` needs a slot for every entry that is not empty; `regions` at
    /// most five for every one of those (in practice one or two). The position
    /// of an entry in the iterator is the `entry` number corrections speak of.
    ///
    /// # Errors
    /// [`MapError::Scratch`] or [`MapError::Regions`] when the storage is too
    /// small, with the number that is enough.
    pub fn build(
        entries: impl Iterator<Item = MapEntry>,
        scratch: &mut [ScratchEntry],
        regions: &'s mut [Region],
        report: &mut dyn FnMut(Correction),
    ) -> Result<Self, MapError> {
        let pending = sweep::collect(entries, scratch, report)?;
        let mut normaliser = Normaliser::new();
        let mut store = |at: usize, region: Region| {
            if let Some(slot) = regions.get_mut(at) {
                *slot = region;
            }
        };
        sweep::sweep(
            pending,
            &mut |piece, report| normaliser.push(piece, report, &mut store),
            report,
        );
        let len = normaliser.finish(report, &mut store);
        if len > regions.len() {
            return Err(MapError::regions(regions.len(), len));
        }
        Ok(Self {
            slots: regions,
            len,
        })
    }

    /// A map over regions that are already sorted, disjoint and non-empty, for
    /// example one that was stored; checked, not corrected.
    ///
    /// # Errors
    /// [`MapError::Unsorted`] names the first region that breaks the order.
    pub fn from_sorted(regions: &'s mut [Region], len: usize) -> Result<Self, MapError> {
        if len > regions.len() {
            return Err(MapError::regions(regions.len(), len));
        }
        let map = Self {
            slots: regions,
            len,
        };
        map.validate()?;
        Ok(map)
    }

    /// All regions, ascending and disjoint.
    pub fn regions(&self) -> &[Region] {
        self.slots.get(..self.len).unwrap_or_default()
    }

    /// Memory that can be handed out now; page aligned.
    pub fn usable(&self) -> impl Iterator<Item = &Region> + Clone {
        self.regions()
            .iter()
            .filter(|region| region.kind == MemoryKind::Usable)
    }

    /// Memory that can be handed out now or once it is accepted; page aligned.
    pub fn memory(&self) -> impl Iterator<Item = &Region> + Clone {
        self.regions()
            .iter()
            .filter(|region| region.kind.is_memory())
    }

    /// Bytes of [`MemoryKind::Usable`].
    pub fn usable_bytes(&self) -> u64 {
        self.bytes_of(MemoryKind::Usable)
    }

    /// Bytes of one kind.
    pub fn bytes_of(&self, kind: MemoryKind) -> u64 {
        // Disjoint regions below 2^52: the sum cannot overflow.
        self.regions()
            .iter()
            .filter(|region| region.kind == kind)
            .map(|region| region.range.bytes())
            .sum()
    }

    /// Where memory (usable or unaccepted) ends; zero when there is none.
    pub fn end(&self) -> PhysAddr {
        self.regions()
            .iter()
            .rev()
            .find(|region| region.kind.is_memory())
            .map_or(PhysAddr::ZERO, |region| region.range.end())
    }

    /// The region that holds `addr`; `None` in a hole.
    pub fn find(&self, addr: PhysAddr) -> Option<&Region> {
        let regions = self.regions();
        let after = regions.partition_point(|region| region.range.end() <= addr);
        regions
            .get(after)
            .filter(|region| region.range.contains(addr))
    }

    /// Adds `entry` as if firmware had listed it too: it fills holes, and where
    /// it meets regions the more restrictive kind wins (`memmap=` with `@`,
    /// `#`, `$` and `!`). Returns how many bytes it changed.
    ///
    /// # Errors
    /// [`MapError::Regions`] when the storage is too small; nothing is changed.
    pub fn add(
        &mut self,
        entry: MapEntry,
        report: &mut dyn FnMut(Correction),
    ) -> Result<u64, MapError> {
        let Some(range) = sweep::clip(&entry, Region::OVERRIDE, report) else {
            return Ok(0);
        };
        let region = Region {
            range,
            kind: entry.kind,
            attributes: entry.attributes,
            source: Region::OVERRIDE,
        };
        self.rewrite(range, Change::Overlay(region), report)
    }

    /// Makes what the map holds inside `range` (all of it, or `only` one kind)
    /// memory of `kind`, whatever it was; holes stay holes. Returns how many
    /// bytes it changed.
    ///
    /// ```
    /// # use firstlight_memory::addr::PhysRange;
    /// # use firstlight_memory::map::*;
    /// # let mut scratch = [ScratchEntry::default(); 1];
    /// # let mut regions = [Region::default(); 4];
    /// let entries = [MapEntry::new(0, 0x8000, MemoryKind::Usable)];
    /// let mut map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap();
    /// let first_page = PhysRange::new(0, 0x1000).unwrap();
    /// map.set(first_page, Some(MemoryKind::Usable), MemoryKind::Reserved, &mut |_| {}).unwrap();
    /// assert_eq!(map.usable_bytes(), 0x7000);
    /// ```
    ///
    /// # Errors
    /// [`MapError::Regions`] when the storage is too small; nothing is changed.
    pub fn set(
        &mut self,
        range: PhysRange,
        only: Option<MemoryKind>,
        kind: MemoryKind,
        report: &mut dyn FnMut(Correction),
    ) -> Result<u64, MapError> {
        self.rewrite(range, Change::Retype { only, kind }, report)
    }

    /// Makes a hole of what the map holds inside `range` (all of it, or `only`
    /// one kind; `mem=`, `memmap=exactmap`). Returns how many bytes it removed.
    ///
    /// # Errors
    /// [`MapError::Regions`] when the storage is too small; nothing is changed.
    pub fn remove(
        &mut self,
        range: PhysRange,
        only: Option<MemoryKind>,
        report: &mut dyn FnMut(Correction),
    ) -> Result<u64, MapError> {
        self.rewrite(range, Change::Remove { only }, report)
    }

    /// Checks what the type promises: ascending, disjoint, not empty, below
    /// [`PHYS_END`], memory in whole pages.
    ///
    /// # Errors
    /// [`MapError::Unsorted`] names the first region that breaks a promise.
    pub fn validate(&self) -> Result<(), MapError> {
        let mut end = PhysAddr::ZERO;
        for (index, region) in self.regions().iter().enumerate() {
            let range = region.range;
            let whole = !region.kind.is_memory() || range.inner_frames().addrs() == range;
            if range.is_empty() || range.start() < end || range.end().get() > PHYS_END || !whole {
                return Err(MapError::Unsorted { index, range });
            }
            end = range.end();
        }
        Ok(())
    }

    /// Streams the regions through a [`Rewriter`] twice: once to count, so that
    /// an error leaves the map as it was, and once in place, reading from the
    /// far end of the storage and writing from the near one.
    fn rewrite(
        &mut self,
        range: PhysRange,
        change: Change,
        report: &mut dyn FnMut(Correction),
    ) -> Result<u64, MapError> {
        let mut quiet = |_: Correction| {};
        let mut ahead = 0;
        let mut normaliser = Normaliser::new();
        let mut rewriter = Rewriter::new(range, change);
        for (index, region) in self.regions().iter().enumerate() {
            rewriter.feed(*region, &mut |piece| {
                normaliser.push(piece, &mut quiet, &mut |_, _| {})
            });
            ahead = ahead.max(normaliser.written().saturating_sub(index + 1));
        }
        rewriter.finish(&mut |piece| normaliser.push(piece, &mut quiet, &mut |_, _| {}));
        let needed = normaliser
            .finish(&mut quiet, &mut |_, _| {})
            .max(self.len + ahead);
        if needed > self.slots.len() {
            return Err(MapError::regions(self.slots.len(), needed));
        }

        let gap = self.slots.len() - self.len;
        self.slots.copy_within(..self.len, gap);
        let mut normaliser = Normaliser::new();
        let mut rewriter = Rewriter::new(range, change);
        for index in gap..self.slots.len() {
            let region = self.slots[index];
            let store = &mut |at: usize, piece| self.slots[at] = piece;
            rewriter.feed(region, &mut |piece| normaliser.push(piece, report, store));
        }
        let store = &mut |at: usize, piece| self.slots[at] = piece;
        let changed = rewriter.finish(&mut |piece| normaliser.push(piece, report, store));
        self.len = normaliser.finish(report, store);
        Ok(changed)
    }
}
