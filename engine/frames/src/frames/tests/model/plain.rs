//! The model: what each frame is, of which node and zone, and which huge frames are isolated.

extern crate std;

use core::ops::Range;
use std::collections::BTreeSet;
use std::vec::Vec;

use super::super::kit::{Extent, frames};
use super::super::owners::{NO_ONE, Owners};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::HUGE_FRAMES;
use crate::node::{NodeId, NodeZone, ZoneKind};

pub(super) const HUGE: u64 = HUGE_FRAMES as u64;

/// What a frame is: free, or the number of the call that allocated it, from [`CALLS`] on, or one of these.
pub(super) const FREE: u32 = NO_ONE;
/// No memory, or none yet.
pub(super) const ABSENT: u32 = 1;
pub(super) const OFFLINE: u32 = 2;
/// From the start, for ever.
pub(super) const PINNED: u32 = 3;
/// From the start, and may be freed.
pub(super) const RESERVED: u32 = 4;
const CALLS: u32 = 5;

/// The numbers of the frames of a range.
pub(super) fn numbers(range: FrameRange) -> Range<u64> {
    range.start().get()..range.end().get()
}

/// The frames of a huge frame, by its number.
pub(super) fn huge(number: u64) -> FrameRange {
    frames(number * HUGE, (number + 1) * HUGE)
}

/// The parts of a range in each huge frame.
pub(super) fn pieces(range: FrameRange) -> impl Iterator<Item = FrameRange> {
    let huges = range.start().get() / HUGE..range.end().get().div_ceil(HUGE);
    let pieces = huges.map(move |number| huge(number).intersect(range));
    pieces.filter(|piece| !piece.is_empty())
}

pub(super) struct Model {
    /// All frames that are modelled.
    all: FrameRange,
    /// Those that may come and go, if some may.
    pub(super) span: FrameRange,
    owners: Owners,
    /// One more than the number of a frame's zone, of all zones of all nodes; or 0.
    zones: Vec<u16>,
    /// Where memory of each node and zone is or may be.
    pub(super) extents: Vec<Extent>,
    /// Numbers of huge frames.
    isolated: BTreeSet<u64>,
    calls: u32,
    /// How many frames are free, isolated or not.
    free: u64,
}

impl Model {
    /// All of it absent, and of the zone of its extent, if that has it alone.
    pub(super) fn new(span: FrameRange, extents: &[Extent]) -> Self {
        let ends = extents.iter().map(|extent| extent.0.end().get());
        let all = frames(extents[0].0.start().get(), ends.max().unwrap());
        let count = usize::try_from(all.count()).unwrap();
        let mut new = Self {
            all,
            span,
            owners: Owners::new(count, ABSENT),
            zones: std::vec![0; count],
            extents: extents.to_vec(),
            isolated: BTreeSet::new(),
            calls: CALLS,
            free: 0,
        };
        for &(extent, node, zone) in extents {
            let node = NodeId(node);
            let has = |other: &&Extent| !other.0.intersect(extent).is_empty();
            let is_one = extents.iter().filter(has).count() == 1;
            new.set_zone(extent, is_one.then_some(NodeZone { node, zone }));
        }
        new
    }

    // ---- What frames are -------------------------------------------------------

    /// Where a range lies in the map.
    fn index(&self, range: FrameRange) -> Option<Range<usize>> {
        let at = |frame: Frame| usize::try_from(frame.get() - self.all.start().get()).unwrap();
        (self.all.covers(range)).then(|| at(range.start())..at(range.end()))
    }

    /// Whether all of `range` is this.
    pub(super) fn are(&self, range: FrameRange, this: u32) -> bool {
        let index = self.index(range);
        index.is_some_and(|index| self.owners.are(index.start, index.end, this))
    }

    pub(super) fn is(&self, frame: u64, this: u32) -> bool {
        let one = frames(frame, frame + 1);
        self.are(one, this) || this == ABSENT && !self.all.covers(one)
    }

    /// Whether calls have all of `range`, or it was reserved and may be freed.
    pub(super) fn are_held(&self, range: FrameRange) -> bool {
        let is_other = |frame| self.is_any(frame, &[ABSENT, OFFLINE, PINNED]);
        let index = self.index(range);
        let are_allocated = index.is_some_and(|at| self.owners.are_allocated(at.start, at.end));
        are_allocated && self.first(range, is_other).is_none()
    }

    pub(super) fn is_any(&self, frame: u64, these: &[u32]) -> bool {
        these.iter().any(|&this| self.is(frame, this))
    }

    /// The first frame of `range` that is so.
    pub(super) fn first(&self, range: FrameRange, is: impl Fn(u64) -> bool) -> Option<Frame> {
        numbers(range).find(|&frame| is(frame)).map(Frame::new)
    }

