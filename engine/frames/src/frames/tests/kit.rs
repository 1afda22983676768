//! A machine for tests: segments over uninitialised memory, so that Miri detects every read of
//! something that was not written first.

extern crate std;

use crate::addr::{Frame, FrameRange};
#[cfg(not(firstlight_loom))]
use crate::frames::request::ZoneChoice;
#[cfg(not(firstlight_loom))]
use crate::frames::search::contiguous::RangeRequest;
use crate::frames::search::{BlockRequest, Hints, Pass, any};
use crate::frames::segment::Segment;
#[cfg(firstlight_loom)]
use crate::frames::segment::init::{RangeCursor, start};
#[cfg(firstlight_loom)]
use crate::frames::segment::initial_zeros::InitialZeros;
#[cfg(not(firstlight_loom))]
use crate::frames::segment::pinned::Entry;
use crate::frames::segment::pinned::Pinned;
use crate::frames::segment::table::Table;
#[cfg(not(firstlight_loom))]
use crate::frames::word::Bitmap;
use crate::frames::word::Mobility;
#[cfg(not(firstlight_loom))]
use crate::frames::word::geometry::Block;
use crate::frames::zone::Segments;
use crate::frames::zone::record::Zones;
use crate::frames::zone::segment::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
#[cfg(not(firstlight_loom))]
use proptest::prelude::ProptestConfig;
use std::boxed::Box;
use std::vec::Vec;

/// Frames of a node and zone.
pub(crate) type Extent = (FrameRange, u16, ZoneKind);

pub(crate) fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).expect("a range that does not end before it starts")
}

/// No frame is reserved.
pub(crate) fn none_pinned() -> &'static Pinned<'static> {
    Box::leak(Box::new(Pinned::new(Table::from_slice(&[]))))
}

/// A segment with its tables not yet written, some of it reserved or absent.
#[cfg(not(firstlight_loom))]
pub(crate) fn blank_segment_with(
    frames: FrameRange,
    pinned: &'static Pinned<'static>,
) -> Segment<'static> {
    use crate::carver::Carver;
    use crate::frames::segment::table::Table;
    use core::ptr::NonNull;

    let giants = usize::try_from(Segment::giants_for(frames)).unwrap();
    let huges = usize::try_from(Segment::huges_for(frames)).unwrap();
    let bytes = giants * 8 + huges * (4 + size_of::<Bitmap>()) + 256;
    let memory: &'static mut [_] = Box::leak(Box::<[u8]>::new_uninit_slice(bytes));
    // SAFETY: leaked, so ours for ever; no other reference to it exists.
    let mut carver = unsafe { Carver::new(NonNull::from(memory).cast(), bytes) };
    let (giants, words) = (
        Table::carve(&mut carver, giants).unwrap(),
        Table::carve(&mut carver, huges).unwrap(),
    );
    let bitmaps = Table::carve(&mut carver, huges).unwrap();
    Segment::new(frames, pinned, giants, words, bitmaps)
}

/// Likewise, of atomics that the model checker knows.
#[cfg(firstlight_loom)]
pub(crate) fn blank_segment_with(
    frames: FrameRange,
    pinned: &'static Pinned<'static>,
) -> Segment<'static> {
    use crate::frames::segment::table::Word;
    use crate::frames::word::Bitmap;
    use crate::sync::{AtomicU32, AtomicU64};

    fn table<T: Word>(len: u64, make: impl Fn() -> T) -> Table<'static, T> {
        Table::from_slice(Box::leak(
            (0..len)
                .map(|_| make())
                .collect::<Vec<_>>()
                .into_boxed_slice(),
        ))
    }
    let huges = Segment::huges_for(frames);
    Segment::new(
        frames,
        pinned,
        table(Segment::giants_for(frames), || AtomicU64::new(0xdead_0000)),
        table(huges, || AtomicU32::new(0xdead_0000)),
        table(huges, || Bitmap::new(0x5555_5555_5555_5555)),
    )
}

/// A started segment.
#[cfg(firstlight_loom)]
pub(crate) fn segment(frames: FrameRange, reserved: &[FrameRange]) -> Segment<'static> {
    let segment = blank_segment_with(frames, none_pinned());
    start(
        &segment,
        &mut RangeCursor::new(reserved),
        InitialZeros::default(),
    );
    segment
}

/// An unmovable block.
pub(crate) fn want(order: u8) -> BlockRequest<'static> {
    BlockRequest::block(order, Mobility::Unmovable)
}

