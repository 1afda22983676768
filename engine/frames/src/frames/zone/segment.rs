//! A segment with its node, its zone and its state: [`ZoneSegment`].
//!
//! A segment without memory is *absent*: its tables are reserved and not written, and every
//! request, free and search stops at its state, until memory is added. Even the tables of an *online* segment are
//! written at the first call that reaches it: nodes that are not used yet cost nothing.

use crate::addr::{Frame, FrameRange};
use crate::frames::search::Hints;
use crate::frames::segment::Segment;
use crate::frames::segment::init::{self, RangeCursor, start};
use crate::frames::segment::initial_zeros::InitialZeros;
use crate::frames::segment::pinned::Pinned;
use crate::frames::segment::statistics::Statistics;
#[cfg(feature = "hotplug")]
use crate::frames::word::geometry::HUGE_FRAMES;
use crate::frames::word::{Content, IS_KEPT};
use crate::frames::zone::zeroed::Counts;
use crate::node::{NodeId, NodeZone, ZoneKind};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, pause};

/// Whether a window has one segment only, which is like all others: where nothing goes again.
pub(crate) const ONE_ZONE: bool = cfg!(not(feature = "hotplug"));

/// Ends the chain of a zone's segments.
pub(crate) const NONE: u32 = u32::MAX;

/// There is no memory (yet).
const ABSENT: u32 = 0;
/// The first memory is being added.
const COMING: u32 = 1;
/// There is memory, from here on, and nothing of the tables is written.
const UNTOUCHED: u32 = 2;
/// One CPU is writing the first tables.
const STARTING: u32 = 3;
/// The tables are valid.
const READY: u32 = 4;

/// A segment, its node and its zone.
#[derive(Debug)]
pub(crate) struct ZoneSegment<'m> {
    segment: Segment<'m>,
    pub(crate) hints: Hints,
    node: NodeId,
    zone: ZoneKind,
    /// Next segment of the same node and zone.
    pub(crate) next: u32,
    /// Others of other nodes and zones have the same frames; each frame is memory in one at most,
    /// and can't be freed in the others, by a list of each one's own.
    of_window: bool,
    /// Goes from UNTOUCHED through STARTING to READY, by Release; `online` acquires.
    state: AtomicU32,
    /// Its ranges not free at start: ascending and disjoint; the first is the first that ends in
    /// or after the segment. `None`: there was no memory at first.
    taken: Option<&'m [FrameRange]>,
    /// Then start and end of the frames that are free at start, those that were added first.
    first_added: [AtomicU64; 2],
    /// Whether these hold zeros.
    first_is_zero: AtomicBool,
    /// Those of the whole machine that hold zeros at start.
    zero: &'m [FrameRange],
    written_bytes: AtomicU64,
    #[cfg(feature = "hotplug")]
    offline_frames: AtomicU64,
    /// Of requests for zeros.
    pub(crate) zeroed: Counts,
}

impl<'m> ZoneSegment<'m> {
    /// A segment whose tables are not written: absent; or online, with the frames of the whole
    /// machine that are not free at start, ascending and disjoint.
    pub(crate) fn new(
        segment: Segment<'m>,
        node: NodeId,
        zone: ZoneKind,
        taken: Option<&'m [FrameRange]>,
    ) -> Self {
        let first = segment.frames.start();
        let state = if taken.is_some() { UNTOUCHED } else { ABSENT };
        Self {
            hints: Hints::new(&segment),
            segment,
            node,
            zone,
            next: NONE,
            of_window: false,
            state: AtomicU32::new(state),
            taken: taken.map(|taken| {
                let before = taken.partition_point(|range| range.end() <= first);
                taken.get(before..).unwrap_or_default()
            }),
            first_added: [AtomicU64::new(0), AtomicU64::new(0)],
            first_is_zero: AtomicBool::new(false),
            zero: &[],
            written_bytes: AtomicU64::new(0),
            #[cfg(feature = "hotplug")]
            offline_frames: AtomicU64::new(0),
            zeroed: Counts::default(),
        }
    }

    /// One of those that have the frames of a window.
    pub(crate) fn of_window(self) -> Self {
        Self {
            of_window: true,
            ..self
        }
    }

