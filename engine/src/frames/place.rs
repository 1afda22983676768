//! A segment and where it belongs: [`Place`].
//!
//! Even the first writing of a segment's tables waits until somebody asks: the
//! first request that comes to a segment starts it, on the CPU that wants its
//! memory, and nobody pays for nodes that are not used yet.

use super::segment::Segment;
use super::start::{Ahead, free_frames, start};
use crate::addr::FrameRange;
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Ends a chain of places.
pub(crate) const NONE: u32 = u32::MAX;

/// Nothing of the tables is written.
const UNTOUCHED: u32 = 0;
/// One CPU is writing what has to be written first.
const STARTING: u32 = 1;
/// The tables hold.
const READY: u32 = 2;

/// A segment, its node and zone, and what is withheld from it.
#[derive(Debug)]
pub(crate) struct Place<'m> {
    segment: Segment<'m>,
    pub(crate) node: NodeId,
    pub(crate) zone: ZoneKind,
    /// Next place of the same node and zone.
    pub(crate) next: u32,
    state: AtomicU32,
    /// Ascending and disjoint; the first is the first that ends in or after the segment.
    withheld: &'m [FrameRange],
    written_bytes: AtomicU64,
}

impl<'m> Place<'m> {
    /// A place whose tables are not written. `withheld` are the frames of the
    /// whole machine that are not to be handed out, ascending and disjoint.
    pub(crate) fn new(
        segment: Segment<'m>,
        node: NodeId,
        zone: ZoneKind,
        withheld: &'m [FrameRange],
    ) -> Self {
        let first = segment.frames.start();
        let before = withheld.partition_point(|range| range.end() <= first);
        Self {
            segment,
            node,
            zone,
            next: NONE,
            state: AtomicU32::new(UNTOUCHED),
            withheld: withheld.get(before..).unwrap_or_default(),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// The frames of the segment.
    pub(crate) fn frames(&self) -> FrameRange {
        self.segment.frames
    }

    /// The segment, ready to be asked.
    #[inline]
    pub(crate) fn segment(&self) -> &Segment<'m> {
        // Acquire: pairs with the Release in `start`.
        if self.state.load(Ordering::Acquire) != READY {
            self.start();
        }
        &self.segment
    }

    #[cold]
    fn start(&self) {
        let mine =
            self.state
                .compare_exchange(UNTOUCHED, STARTING, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_ok() {
            let written_bytes = start(&self.segment, &mut self.ahead());
            self.written_bytes.store(written_bytes, Ordering::Relaxed);
            self.state.store(READY, Ordering::Release);
        }
        while self.state.load(Ordering::Acquire) != READY {
            pause();
        }
    }

    fn ahead(&self) -> Ahead<impl Iterator<Item = FrameRange> + '_> {
        Ahead::new(self.withheld.iter().copied())
    }

    /// Bytes of tables written to start the segment; 0 before.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Frames that can be allocated once the segment is started.
    pub(crate) fn managed_frames(&self) -> u64 {
        free_frames(self.segment.frames, &mut self.ahead())
    }
}
