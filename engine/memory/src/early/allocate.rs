//! Early allocation: [`EarlyMemory::allocate`].
#![deny(unsafe_code)]

use super::search::Attempt;
use super::{Allocation, EarlyError, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest};
use crate::addr::{PhysAddr, PhysRange};

impl EarlyMemory<'_> {
    /// Reserves memory for `request` and logs its owner.
    ///
    /// If some memory is mirrored, mirrored memory is tried first; on the preferred
    /// node, then (unless `exact_node`) on any; then the same in all memory;
    /// then, with `soft_min`, all of it again from address zero. Memory
    /// that is nomap, driver-managed, preserved or unaccepted is never allocated, nor the first page.
    ///
    /// # Errors
    /// [`EarlyError::NoSpace`], [`EarlyError::ZeroBytes`], [`EarlyError::BadAlign`], or
    /// [`EarlyError::Full`] if the reserved set has no slot left.
    pub fn allocate(&mut self, request: &EarlyRequest) -> Result<PhysRange, EarlyError> {
        let &EarlyRequest {
            bytes,
            align,
            owner,
            ..
        } = request;
        if bytes == 0 {
            return Err(EarlyError::ZeroBytes { owner });
        }
        if !align.is_power_of_two() {
            return Err(EarlyError::BadAlign { align, owner });
        }
        let max = match request.max {
            Some(max) if request.ignore_limit => max,
            Some(max) => max.min(self.limit),
            None => self.limit,
        };
        let Some((range, region)) = self.search(request, max) else {
            let largest_bytes = self.largest_between(request.min, max);
            return Err(EarlyError::NoSpace {
                request: *request,
                max,
                largest_bytes,
            });
        };
        let claim = Allocation {
            range,
            node: region.node,
            owner: Some(owner),
        };
        self.claim(claim, EarlyFlags::FREEABLE.when(request.freeable))?;
        Ok(range)
    }

    /// Tries a request under its terms, strictest first.
    fn search(&self, request: &EarlyRequest, max: PhysAddr) -> Option<(PhysRange, EarlyRegion)> {
        let lower = (request.soft_min && request.min > PhysAddr::ZERO).then_some(PhysAddr::ZERO);
        let any_node = (request.node.is_some() && !request.exact_node).then_some(None);
        for min in [Some(request.min), lower].into_iter().flatten() {
            for mirror in [self.has_mirror.then_some(true), Some(false)]
                .into_iter()
                .flatten()
            {
                for node in [Some(request.node), any_node].into_iter().flatten() {
                    let attempt = Attempt {
                        bytes: request.bytes,
                        align: request.align,
                        min: min.get(),
                        max: max.get(),
                        node,
                        mirror,
                        skip_hotplug: self.movable_node,
                        direction: self.direction,
                    };
                    let found = attempt.find(&self.memory, &self.reserved);
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    fn largest_between(&self, min: PhysAddr, max: PhysAddr) -> u64 {
        let window = PhysRange::new(min.get(), max.get()).unwrap_or(PhysRange::EMPTY);
        let sizes = self
            .free_ranges()
            .map(|free| free.range.intersect(window).bytes());
        sizes.max().unwrap_or(0)
    }
}
