//! Memory that comes range by range: [`Frames::over`], [`Frames::add`], [`Frames::adopt`].
//!
//! *A frame is absent until it is added, which makes it free, or adopted, which makes it
//! allocated.* Absent frames are pinned: every table says that they are allocated, and the list
//! of [`Pinned`] that they can't be freed. So adding is taking them off that list, and freeing
//! them as any call does.

use core::fmt;
use core::mem::MaybeUninit;

use super::build::{SegmentSpan, sum, table_bytes};
use super::error::BuildError;
use super::find::Frames;
use super::metadata::Metadata;
use super::range;
use super::segment::pinned::{Entry, Pinned, Unpin};
use super::segment::table::Carver;
use super::word::Content;
use super::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use super::zone::segment::ZoneSegment;
use super::zone::{Heads, Segments};
use crate::addr::{Frame, FrameRange, PAGE_BYTES, PhysRange};
use crate::layout::{Layout, LayoutPolicy};
use crate::node::{NodeId, ZoneKind};
use crate::sync::Ordering;
#[cfg(feature = "hotplug")]
use crate::sync::fence;

/// Memory can't be added or adopted. Nothing changed, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// It does not begin and end where pages do, or is empty.
    Misaligned {
        /// The range.
        range: PhysRange,
    },
    /// Not all of it lies where memory may come: in the span of [`Frames::over`], or in a window
    /// of the layout.
    OutsideSpan {
        /// The range.
        range: PhysRange,
        /// Its first frame that does not.
        frame: Frame,
    },
    /// Some of it is there already, or offline.
    Present {
        /// The range.
        range: PhysRange,
        /// Its first frame that is.
        frame: Frame,
    },
    /// The list of what is absent is full: it needs space for one range more.
    ListFull {
        /// The range.
        range: PhysRange,
        /// Ranges it has space for.
        capacity: usize,
    },
    /// Another call freed some of it, which was not there, at the same moment; the rest is
    /// adopted.
    FreedMeanwhile {
        /// The range.
        range: PhysRange,
        /// The first frame that was.
        frame: Frame,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { range } => write!(
                f,
                "{range} can't be added or adopted: expected one page or more, and multiples of {PAGE_BYTES} bytes"
            ),
            Self::OutsideSpan { range, frame } => write!(
                f,
                "{range} can't be added or adopted: {frame} is outside of where memory may come"
            ),
            Self::Present { range, frame } => {
                write!(
                    f,
                    "{range} can't be added or adopted: {frame} is memory already"
                )
            }
            Self::ListFull { range, capacity } => write!(
                f,
                "{range} can't be added or adopted: the list of absent ranges has space for {capacity}, and needs {}",
                capacity + 1
            ),
            Self::FreedMeanwhile { range, frame } => write!(
                f,
                "{range} was added, but {frame} was freed at that moment, before it was memory"
            ),
        }
    }
}

