//! Memory that comes range by range, of a machine without a layout: [`Frames::over`].
//!
//! All frames of the span are absent at first, until they are [added](Frames::add).
use core::mem::MaybeUninit;

use super::build::{SegmentSpan, sum, table_bytes};
use super::error::BuildError;
use super::find::Frames;
use super::metadata::Metadata;
use super::segment::pinned::{Entry, Pinned};
use super::segment::table::Table;
use super::zone::Segments;
use super::zone::record::Zones;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange};
use crate::carver::Carver;
use crate::layout::{Layout, LayoutPolicy};
use crate::node::{NodeId, ZoneKind};

/// Zones of a span, with the end of each.
const ZONES: [(ZoneKind, Frame); 3] = [
    (ZoneKind::Dma, LayoutPolicy::DEFAULT.dma_end),
    (ZoneKind::Dma32, LayoutPolicy::DEFAULT.dma32_end),
    (ZoneKind::Normal, Frame::new(u64::MAX)),
];

/// The part of `span` that lies in zone number `index` of [`ZONES`].
const fn part(span: FrameRange, index: usize) -> FrameRange {
    let first = match index.checked_sub(1) {
        Some(below) => ZONES[below].1.get(),
        None => 0,
    };
    let end = ZONES[index].1.get();
    let (from, to) = (span.start().get(), span.end().get());
    let start = if from > first { from } else { first };
    match FrameRange::new(start, if to < end { to } else { end }) {
        Some(part) => part,
        None => FrameRange::EMPTY,
    }
}

/// The parts of `span`, one for each zone it reaches into.
fn parts(span: FrameRange) -> impl Iterator<Item = SegmentSpan> {
    let part = move |(index, (zone, _))| SegmentSpan {
        frames: part(span, index),
        node: NodeId(0),
        zone,
        home: NodeId(0),
        is_present: false,
    };
    let parts = ZONES.into_iter().enumerate().map(part);
    parts.filter(|part| !part.frames.is_empty())
}

impl<'m> Frames<'m> {
    /// Bytes of memory that [`Frames::over`] needs for `span`, if at most `ranges` ranges are
    /// absent at a time: one for each hole between what is added, and one at each end. `None` if
    /// they exceed the address space.
    ///
    /// ```
    /// use firstlight_frames::addr::FrameRange;
    /// use firstlight_frames::frames::Frames;
    ///
    /// // 64 GiB: 34 bytes a MiB, none of them written before the memory is used.
    /// const SPAN: FrameRange = FrameRange::new(0, 64 << 18).unwrap();
    /// const BYTES: u64 = Frames::bytes_for(SPAN, 64).unwrap();
    /// assert_eq!(BYTES >> 20, 2);
    /// ```
    pub const fn bytes_for(span: FrameRange, ranges: usize) -> Option<u64> {
        let ranges = if ranges == 0 { 1 } else { ranges };
        sum([
            table_bytes(part(span, 0)),
            table_bytes(part(span, 1)),
            table_bytes(part(span, 2)),
            Carver::bytes_for::<ZoneSegment<'_>>(ZONES.len() as u64),
            Carver::bytes_for::<Zones>(1),
            Carver::bytes_for::<Pinned<'_>>(1),
            Carver::bytes_for::<Entry>(Pinned::entries_for(ranges) as u64),
        ])
    }

    /// An allocator of one node for memory that comes range by range. All frames of `span` are
    /// absent; [`Frames::add`] and [`Frames::adopt`] make them memory, before and after the first
    /// allocation. Zones are those of [`LayoutPolicy::DEFAULT`].
    ///
    /// The tables lie in `memory`, at least [`Frames::bytes_for`] bytes, none of which need be
    /// initialised; what is not needed for tables makes space for more absent ranges. It may lie
    /// in `span` itself, in a part that is never added.
    ///
    /// ```
    /// use core::mem::MaybeUninit;
    /// use firstlight_frames::addr::{FrameRange, Order, PhysRange};
    /// use firstlight_frames::frames::{Frames, HotplugError, Refusal, Request};
    ///
    /// let span = FrameRange::new(0, 1 << 18).unwrap(); // the first GiB
    /// let bytes = Frames::bytes_for(span, 8).unwrap();
    /// let mut memory = vec![MaybeUninit::uninit(); bytes as usize];
    /// let frames = Frames::over(span, &mut memory)?;
    /// assert!(frames.allocate(Request::new(Order::PAGE)).is_err());
    ///
    /// let range = PhysRange::with_size(256 << 20, 64 << 20).unwrap();
    /// frames.add(range)?;
    /// assert!(matches!(frames.add(range), Err(HotplugError { why: Refusal::Present, .. })));
    /// let page = frames.allocate(Request::new(Order::PAGE))?;
    /// frames.free(page, Order::PAGE)?;
    ///
    /// // The page tables the kernel booted with: in use, and freed later.
    /// let tables = PhysRange::with_size(1 << 20, 8 << 12).unwrap();
    /// assert!(frames.free_frames(tables.inner_frames()).is_err());
    /// frames.adopt(tables)?;
    /// frames.free_frames(tables.inner_frames())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError::NoMemory`] if `span` is empty, [`BuildError::TooLarge`],
    /// [`BuildError::TooSmall`].
    pub fn over(span: FrameRange, memory: &'m mut [MaybeUninit<u8>]) -> Result<Self, BuildError> {
        if span.is_empty() {
            return Err(BuildError::NoMemory);
        }
        let needed = Self::bytes_for(span, 1);
        let needed_bytes = needed.ok_or(BuildError::TooLarge {
            segments: ZONES.len(),
            nodes: 1,
        })?;
        let bytes = memory.len() as u64;
        let too_small = BuildError::TooSmall {
            needed_bytes,
            bytes,
        };
        let spare = bytes.checked_sub(needed_bytes).ok_or(too_small)?;
        let ranges = 1 + spare / size_of::<Entry>() as u64;
        Self::carved(span, ranges, Carver::over(memory)).ok_or(too_small)
    }

    fn carved(span: FrameRange, ranges: u64, mut carver: Carver<'m>) -> Option<Self> {
        let ranges = usize::try_from(ranges).ok()?;
        let pinned = Pinned::of(
            Table::<Entry>::carve(&mut carver, Pinned::entries_for(ranges))?,
            span,
        )?;
        let mut pinned = Some(pinned);
        let pinned: &'m Pinned<'m> = &carver.slice(1, |_| pinned.take())?[0];
        let tables = parts(span).map(|part| table_bytes(part.frames));
        let tables = tables.sum::<Option<u64>>()?;
        let mut tables = carver.piece(usize::try_from(tables).ok()?)?;
        let mut left = parts(span);
        let all = carver.slice(parts(span).count(), |_| {
            left.next()?.segment(&mut tables, &[], pinned)
        })?;
        let zones = carver.slice(1, |_| Some(Zones::default()))?;
        let metadata = Metadata {
            reserved_bytes: Self::bytes_for(span, ranges)?,
            ..Metadata::default()
        };
        let segments = Segments::new(all, zones);
        Some(Self::of_segments(
            Layout::none(),
            segments,
            pinned,
            metadata,
        ))
    }
}
