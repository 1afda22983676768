//! A segment with its node, its zone and its state: [`ZoneSegment`].
//!
//! A segment without memory is *absent*: its tables are reserved and not written, and every
//! request, free and search stops at its state. Even the tables of an *online* segment are
//! written at the first call that reaches it: nodes that are not used yet cost nothing.

use crate::addr::FrameRange;
use crate::frames::search::Hints;
use crate::frames::segment::Segment;
use crate::frames::segment::init::{Ahead, free_frames, start};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};

/// Ends the chain of a zone's segments.
pub(crate) const NONE: u32 = u32::MAX;

/// There is no memory (yet).
const ABSENT: u32 = 0;
/// There is memory, and nothing of the tables is written.
const UNTOUCHED: u32 = 1;
/// One CPU is writing the first tables.
const STARTING: u32 = 2;
/// The tables are valid.
const READY: u32 = 3;

/// A segment, its node and zone, and its ranges not free at start.
#[derive(Debug)]
pub(crate) struct ZoneSegment<'m> {
    segment: Segment<'m>,
    pub(crate) hints: Hints,
    pub(crate) node: NodeId,
    pub(crate) zone: ZoneKind,
    /// Next segment of the same node and zone.
    pub(crate) next: u32,
    /// Goes from UNTOUCHED through STARTING to READY, by Release; `online` acquires.
    state: AtomicU32,
    /// Ascending and disjoint; the first is the first that ends in or after the segment.
    taken: &'m [FrameRange],
    written_bytes: AtomicU64,
}

impl<'m> ZoneSegment<'m> {
    /// A segment whose tables are not written; absent, or online. `taken` are the frames of the
    /// whole machine that are not free at start, ascending and disjoint.
    pub(crate) fn new(
        segment: Segment<'m>,
        node: NodeId,
        zone: ZoneKind,
        is_present: bool,
        taken: &'m [FrameRange],
    ) -> Self {
        let first = segment.frames.start();
        let before = taken.partition_point(|range| range.end() <= first);
        let state = if is_present { UNTOUCHED } else { ABSENT };
        Self {
            hints: Hints::new(&segment),
            segment,
            node,
            zone,
            next: NONE,
            state: AtomicU32::new(state),
            taken: taken.get(before..).unwrap_or_default(),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// The frames of the segment, there or not.
    #[inline]
    pub(crate) fn frames(&self) -> FrameRange {
        self.segment.frames
    }

    /// Whether there is memory.
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ABSENT
    }

    /// The segment, its tables written; `None` while it is absent.
    #[inline]
    pub(crate) fn online(&self) -> Option<&Segment<'m>> {
        // Acquire: pairs with the Release in `start`.
        let ready = self.state.load(Ordering::Acquire) == READY || self.start();
        ready.then_some(&self.segment)
    }

    #[cold]
    fn start(&self) -> bool {
        if !self.is_present() {
            return false;
        }
        let state = &self.state;
        let (mine, now) = (Ordering::Relaxed, Ordering::Relaxed);
        if state
            .compare_exchange(UNTOUCHED, STARTING, mine, now)
            .is_ok()
        {
            let written_bytes = start(&self.segment, &mut self.ahead());
            self.written_bytes.store(written_bytes, Ordering::Relaxed);
            state.store(READY, Ordering::Release);
        }
        while state.load(Ordering::Acquire) != READY {
            pause();
        }
        true
    }

    fn ahead(&self) -> Ahead<impl Iterator<Item = FrameRange> + '_> {
        Ahead::new(self.taken.iter().copied())
    }

    /// Bytes of tables written to start the segment; 0 before.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Frames that are free once the segment is started.
    pub(crate) fn managed_frames(&self) -> u64 {
        if self.is_present() {
            free_frames(self.segment.frames, &mut self.ahead())
        } else {
            0
        }
    }
}
