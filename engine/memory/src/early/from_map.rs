//! From a firmware map to early memory: [`EarlyMemory::from_map`].
#![deny(unsafe_code)]

use super::{Allocation, EarlyError, EarlyFlags, EarlyMemory, EarlyRegion};
use crate::map::{MemoryKind, MemoryMap, Region};
use crate::store::Full;

impl<'s> EarlyMemory<'s> {
    /// The memory of a firmware map: what is usable, and what is unaccepted with its flag;
    /// more reliable memory is mirrored memory.
    ///
    /// ```
    /// use firstlight_memory::early::{Allocation, EarlyMemory, EarlyRegion};
    /// use firstlight_memory::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
    ///
    /// let entries = [MapEntry::new(0x10_0000, 0x70_0000, MemoryKind::Usable)];
    /// let mut scratch = [ScratchEntry::default(); 1];
    /// let mut regions = [Region::default(); 4];
    /// let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap();
    ///
    /// let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 16]);
    /// let mut owners = [Allocation::EMPTY; 16];
    /// let early = EarlyMemory::from_map(&map, &mut memory, &mut reserved, &mut owners)?;
    /// assert_eq!(early.memory_bytes(), 0x70_0000);
    /// # Ok::<(), firstlight_memory::early::EarlyError>(())
    /// ```
    ///
    /// # Errors
    /// [`EarlyError::Full`] with the number of slots `memory` needs for the whole map.
    pub fn from_map(
        map: &MemoryMap<'_>,
        memory: &'s mut [EarlyRegion],
        reserved: &'s mut [EarlyRegion],
        owners: &'s mut [Allocation],
    ) -> Result<Self, EarlyError> {
        let mut early = Self::new(memory, reserved, owners);
        let flags = |region: &Region| {
            let unaccepted = region.kind == MemoryKind::Unaccepted;
            EarlyFlags::MIRROR.when(region.attributes.more_reliable)
                | EarlyFlags::UNACCEPTED.when(unaccepted)
        };
        // The map's regions are sorted, so each one is appended or merges with the last.
        let merges = |(one, other): (&Region, &Region)| {
            one.range.end() == other.range.start() && flags(one) == flags(other)
        };
        for region in map.memory() {
            early
                .add(region.range, flags(region))
                .map_err(|error| match error {
                    EarlyError::Full {
                        set,
                        range,
                        full: Full { capacity, .. },
                    } => {
                        let pairs = map.memory().zip(map.memory().skip(1));
                        let needed =
                            map.memory().count() - pairs.filter(|pair| merges(*pair)).count();
                        EarlyError::Full {
                            set,
                            range,
                            full: Full { capacity, needed },
                        }
                    }
                    other => other,
                })?;
        }
        Ok(early)
    }
}
