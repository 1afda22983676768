//! What a view of blocks needs to know of memory: [`BlockMemory`], for a [`Layout`], for
//! [`Frames`], and for a layout with memory that is [to come](WithAdded).

use super::state::BlockState;
use crate::addr::{Frame, FrameRange};
use crate::frames::{Frames, Present};
use crate::layout::{ExtentKind, Layout};
use crate::node::{NodeId, ZoneKind};

/// Zones, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneSet(u8);

impl ZoneSet {
    /// None.
    pub const EMPTY: Self = Self(0);

    /// Only `zone`.
    pub const fn of(zone: ZoneKind) -> Self {
        Self(1 << zone as u8)
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The zone, if it is one.
    pub fn single(self) -> Option<ZoneKind> {
        let mut all = ZoneKind::ALL.into_iter();
        all.find(|zone| Self::of(*zone) == self)
    }
}

/// Frames of memory in a row, of one node and one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Whether they are in use.
    pub state: BlockState,
    /// Their zone; `None`: whichever of the node's zones [span](BlockMemory::zones_in) them.
    pub zone: Option<ZoneKind>,
}

/// Memory as a view of blocks reads it: nodes and zones by range.
///
/// A block costs a few calls of these; a [`Layout`] answers by binary search.
pub trait BlockMemory {
    /// The lowest piece that ends after `frame`. Pieces are disjoint; of one that begins below
    /// `frame`, what lies below may be left out.
    fn piece_after(&self, frame: Frame) -> Option<Piece>;

    /// The lowest piece with some of `frames`.
    fn piece_in(&self, frames: FrameRange) -> Option<Piece> {
        let piece = self.piece_after(frames.start())?;
        (piece.frames.start() < frames.end()).then_some(piece)
    }

    /// The zones of `node` that span some of `frames`, with memory there or not.
    fn zones_in(&self, node: NodeId, frames: FrameRange) -> ZoneSet;

    /// The first frame after `frame` at which a zone of `node` begins or ends.
    fn zone_border_after(&self, node: NodeId, frame: Frame) -> Option<Frame>;

    /// Whether some of `frames` can't be moved away now.
    fn has_fixed(&self, frames: FrameRange) -> bool;
}

/// The memory there is at boot: online, and fixed where anything is reserved.
impl BlockMemory for Layout<'_> {
    #[inline]
    fn piece_after(&self, frame: Frame) -> Option<Piece> {
        let ranges = self.ranges();
        let at = ranges.partition_point(|range| range.frames.end() <= frame);
        let range = ranges.get(at)?;
        Some(Piece {
            frames: range.frames,
            node: range.node,
            state: BlockState::Online,
            zone: None,
        })
    }

    #[inline]
    fn zones_in(&self, node: NodeId, frames: FrameRange) -> ZoneSet {
        let mut set = ZoneSet::EMPTY;
        for zone in self.zones_of(node) {
            if !zone.span.intersect(frames).is_empty() {
                set = set.and(ZoneSet::of(zone.kind));
            }
        }
        set
    }

    fn zone_border_after(&self, node: NodeId, frame: Frame) -> Option<Frame> {
        let spans = self.zones_of(node).iter().map(|zone| zone.span);
        let borders = spans.flat_map(|span| [span.start(), span.end()]);
        borders.filter(|border| *border > frame).min()
    }

    fn has_fixed(&self, frames: FrameRange) -> bool {
        let reserved = self.early().reserved();
        let at =
            reserved.partition_point(|region| region.range.outer_frames().end() <= frames.start());
        let reserved = reserved.get(at).map(|region| region.range.outer_frames());
        if reserved.is_some_and(|reserved| reserved.start() < frames.end()) {
            return true;
        }
        let ranges = self.ranges();
        let from = ranges.partition_point(|range| range.frames.end() <= frames.start());
        let inside = ranges.iter().skip(from);
        inside
            .take_while(|range| range.frames.start() < frames.end())
            .any(|range| range.kind != ExtentKind::Usable)
    }
}

