//! Free early memory: the gaps of the reserved set inside the memory set, and the
//! address a request gets in one of them.
//!
//! The candidate rules are the ones every memblock has, so that a replay of
//! another kernel's requests gives that kernel's addresses: regions are tried
//! from one end, an allocation never crosses from one memory region into the
//! next, and the first gap that fits is taken.
#![deny(unsafe_code)]

use super::region::{EarlyFlags, EarlyRegion};
use super::request::Direction;
use crate::addr::{PAGE_BYTES, PhysRange};
use crate::node::NodeId;

/// The free parts of one memory region, by position, so that both directions can walk them.
#[derive(Clone, Copy)]
pub(super) struct Gaps<'a> {
    memory: EarlyRegion,
    /// The reserved regions that meet it.
    reserved: &'a [EarlyRegion],
}

impl<'a> Gaps<'a> {
    /// The parts of `memory` that no region of `reserved` (all of them, sorted) covers.
    pub(super) fn new(memory: EarlyRegion, reserved: &'a [EarlyRegion]) -> Self {
        let lo = reserved.partition_point(|r| r.range.end() <= memory.range.start());
        let hi = reserved.partition_point(|r| r.range.start() < memory.range.end());
        Self {
            memory,
            reserved: reserved.get(lo..hi).unwrap_or_default(),
        }
    }

    /// Number of gaps, empty ones included.
    pub(super) fn len(&self) -> usize {
        self.reserved.len() + 1
    }

    /// The gap before the reserved region at `at`, or after the last one; may be empty.
    pub(super) fn get(&self, at: usize) -> PhysRange {
        let bounds = self.memory.range;
        let before = at.checked_sub(1).and_then(|i| self.reserved.get(i));
        let start = before.map_or(bounds.start(), |r| r.range.end().max(bounds.start()));
        let end = self
            .reserved
            .get(at)
            .map_or(bounds.end(), |r| r.range.start().min(bounds.end()));
        PhysRange::new(start.get(), end.get()).unwrap_or(PhysRange::EMPTY)
    }
}

/// One attempt: fixed bounds, one node or any, mirrored memory or any.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    pub(super) bytes: u64,
    pub(super) align: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) node: Option<NodeId>,
    pub(super) mirror: bool,
    pub(super) skip_hotplug: bool,
    pub(super) direction: Direction,
}

impl Attempt {
    /// Whether this attempt may take memory of `region` at all.
    fn may_use(&self, region: &EarlyRegion) -> bool {
        const BANNED: EarlyFlags = EarlyFlags::NOMAP
            .with(EarlyFlags::DRIVER_MANAGED)
            .with(EarlyFlags::UNACCEPTED)
            .with(EarlyFlags::PRESERVED);
        self.node.is_none_or(|node| region.node == Some(node))
            && !region.flags.intersects(BANNED)
            && !(self.skip_hotplug && region.flags.contains(EarlyFlags::HOTPLUG))
            && (!self.mirror || region.flags.contains(EarlyFlags::MIRROR))
    }

    /// Where the request fits in `gap`, if it does.
    fn fit(&self, gap: PhysRange) -> Option<u64> {
        // The first page is never allocated: address zero means none.
        let low = gap.start().get().max(self.min).max(PAGE_BYTES);
        let high = gap.end().get().min(self.max);
        let start = match self.direction {
            Direction::TopDown => high.checked_sub(self.bytes)? & !(self.align - 1),
            Direction::BottomUp => low.checked_add(self.align - 1)? & !(self.align - 1),
        };
        let fits = start >= low && start.checked_add(self.bytes)? <= high;
        fits.then_some(start)
    }

    /// The first address that fits, and the memory region it lies in.
    pub(super) fn find(
        &self,
        memory: &[EarlyRegion],
        reserved: &[EarlyRegion],
    ) -> Option<(PhysRange, EarlyRegion)> {
        let probe = |region: &EarlyRegion| {
            if !self.may_use(region) {
                return None;
            }
            let gaps = Gaps::new(*region, reserved);
            let start = match self.direction {
                Direction::TopDown => (0..gaps.len()).rev().find_map(|at| self.fit(gaps.get(at))),
                Direction::BottomUp => (0..gaps.len()).find_map(|at| self.fit(gaps.get(at))),
            }?;
            Some((PhysRange::with_size(start, self.bytes)?, *region))
        };
        match self.direction {
            Direction::TopDown => memory.iter().rev().find_map(probe),
            Direction::BottomUp => memory.iter().find_map(probe),
        }
    }
}

/// Iterator over memory that is not reserved, ascending; see
/// [`EarlyMemory::free_ranges`](super::EarlyMemory::free_ranges).
#[derive(Clone)]
pub struct FreeRanges<'a> {
    memory: core::slice::Iter<'a, EarlyRegion>,
    reserved: &'a [EarlyRegion],
    current: Option<(Gaps<'a>, usize)>,
}

impl<'a> FreeRanges<'a> {
    pub(super) fn new(memory: &'a [EarlyRegion], reserved: &'a [EarlyRegion]) -> Self {
        Self {
            memory: memory.iter(),
            reserved,
            current: None,
        }
    }
}

impl Iterator for FreeRanges<'_> {
    type Item = EarlyRegion;

    fn next(&mut self) -> Option<EarlyRegion> {
        loop {
            if let Some((gaps, at)) = &mut self.current {
                while *at < gaps.len() {
                    let range = gaps.get(*at);
                    *at += 1;
                    if !range.is_empty() {
                        return Some(EarlyRegion {
                            range,
                            ..gaps.memory
                        });
                    }
                }
            }
            let region = self.memory.next()?;
            self.current = Some((Gaps::new(*region, self.reserved), 0));
        }
    }
}