    /// Whether it is one of those that have the frames of a window.
    #[inline]
    pub(crate) fn is_of_window(&self) -> bool {
        !ONE_ZONE && self.of_window
    }

    /// Sets the frames of the whole machine that hold zeros at start, ascending and disjoint.
    pub(crate) fn set_zero(&mut self, zero: &'m [FrameRange]) {
        self.zero = zero;
    }

    /// The frames that can't be freed: its own list, if it is of a window.
    pub(crate) fn pinned(&self) -> &'m Pinned<'m> {
        self.segment.pinned()
    }

    /// Whether `frame` is memory of this segment, or of none.
    #[inline]
    pub(crate) fn has(&self, frame: Frame) -> bool {
        let is_here = self.frames().contains(frame);
        is_here && !(self.is_of_window() && self.segment.is_reserved(frame))
    }

    /// Its node and zone.
    pub(crate) fn node_zone(&self) -> NodeZone {
        let (node, zone) = (self.node, self.zone);
        NodeZone { node, zone }
    }

    /// Its node.
    #[inline]
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Its zone.
    #[inline]
    pub(crate) fn zone(&self) -> ZoneKind {
        self.zone
    }

    /// The frames of the segment, there or not.
    #[inline]
    pub(crate) fn frames(&self) -> FrameRange {
        self.segment.frames
    }