/// The memory there is now: that of the start and what was added, offline where it was taken
/// offline, and fixed where the allocator has content that can't be moved. Read from the
/// allocator's own words; exact whenever nothing comes or goes.
///
/// ```
/// use firstlight_frames::addr::FrameRange;
/// use firstlight_blocks::{BlockSize, Blocks};
/// use firstlight_frames::frames::Frames;
///
/// /// Blocks of 128 MiB that are offline.
/// fn offline_blocks(frames: &Frames<'_>) -> u64 {
///     let blocks = Blocks::new(frames, BlockSize::SMALLEST);
///     let runs = blocks.runs().filter(|run| run.state().name() == "offline");
///     runs.map(|run| run.count()).sum()
/// }
/// ```
impl BlockMemory for Frames<'_> {
    #[inline]
    fn piece_after(&self, frame: Frame) -> Option<Piece> {
        let above = FrameRange::new(frame.get(), u64::MAX)?;
        self.present_in(above).map(Piece::from)
    }

    #[inline]
    fn piece_in(&self, frames: FrameRange) -> Option<Piece> {
        self.present_in(frames).map(Piece::from)
    }

    fn zones_in(&self, node: NodeId, frames: FrameRange) -> ZoneSet {
        self.layout().zones_in(node, frames)
    }

    fn zone_border_after(&self, node: NodeId, frame: Frame) -> Option<Frame> {
        self.layout().zone_border_after(node, frame)
    }

    fn has_fixed(&self, frames: FrameRange) -> bool {
        self.occupancy(frames).fixed_frames > 0
    }
}

impl From<Present> for Piece {
    fn from(present: Present) -> Self {
        let state = if present.is_offline {
            BlockState::Offline
        } else {
            BlockState::Online
        };
        Self {
            frames: present.frames,
            node: present.node,
            state,
            // A zone of the layout spans holes, and a block with one is in it too.
            zone: (!present.is_from_start).then_some(present.zone),
        }
    }
}

/// Memory that is to come to a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    /// The frames.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Their zone; of offline memory the one it would join.
    pub zone: ZoneKind,
    /// Whether they are in use.
    pub state: BlockState,
}

/// A layout with memory that is to come: what a machine shows once its DIMMs are plugged in.
#[derive(Clone, Copy, Debug)]
pub struct WithAdded<'a, M> {
    memory: M,
    added: &'a [Added],
}

impl<'a, M: BlockMemory> WithAdded<'a, M> {
    /// `memory` alone.
    pub const fn none(memory: M) -> Self {
        Self { memory, added: &[] }
    }

    /// `memory` and `added`, which is ascending, and shares no frame with it or itself; `None` if it does.
    pub fn new(memory: M, added: &'a [Added]) -> Option<Self> {
        let mut below = Frame::new(0);
        for one in added {
            let there = memory.piece_after(one.frames.start());
            let meets = there.is_some_and(|piece| piece.frames.start() < one.frames.end());
            if meets || one.frames.is_empty() || one.frames.start() < below {
                return None;
            }
            below = one.frames.end();
        }
        Some(Self { memory, added })
    }
}

impl<M: BlockMemory> BlockMemory for WithAdded<'_, M> {
    fn piece_after(&self, frame: Frame) -> Option<Piece> {
        let at = self.added.partition_point(|one| one.frames.end() <= frame);
        let added = self.added.get(at).map(|one| Piece {
            frames: one.frames,
            node: one.node,
            state: one.state,
            zone: Some(one.zone),
        });
        let both = [self.memory.piece_after(frame), added];
        both.into_iter()
            .flatten()
            .min_by_key(|piece| piece.frames.start())
    }

    fn zones_in(&self, node: NodeId, frames: FrameRange) -> ZoneSet {
        self.memory.zones_in(node, frames)
    }

    fn zone_border_after(&self, node: NodeId, frame: Frame) -> Option<Frame> {
        self.memory.zone_border_after(node, frame)
    }

    fn has_fixed(&self, frames: FrameRange) -> bool {
        self.memory.has_fixed(frames)
    }
}

impl<M: BlockMemory + ?Sized> BlockMemory for &M {
    fn piece_after(&self, frame: Frame) -> Option<Piece> {
        (**self).piece_after(frame)
    }

    fn piece_in(&self, frames: FrameRange) -> Option<Piece> {
        (**self).piece_in(frames)
    }

    fn zones_in(&self, node: NodeId, frames: FrameRange) -> ZoneSet {
        (**self).zones_in(node, frames)
    }

    fn zone_border_after(&self, node: NodeId, frame: Frame) -> Option<Frame> {
        (**self).zone_border_after(node, frame)
    }

    fn has_fixed(&self, frames: FrameRange) -> bool {
        (**self).has_fixed(frames)
    }
}
