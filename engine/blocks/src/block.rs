//! The facts of one block: [`Block`].

use core::fmt;

use super::memory::{BlockMemory, Piece, ZoneSet};
use super::size::BlockId;
use super::state::BlockState;
use crate::addr::{Frame, FrameRange};
use crate::node::{NodeId, ZoneKind};

/// The zones that a block is in, or may join: `none`, `Normal`, `Normal Movable`.
///
/// A block is in no zone where it reaches over two zones or two nodes; it can't go offline then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValidZones {
    /// More than one zone, or more than one node.
    None,
    /// An online block's.
    One(ZoneKind),
    /// An offline block's: the one it joins unless the other is requested.
    Either(ZoneKind, ZoneKind),
}

impl ValidZones {
    /// The zones: none, one, or two.
    pub fn list(self) -> impl Iterator<Item = ZoneKind> {
        let both = match self {
            Self::None => [None, None],
            Self::One(zone) => [Some(zone), None],
            Self::Either(first, other) => [Some(first), Some(other)],
        };
        both.into_iter().flatten()
    }
}

impl fmt::Display for ValidZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::One(zone) => write!(f, "{zone}"),
            Self::Either(first, other) => write!(f, "{first} {other}"),
        }
    }
}

/// A memory block: what Linux's directory `memoryN` shows.
#[derive(Debug)]
pub struct Block<'a, M> {
    memory: &'a M,
    id: BlockId,
    frames: FrameRange,
    state: BlockState,
    zones: ValidZones,
    present_frames: u64,
    /// Lowest and highest node.
    nodes: (NodeId, NodeId),
}

impl<M> Clone for Block<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Block<'_, M> {}

impl<'a, M: BlockMemory> Block<'a, M> {
    /// The block `id` with `frames`, if some of them are memory.
    pub(super) fn new(memory: &'a M, id: BlockId, frames: FrameRange) -> Option<Self> {
        let first = memory.piece_in(frames)?;
        let mut block = Self {
            memory,
            id,
            frames,
            state: first.state,
            zones: ValidZones::None,
            present_frames: 0,
            nodes: (first.node, first.node),
        };
        let mut zones = ZoneSet::EMPTY;
        let mut from = Some(first);
        while let Some(piece) = from {
            block.present_frames += piece.frames.intersect(frames).count();
            if piece.state == BlockState::Online {
                block.state = BlockState::Online;
            }
            let (low, high) = block.nodes;
            block.nodes = (low.min(piece.node), high.max(piece.node));
            zones = zones.and(zones_of(memory, &piece, frames));
            from = next_inside(memory, &piece, frames);
        }
        block.zones = match zones.single() {
            Some(zone) if block.nodes.0 == block.nodes.1 => valid(zone, block.state),
            _ => ValidZones::None,
        };
        Some(block)
    }

    /// Its number, the `phys_index` of Linux.
    pub const fn id(&self) -> BlockId {
        self.id
    }

    /// All its frames, holes included.
    pub const fn frames(&self) -> FrameRange {
        self.frames
    }

    /// How many of them are memory; never 0.
    pub const fn present_frames(&self) -> u64 {
        self.present_frames
    }

    /// Whether some of it is in use.
    pub const fn state(&self) -> BlockState {
        self.state
    }

    /// The zones it is in, or may join.
    pub const fn zones(&self) -> ValidZones {
        self.zones
    }

    /// The nodes it has memory of, ascending: Linux's links `nodeN`.
    pub fn nodes(&self) -> NodeLinks<'a, M> {
        NodeLinks {
            memory: self.memory,
            frames: self.frames,
            next: Some(self.nodes.0),
            last: self.nodes.1,
        }
    }

    /// Whether it could leave now: offline; or all memory, in one zone, with nothing that stays where
    /// it is. (The file `removable` of Linux says 1 of every block since 5.7; whether it goes shows
    /// when it is tried.)
    pub fn is_removable(&self) -> bool {
        let whole = self.present_frames == self.frames.count();
        match self.state {
            BlockState::Offline => true,
            BlockState::Online => {
                whole && self.zones != ValidZones::None && !self.memory.has_fixed(self.frames)
            }
        }
    }

    /// Up to where all that follows in a row is like this block: its own end, or that of the range of
    /// memory and the zone that it lies in as a whole.
    pub(super) fn same_until(&self) -> Frame {
        let (memory, start) = (self.memory, self.frames.start());
        let piece = memory.piece_after(start);
        let Some(piece) = piece.filter(|piece| piece.frames.covers(self.frames)) else {
            return self.frames.end();
        };
        let border = match piece.zone {
            Some(_) => None,
            None => memory.zone_border_after(piece.node, start),
        };
        let until = border.map_or(piece.frames.end(), |border| border.min(piece.frames.end()));
        until.max(self.frames.end())
    }

    /// Whether a listing may join both: all but number and frames are the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.state, self.zones, self.nodes) == (other.state, other.zones, other.nodes)
            && (self.nodes.0 == self.nodes.1 || self.nodes().eq(other.nodes()))
    }
}

/// The zones of what `piece` has in `frames`.
fn zones_of<M: BlockMemory>(memory: &M, piece: &Piece, frames: FrameRange) -> ZoneSet {
    match piece.zone {
        Some(zone) => ZoneSet::of(zone),
        None => memory.zones_in(piece.node, frames),
    }
}

/// The piece after `piece`, if it has frames of `frames`.
fn next_inside<M: BlockMemory>(memory: &M, piece: &Piece, frames: FrameRange) -> Option<Piece> {
    if piece.frames.end() >= frames.end() {
        return None;
    }
    memory.piece_in(FrameRange::new(
        piece.frames.end().get(),
        frames.end().get(),
    )?)
}

fn valid(zone: ZoneKind, state: BlockState) -> ValidZones {
    match (state, zone) {
        (BlockState::Online, zone) => ValidZones::One(zone),
        (BlockState::Offline, ZoneKind::Movable) => {
            ValidZones::Either(ZoneKind::Movable, ZoneKind::Normal)
        }
        (BlockState::Offline, zone) => ValidZones::Either(zone, ZoneKind::Movable),
    }
}

/// The nodes of a block, ascending; made by [`Block::nodes`].
#[derive(Clone, Debug)]
pub struct NodeLinks<'a, M> {
    memory: &'a M,
    frames: FrameRange,
    next: Option<NodeId>,
    last: NodeId,
}

impl<M: BlockMemory> Iterator for NodeLinks<'_, M> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        let node = self.next.take()?;
        if node < self.last {
            let mut above = self.last;
            let mut from = self.memory.piece_in(self.frames);
            while let Some(piece) = from {
                if piece.node > node {
                    above = above.min(piece.node);
                }
                from = next_inside(self.memory, &piece, self.frames);
            }
            self.next = Some(above);
        }
        Some(node)
    }
}
