//! What a previous kernel left for this one, reserved: [`EarlyMemory::preserve`].
#![deny(unsafe_code)]

use super::{Allocation, EarlyError, EarlyFlags, EarlyMemory, EarlySet};
use crate::addr::PhysRange;
use crate::store::Full;

impl EarlyMemory<'_> {
    /// Reserves `range`, which holds what the previous kernel left there. The frame allocator
    /// starts with it allocated and accepts it back.
    ///
    /// Preserved ranges get half of the slots of the reserved set, so that the rest of the boot
    /// has some.
    ///
    /// # Errors
    /// [`EarlyError::NotMemory`], [`EarlyError::Unusable`] where memory must not be mapped, is a
    /// driver's, or has to be accepted first, [`EarlyError::InUse`], [`EarlyError::Full`].
    pub fn preserve(&mut self, range: PhysRange, owner: &'static str) -> Result<(), EarlyError> {
        const UNUSABLE: EarlyFlags = EarlyFlags::NOMAP
            .with(EarlyFlags::DRIVER_MANAGED)
            .with(EarlyFlags::UNACCEPTED);
        if !self.memory.covers(range) {
            return Err(EarlyError::NotMemory { range });
        }
        let (lo, hi) = self.memory.meeting(range);
        let mut flags = self.memory[lo..hi].iter().map(|region| region.flags);
        if let Some(flags) = flags.find(|flags| flags.intersects(UNUSABLE)) {
            return Err(EarlyError::Unusable { range, flags });
        }
        let (lo, hi) = self.reserved.meeting(range);
        if lo < hi {
            let owner = self.owner_of(range).unwrap_or("an unknown use");
            return Err(EarlyError::InUse { range, owner });
        }
        let (capacity, needed) = (self.reserved.capacity(), 2 * (self.reserved.len() + 1));
        if needed > capacity {
            let full = Full { capacity, needed };
            return Err(EarlyError::Full {
                set: EarlySet::Reserved,
                range,
                full,
            });
        }
        self.claim(
            Allocation::reserved(range, owner),
            EarlyFlags::FREEABLE | EarlyFlags::PRESERVED,
        )
    }
}