impl core::error::Error for AddError {}

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
    /// use firstlight::addr::FrameRange;
    /// use firstlight::frames::Frames;
    ///
    /// // 64 GiB: 66 bytes a MiB, none of them written before the memory is used.
    /// const SPAN: FrameRange = FrameRange::new(0, 64 << 18).unwrap();
    /// const BYTES: u64 = Frames::bytes_for(SPAN, 64).unwrap();
    /// assert_eq!(BYTES >> 20, 4);
    /// ```
    pub const fn bytes_for(span: FrameRange, ranges: usize) -> Option<u64> {
        let ranges = if ranges == 0 { 1 } else { ranges };
        sum([
            table_bytes(part(span, 0)),
            table_bytes(part(span, 1)),
            table_bytes(part(span, 2)),
            Carver::bytes_for::<ZoneSegment<'_>>(ZONES.len() as u64),
            Carver::bytes_for::<Heads>(1),
            Carver::bytes_for::<Pinned<'_>>(1),
            Carver::bytes_for::<Entry>(ranges as u64),
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
    /// use firstlight::addr::{FrameRange, Order, PhysRange};
    /// use firstlight::frames::{AddError, Frames, Request};
    ///
    /// let span = FrameRange::new(0, 1 << 18).unwrap(); // the first GiB
    /// let bytes = Frames::bytes_for(span, 8).unwrap();
    /// let mut memory = vec![MaybeUninit::uninit(); bytes as usize];
    /// let frames = Frames::over(span, &mut memory)?;
    /// assert!(frames.allocate(Request::new(Order::PAGE)).is_err());
    ///
    /// let range = PhysRange::with_size(256 << 20, 64 << 20).unwrap();
    /// frames.add(range)?;
    /// assert!(matches!(frames.add(range), Err(AddError::Present { .. })));
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
        let pinned = Pinned::new(carver.table::<Entry>(ranges)?);
        if !pinned.pin(span) {
            return None;
        }
        let mut pinned = Some(pinned);
        let pinned: &'m Pinned<'m> = &carver.slice(1, |_| pinned.take())?[0];
        let tables = parts(span).map(|part| table_bytes(part.frames));
        let tables = tables.sum::<Option<u64>>()?;
        let mut tables = carver.piece(usize::try_from(tables).ok()?)?;
        let mut left = parts(span);
        let all = carver.slice(parts(span).count(), |_| {
            left.next()?.segment(&mut tables, &[], pinned)
        })?;
        let heads = carver.slice(1, |_| Some(Heads::default()))?;
        let metadata = Metadata {
            reserved_bytes: Self::bytes_for(span, ranges)?,
            ..Metadata::default()
        };
        let segments = Segments::new(all, heads);
        Some(Self::of_segments(
            Layout::none(),
            segments,
            pinned,
            metadata,
        ))
    }

    /// Memory that came: all of `range` is free from now on. Any CPU, at any time, with interrupts
    /// off where handlers free.
    ///
    /// Nothing else may use it: what of it is in use is adopted, or never added. What a layout has
    /// reserved for ever is memory already, and refused.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(&self, range: PhysRange) -> Result<(), AddError> {
        self.add_with(range, Content::Unknown)
    }

    /// The same, for memory that is known to hold zeros: that of a virtual machine that was never
    /// touched.
    ///
    /// # Errors
    /// As [`Frames::add`].
    pub fn add_with(&self, range: PhysRange, content: Content) -> Result<(), AddError> {
        let frames = self.unpin(range, ZoneSegment::is_memory_from_start)?;
        let mut left = frames;
        let (mut freed, mut news) = (Ok(()), frames.count());
        while let Some((segment, part)) = self.next_part(&mut left) {
            if segment.come(part, content) {
                self.nodes.count(segment, part.count().cast_signed());
                news += u64::from(HUGE_FRAMES);
            } else {
                freed = freed.and(range::free_with(&self.nodes, part, content));
            }
        }
        // Release: pairs with `Nodes::added_huges`.
        let before = self.nodes.added.fetch_add(news, Ordering::Release);
        if before >> HUGE_ORDER != (before + news) >> HUGE_ORDER {
            self.drain_at_next_call();
        }
        freed.map_err(|error| AddError::FreedMeanwhile {
            range,
            frame: error.frame().unwrap_or(frames.start()),
        })
    }

    /// Memory that is in use by what ran before the allocator: all of `range` is allocated from now
    /// on, so that it can be freed, whole or in parts. Also for frames that a layout has reserved
    /// for ever. Any CPU, at any time.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn adopt(&self, range: PhysRange) -> Result<(), AddError> {
        let frames = self.unpin(range, |_| false)?;
        let mut left = frames;
        while let Some((segment, _)) = self.next_part(&mut left) {
            if segment.come(FrameRange::EMPTY, Content::Unknown) {
                // What is added next is looked for at once. Release, as in `add`.
                let news = u64::from(HUGE_FRAMES);
                self.nodes.added.fetch_add(news, Ordering::Release);
            }
        }
        // As allocated as if it had been free: a CPU may cache it, once it is freed.
        self.nodes.prepare_range(frames);
        Ok(())
    }

    /// The part of `left` in its first segment, which is taken off it.
    pub(super) fn next_part(
        &self,
        left: &mut FrameRange,
    ) -> Option<(&ZoneSegment<'m>, FrameRange)> {
        if left.is_empty() {
            return None;
        }
        let segment = self.nodes.segments.present_or_not(left.start())?;
        let part = left.intersect(segment.frames());
        *left = FrameRange::new(part.end().get(), left.end().get()).unwrap_or_default();
        Some((segment, part))
    }

    /// Takes `range`, all of which is absent or reserved, off the list of what can't be freed, unless
    /// some of it lies in a segment that is `refused`.
    fn unpin(
        &self,
        range: PhysRange,
        refused: impl Fn(&ZoneSegment<'m>) -> bool,
    ) -> Result<FrameRange, AddError> {
        let frames = range.inner_frames();
        if frames.is_empty() || frames.checked_bytes() != Some(range) {
            return Err(AddError::Misaligned { range });
        }
        let mut left = frames;
        while let Some((segment, part)) = self.next_part(&mut left) {
            if refused(segment) {
                let frame = part.start();
                return Err(AddError::Present { range, frame });
            }
        }
        if !left.is_empty() {
            let frame = left.start();
            return Err(AddError::OutsideSpan { range, frame });
        }
        #[cfg(feature = "hotplug")]
        if let Some(frame) = self.first_offline(frames) {
            return Err(AddError::Present { range, frame });
        }
        self.nodes.pinned.unpin(frames).map_err(|why| match why {
            Unpin::NotPinned(frame) => AddError::Present { range, frame },
            Unpin::Full => AddError::ListFull {
                range,
                capacity: self.nodes.pinned.capacity(),
            },
        })?;
        #[cfg(feature = "hotplug")]
        {
            // Pairs with the fence in `close_absent`.
            fence(Ordering::SeqCst);
            // It went offline since the look above: there is space for it, which this call made.
            if let Some(frame) = self.first_offline(frames)
                && self.nodes.pinned.pin(frames)
            {
                return Err(AddError::Present { range, frame });
            }
        }
        Ok(frames)
    }
}