    /// All of `range`, free or not a frame of it, becomes this: by a free and an allocation of the map. Else nothing does.
    pub(super) fn turn(&mut self, range: FrameRange, this: u32) -> bool {
        let Some(Range { start, end }) = self.index(range).filter(|_| !range.is_empty()) else {
            return range.is_empty();
        };
        if this == FREE {
            let is_freed = self.owners.free(start, end);
            self.free += u64::from(is_freed) * range.count();
            return is_freed;
        }
        if self.owners.allocate(start, end, this) {
            self.free -= range.count();
            return true;
        }
        self.owners.free(start, end) && self.owners.allocate(start, end, this)
    }

    /// Gives `range`, all of it free, to a new call; whose it is now.
    pub(super) fn allocate(&mut self, range: FrameRange) -> Option<u32> {
        self.calls += 1;
        let Range { start, end } = self.index(range)?;
        let is_done = self.owners.allocate(start, end, self.calls);
        self.free -= u64::from(is_done) * range.count();
        is_done.then_some(self.calls)
    }

    // ---- Nodes and zones ---------------------------------------------------------

    /// The node and zone that all of `range` is of.
    pub(super) fn zone_of(&self, range: FrameRange) -> Option<NodeZone> {
        let all = self.zones.get(self.index(range)?)?;
        let (first, rest) = all.split_first()?;
        let number = first.checked_sub(1)?;
        // Each is as the one before it.
        let is_one = *rest == all[..rest.len()];
        let node = NodeId(number / 4);
        let zone = ZoneKind::ALL[usize::from(number % 4)];
        is_one.then_some(NodeZone { node, zone })
    }

    /// The first frame of `range` that no node has.
    pub(super) fn first_hole(&self, range: FrameRange) -> Option<Frame> {
        let is_hole = |frame| self.zone_at(frame).is_none();
        let is_one = self.zone_of(range).is_some();
        (!is_one).then(|| self.first(range, is_hole)).flatten()
    }

    pub(super) fn zone_at(&self, frame: u64) -> Option<NodeZone> {
        self.zone_of(frames(frame, frame + 1))
    }

    /// Memory comes to a node and zone, or goes.
    pub(super) fn set_zone(&mut self, range: FrameRange, of: Option<NodeZone>) {
        let index = self.index(range).expect("modelled");
        let number = |of: NodeZone| 1 + 4 * of.node.0 + of.zone as u16;
        self.zones[index].fill(of.map_or(0, number));
    }

    /// Whether there are so many frames of this node and zone in a row, so aligned, all of which can be had.
    pub(super) fn has_space(
        &self,
        of: NodeZone,
        (count, align): (u64, u64),
        can_be_had: impl Fn(u64) -> bool,
    ) -> bool {
        let is_obstacle = |&at: &u64| !can_be_had(at) || self.zone_at(at) != Some(of);
        let is_here = |extent: &&Extent| (NodeId(extent.1), extent.2) == (of.node, of.zone);
        self.extents.iter().filter(is_here).any(|&(extent, ..)| {
            let mut start = extent.start().get().next_multiple_of(align);
            // From the last obstacle up to here all can be had.
            let mut known = start;
            while start + count <= extent.end().get() {
                let mut unknown = known.max(start)..start + count;
                let Some(obstacle) = unknown.rfind(is_obstacle) else {
                    return true;
                };
                known = start + count;
                start = (obstacle + 1).next_multiple_of(align);
            }
            false
        })
    }

    // ---- Isolation ------------------------------------------------------------------

    /// The parts in the span of the huge frames that `range` touches.
    pub(super) fn huges(&self, range: FrameRange) -> impl Iterator<Item = FrameRange> + use<> {
        let (span, inside) = (self.span, range.intersect(self.span));
        pieces(inside).map(move |piece| huge(piece.start().get() / HUGE).intersect(span))
    }

    pub(super) fn set_isolated(&mut self, range: FrameRange, is_isolated: bool) {
        for huge in self.huges(range).map(|huge| huge.start().get() / HUGE) {
            if is_isolated {
                self.isolated.insert(huge);
            } else {
                self.isolated.remove(&huge);
            }
        }
    }

    pub(super) fn is_isolated(&self, frame: u64) -> bool {
        !self.isolated.is_empty() && self.isolated.contains(&(frame / HUGE))
    }

    /// How many frames can be allocated.
    pub(super) fn available(&self) -> u64 {
        let isolated = self
            .isolated
            .iter()
            .flat_map(|&number| numbers(huge(number)));
        self.free - isolated.filter(|&frame| self.is(frame, FREE)).count() as u64
    }
}