impl Segment<'_> {
    /// Any unmovable block, after one pass.
    pub(crate) fn take_any(&self, order: u8) -> Result<Frame, Pass> {
        let mut pass = Pass::default();
        any(self, &Hints::new(self), want(order), &mut pass).ok_or(pass)
    }
}

/// These frames are reserved or absent; with space for many ranges.
#[cfg(not(firstlight_loom))]
pub(crate) fn pinned(range: FrameRange) -> &'static Pinned<'static> {
    let entries: Vec<_> = (0..300).map(|_| Entry::default()).collect();
    let list = Pinned::of(Table::from_slice(entries.leak()), range);
    Box::leak(Box::new(list.expect("an entry")))
}

/// The zones of so many nodes.
pub(crate) fn zones(nodes: usize) -> &'static mut [Zones] {
    let zones: Vec<_> = (0..nodes).map(|_| Zones::default()).collect();
    zones.leak()
}

/// Segments over `extents` (ascending), nothing of them started.
pub(crate) fn segments(extents: &[Extent], reserved: &[FrameRange]) -> Segments<'static> {
    segments_with(extents, reserved, none_pinned())
}

/// [`segments`], of which some frames, that are reserved, can't be freed.
pub(crate) fn segments_with(
    extents: &[Extent],
    reserved: &[FrameRange],
    pinned: &'static Pinned<'static>,
) -> Segments<'static> {
    let reserved: &'static [FrameRange] = Box::leak(reserved.to_vec().into_boxed_slice());
    let all: Vec<_> = extents
        .iter()
        .map(|&(frames, node, zone)| {
            let segment = blank_segment_with(frames, pinned);
            ZoneSegment::new(segment, NodeId(node), zone, Some(reserved))
        })
        .collect();
    let nodes = extents
        .iter()
        .map(|extent| usize::from(extent.1) + 1)
        .max()
        .unwrap_or(0);
    Segments::new(Box::leak(all.into_boxed_slice()), zones(nodes))
}

/// The only segment, or the first one.
pub(crate) fn first<'s>(segments: &'s Segments<'static>) -> &'s Segment<'static> {
    segments
        .iter()
        .next()
        .and_then(ZoneSegment::online)
        .expect("a segment")
}

/// Frees a block; whether that was possible.
#[cfg(not(firstlight_loom))]
pub(crate) fn free(segments: &Segments<'_>, block: Block) -> bool {
    let segment = segments.of(block.range()).and_then(ZoneSegment::online);
    segment.is_some_and(|segment| segment.give(block).is_ok())
}

/// Free frames, after a recount of everything.
pub(crate) fn recount(segments: &Segments<'_>) -> u64 {
    let online = segments.iter().filter_map(ZoneSegment::online);
    online
        .map(|segment| {
            segment.validate().unwrap();
            segment.statistics().free_frames
        })
        .sum()
}

/// Takes frames in a row from the first of `nodes` that has them.
#[cfg(not(firstlight_loom))]
pub(crate) fn allocate_frames(
    segments: &Segments<'_>,
    nodes: impl Iterator<Item = NodeId> + Clone,
    zones: ZoneChoice,
    want: RangeRequest,
) -> Option<FrameRange> {
    crate::frames::range::contiguous::allocate_on(segments, nodes, want, zones, None)
}

/// How much a property test does: `FIRSTLIGHT_MODEL_CASES` cases; if that is not set one under Miri, else as many as usual.
#[cfg(not(firstlight_loom))]
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let set = std::env::var("FIRSTLIGHT_MODEL_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let cases = set.unwrap_or(if cfg!(miri) { 1 } else { usual });
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Steps of a case where everything is recounted after every [`RECOUNT_EVERY`] only: many steps
/// bring counts close to their limits.
#[cfg(not(firstlight_loom))]
pub(crate) const MANY_STEPS: core::ops::Range<usize> = 1..20_000;
#[cfg(not(firstlight_loom))]
pub(crate) const RECOUNT_EVERY: usize = 100;

/// Recounted after each step in a case of few. Miri looks at accesses, and is slow to count: after the last.
#[cfg(not(firstlight_loom))]
pub(crate) const RECOUNT_SOON: usize = if cfg!(miri) { 8 } else { 1 };

/// One in so many of 200 [`cases`], each of [`MANY_STEPS`].
#[cfg(not(firstlight_loom))]
pub(crate) fn long_cases(one_in: u32) -> ProptestConfig {
    let all = cases(200);
    ProptestConfig {
        cases: all.cases.div_ceil(one_in),
        ..all
    }
}