    /// Whether there is memory.
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= UNTOUCHED
    }

    /// The segment, its tables written; `None` while it is absent.
    #[inline]
    pub(crate) fn online(&self) -> Option<&Segment<'m>> {
        // Acquire: pairs with the Release in `start`.
        let ready = self.state.load(Ordering::Acquire) == READY || self.start();
        ready.then_some(&self.segment)
    }

    /// The segment, if its tables are written already; none are written for it.
    #[cfg(feature = "hotplug")]
    pub(crate) fn started(&self) -> Option<&Segment<'m>> {
        // Acquire: as above.
        let is_ready = self.state.load(Ordering::Acquire) == READY;
        is_ready.then_some(&self.segment)
    }

    #[cold]
    fn start(&self) -> bool {
        if !self.is_present() {
            return false;
        }
        let state = &self.state;
        // Acquire: pairs with the Release in `populate`.
        let (mine, now) = (Ordering::Acquire, Ordering::Relaxed);
        if state
            .compare_exchange(UNTOUCHED, STARTING, mine, now)
            .is_ok()
        {
            let write =
                |taken: &mut RangeCursor<'_>| start(&self.segment, taken, self.initial_zeros());
            let started = self.with_taken(write);
            self.written_bytes.store(started.bytes, Ordering::Relaxed);
            self.hints.begin_at(started.first_partial);
            state.store(READY, Ordering::Release);
        }
        while state.load(Ordering::Acquire) != READY {
            pause();
        }
        true
    }

    /// Whether all of it is memory since the layout: none of it is added.
    pub(crate) fn is_memory_from_start(&self) -> bool {
        self.taken.is_some()
    }

    /// Memory comes to the segment. If it is the first, `free` of it is free at start, with this
    /// content, and nothing else; whether it was.
    pub(crate) fn populate(&self, free: FrameRange, content: Content) -> bool {
        let state = &self.state;
        // Acquire: pairs with the Release of the first.
        let (mine, not) = (Ordering::Acquire, Ordering::Acquire);
        match state.compare_exchange(ABSENT, COMING, mine, not) {
            Ok(_) => {
                let [start, end] = &self.first_added;
                start.store(free.start().get(), Ordering::Relaxed);
                end.store(free.end().get(), Ordering::Relaxed);
                let is_zero = IS_KEPT && content == Content::Zero;
                self.first_is_zero.store(is_zero, Ordering::Relaxed);
                if is_zero {
                    self.add_made(free.count());
                }
                state.store(UNTOUCHED, Ordering::Release);
                true
            }
            Err(_) => {
                while state.load(Ordering::Acquire) == COMING {
                    pause();
                }
                false
            }
        }
    }

    fn first_added(&self) -> FrameRange {
        let [start, end] = (self.first_added.each_ref()).map(|at| at.load(Ordering::Relaxed));
        FrameRange::new(start, end).unwrap_or_default()
    }

    /// What is zero at start. For a segment with memory.
    fn initial_zeros(&self) -> InitialZeros<'m> {
        let is_zero = IS_KEPT && self.taken.is_none() && self.first_is_zero.load(Ordering::Relaxed);
        InitialZeros {
            // What comes later says itself what it holds.
            ranges: self.taken.map_or(&[], |_| self.zero),
            one: if is_zero {
                self.first_added()
            } else {
                FrameRange::EMPTY
            },
        }
    }

    /// What is not free at start, if nothing was there before the first memory came.
    fn around_first(&self) -> [FrameRange; 2] {
        let (all, free) = (self.segment.frames, self.first_added());
        if free.is_empty() {
            return [all, FrameRange::EMPTY];
        }
        let range =
            |start: Frame, end: Frame| FrameRange::new(start.get(), end.get()).unwrap_or_default();
        [
            range(all.start(), free.start()),
            range(free.end(), all.end()),
        ]
    }

    /// With what is not free at start. For a segment with memory.
    fn with_taken<T>(&self, work: impl FnOnce(&mut RangeCursor<'_>) -> T) -> T {
        match self.taken {
            Some(taken) => work(&mut RangeCursor::new(taken)),
            None => work(&mut RangeCursor::new(&self.around_first())),
        }
    }

    /// Bytes of tables written to start the segment; 0 before.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Frames were given back as zero.
    pub(crate) fn add_made(&self, frames: u64) {
        self.zeroed.add_made(frames);
    }

    /// So many frames more went offline, or came online.
    #[cfg(feature = "hotplug")]
    pub(crate) fn count_offline(&self, more: i64) {
        (self.offline_frames).fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }

    /// Frames that are offline.
    #[cfg(feature = "hotplug")]
    pub(crate) fn offline_frames(&self) -> u64 {
        self.offline_frames.load(Ordering::Relaxed)
    }

    /// Memory comes to the segment, and waits offline.
    #[cfg(feature = "hotplug")]
    pub(crate) fn populate_offline(&self, part: FrameRange) {
        self.populate(FrameRange::EMPTY, Content::Unknown);
        if let Some(online) = self.online() {
            let huges = online.huges_touched(part);
            let count = huges
                .filter(|&huge| online.set_offline_absent(huge))
                .count();
            self.count_offline(count as i64 * i64::from(HUGE_FRAMES));
        }
    }

    /// Makes absent what of `part` is offline here; how many frames that are.
    #[cfg(feature = "hotplug")]
    pub(crate) fn remove_offline(&self, part: FrameRange) -> u64 {
        let Some(started) = self.started() else {
            return 0;
        };
        let huges = started.huges_touched(part);
        let mut frames = 0;
        for huge in huges.clone().filter(|&huge| started.is_offline(huge)) {
            started.set_absent(huge);
            frames += u64::from(HUGE_FRAMES);
        }
        if frames > 0 {
            self.count_offline(-frames.cast_signed());
            let last = started.giant_of_huge(huges.end - 1);
            for giant in started.giant_of_huge(huges.start)..=last {
                started.close_absent(giant);
            }
        }
        frames
    }

    /// Frames that workers have.
    pub(crate) fn in_work_frames(&self) -> u64 {
        self.segment.calls.in_work()
    }

    /// Frames that are free, or may be freed.
    pub(crate) fn managed_frames(&self) -> u64 {
        if self.is_present() {
            self.segment.managed_frames()
        } else {
            0
        }
    }

    /// What is free, also before the tables are written.
    pub(crate) fn statistics(&self) -> Statistics {
        // Acquire: pairs with the Release in `start`.
        match self.state.load(Ordering::Acquire) {
            ABSENT | COMING => Statistics::default(),
            READY => Statistics {
                in_work_frames: self.in_work_frames(),
                ..self.segment.statistics()
            },
            _ => Statistics {
                managed_frames: self.segment.managed_frames(),
                ..self.with_taken(|taken| {
                    init::statistics(self.segment.frames, taken, self.initial_zeros())
                })
            },
        }
    }
}
