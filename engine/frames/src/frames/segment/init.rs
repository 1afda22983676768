//! The first writing of a segment's tables: only where something is not whole.
//!
//! A giant frame that is entirely free or entirely reserved costs its one
//! word. Only those in which memory or a reserved range begins or ends get
//! their table of huge frames, and only huge frames of the same kind get their
//! bitmap. The cost follows the number of ranges, not the amount of memory.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::initial_zeros::InitialZeros;
use super::{HugeIndex, Segment};
use crate::addr::{Frame, FrameRange};
use crate::frames::segment::statistics::Statistics;
use crate::frames::word::geometry::{
    GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, HUGES, Pages, blocks,
};
use crate::frames::word::{Bitmap, Content, Giant, Huge, Mobility};

/// Ranges by ascending start that are looked at once, each for as long as it
/// reaches into what is being written.
#[derive(Debug)]
pub(crate) struct RangeCursor<'r> {
    ranges: &'r [FrameRange],
    /// The range at hand; past every frame when there is none left.
    next: FrameRange,
}

impl<'r> RangeCursor<'r> {
    pub(crate) const fn new(ranges: &'r [FrameRange]) -> Self {
        Self {
            ranges,
            next: FrameRange::EMPTY,
        }
    }

    /// Drops the ranges that end at or before `frame`; the first that does not
    /// is the next one.
    #[inline]
    fn skip_to(&mut self, frame: Frame) {
        while self.next.end() <= frame {
            let (next, rest) = match self.ranges {
                [next, rest @ ..] => (*next, rest),
                [] => (Self::FAR, [].as_slice()),
            };
            (self.next, self.ranges) = (next, rest);
        }
    }

    /// Above every frame there can be.
    const FAR: FrameRange = match FrameRange::new(u64::MAX, u64::MAX) {
        Some(range) => range,
        None => FrameRange::EMPTY,
    };

    /// How many whole units of `unit` frames, from `frame` on and before
    /// `end`, are free.
    #[inline]
    fn free_units(&mut self, frame: Frame, end: Frame, unit: u64) -> u64 {
        self.skip_to(frame);
        self.next.start().min(end).get().saturating_sub(frame.get()) / unit
    }

    /// How many whole units of `unit` frames, from `frame` on and before
    /// `end`, are reserved by one range.
    #[inline]
    fn reserved_units(&mut self, frame: Frame, end: Frame, unit: u64) -> u64 {
        self.skip_to(frame);
        if self.next.start() > frame {
            return 0;
        }
        self.next.end().min(end).get().saturating_sub(frame.get()) / unit
    }

    /// What `frames` shares with the first range that reaches into it.
    fn overlap(&mut self, frames: FrameRange) -> FrameRange {
        self.skip_to(frames.start());
        self.next.intersect(frames)
    }
}

/// What of `frames` is free once its tables are written.
pub(crate) fn statistics(
    frames: FrameRange,
    reserved: &mut RangeCursor<'_>,
    zeros: InitialZeros<'_>,
) -> Statistics {
    let mut sum = Statistics::default();
    // Huge frame that was counted as partial last, 1 above its number.
    let mut last_partial = 0;
    let mut left = frames;
    while !left.is_empty() {
        let overlap = reserved.overlap(left);
        let end = if overlap.is_empty() {
            left.end()
        } else {
            overlap.start()
        };
        let free = FrameRange::new(left.start().get(), end.get()).unwrap_or_default();
        sum.free_frames += free.count();
        sum.free_giants += whole_units(free, GIANT_ORDER);
        sum.free_huges += whole_units(free, HUGE_ORDER);
        for block in blocks(free).filter(|block| block.order < HUGE_ORDER) {
            let huge = (block.start.get() >> HUGE_ORDER) + 1;
            sum.partial_huges += u64::from(huge != last_partial);
            last_partial = huge;
        }
        for zero in zeros.inside(free) {
            sum.zero.giants += whole_units(zero, GIANT_ORDER);
            sum.add_huges(Content::Zero, whole_units(zero, HUGE_ORDER));
        }
        let next = overlap.end().max(end);
        left = FrameRange::new(next.get(), frames.end().get()).unwrap_or_default();
    }
    sum
}

/// How many units of 2^`order` frames lie in `frames` as a whole.
fn whole_units(frames: FrameRange, order: u8) -> u64 {
    let first = frames.start().get().div_ceil(1 << order);
    (frames.end().get() >> order).saturating_sub(first)
}

/// What was written of a segment's tables.
#[derive(Debug, Default)]
pub(crate) struct Started {
    pub(crate) bytes: u64,
    /// The first huge frame that is partly free.
    pub(crate) first_partial: Option<HugeIndex>,
}

/// Writes the tables of `segment` and says what. `reserved` yields ranges in ascending order,
/// those before the segment may still be in it; what reaches beyond the
/// segment stays in it.
pub(crate) fn start(
    segment: &Segment<'_>,
    reserved: &mut RangeCursor<'_>,
    zeros: InitialZeros<'_>,
) -> Started {
    let has_zeros = zeros.is_in(segment.frames);
    let mut started = Started::default();
    let mut giant = 0;
    while giant < segment.giant_count() {
        let inside = segment.giant_frames(giant).intersect(segment.frames);
        let whole = segment.has_all_of_giant(giant);
        if whole {
            let run = reserved.free_units(inside.start(), segment.frames.end(), GIANT_FRAMES);
            if run > 0 {
                // Of one content, as far as known.
                let content = if !has_zeros {
                    Some(Content::Unknown)
                } else if zeros.covers(inside) {
                    Some(Content::Zero)
                } else {
                    (!zeros.is_in(inside)).then_some(Content::Unknown)
                };
                if let Some(content) = content {
                    let run = if has_zeros { 1 } else { run };
                    let next = giant + run as usize;
                    segment.store_giants(giant..next, Giant::FREE.with_content(content));
                    started.bytes += run * size_of::<u64>() as u64;
                    giant = next;
                    continue;
                }
            }
            let run = reserved.reserved_units(inside.start(), segment.frames.end(), GIANT_FRAMES);
            if run > 0 {
                let next = giant + run as usize;
                segment.store_giants(giant..next, Giant::ALLOCATED);
                started.bytes += run * size_of::<u64>() as u64;
                giant = next;
                continue;
            }
        }
        let word = start_mixed(segment, giant, reserved, zeros, &mut started);
        segment.store_giants(giant..giant + 1, word);
        started.bytes += size_of::<u64>() as u64;
        giant += 1;
    }
    started
}

/// Writes the level below a giant frame that is neither all free nor all reserved, or neither all
/// zero nor all unknown.
fn start_mixed(
    segment: &Segment<'_>,
    giant: usize,
    reserved: &mut RangeCursor<'_>,
    zeros: InitialZeros<'_>,
    started: &mut Started,
) -> Giant {
    let (mut free, mut partial, mut known) = (0, 0, 0);
    let has_zeros = zeros.is_in(segment.giant_frames(giant));
    let end = segment.giant_frames(giant).intersect(segment.frames).end();
    let huges = segment.huges_in(giant);
    let mut huge = huges.start;
    while huge < huges.end {
        let all = segment.huge_frames(huge);
        let inside = all.intersect(segment.frames);
        if inside == all {
            let run = reserved.free_units(all.start(), end, u64::from(HUGE_FRAMES));
            if run > 0 {
                let run = if has_zeros { 1 } else { run };
                let next = huge + run as usize;
                let is_zero = has_zeros && zeros.covers(all);
                let content = [Content::Unknown, Content::Zero][usize::from(is_zero)];
                segment.store_huges(huge..next, Huge::FREE.with_content(content));
                known += u32::from(is_zero);
                started.bytes += run * size_of::<u32>() as u64;
                free += run as u32;
                huge = next;
                continue;
            }
            let run = reserved.reserved_units(all.start(), end, u64::from(HUGE_FRAMES));
            if run > 0 {
                let next = huge + run as usize;
                let frames = run * u64::from(HUGE_FRAMES);
                let run_of = FrameRange::new(all.start().get(), all.start().get() + frames);
                let pinned = segment.is_pinned(run_of.unwrap_or_default());
                let word = Huge::allocated(Mobility::Unmovable).with_pinned(pinned);
                segment.store_huges(huge..next, word);
                started.bytes += run * size_of::<u32>() as u64;
                huge = next;
                continue;
            }
        }
        // What is reserved stays where it is.
        let is_partial = start_bitmap(segment, huge, reserved);
        let pinned = segment.is_pinned(inside);
        let word = Huge::split(Mobility::Unmovable, is_partial).with_pinned(pinned);
        started.bytes += size_of::<Bitmap>() as u64;
        segment.store_huges(huge..huge + 1, word);
        started.bytes += size_of::<u32>() as u64;
        partial += u32::from(is_partial);
        if is_partial {
            started.first_partial.get_or_insert(huge);
        }
        huge += 1;
    }
    debug_assert!(free <= HUGES);
    // One that is all free is one block.
    let split = Giant::split(free, [partial, 0]);
    split.with_known(Content::Zero, known).merged()
}

/// Writes the bitmap of a huge frame and says whether some of its pages are free.
fn start_bitmap(segment: &Segment<'_>, huge: usize, reserved: &mut RangeCursor<'_>) -> bool {
    let all = segment.huge_frames(huge);
    let inside = all.intersect(segment.frames);
    let bitmap = segment.bitmap(huge);
    bitmap.write(false, Pages::of(inside));
    let mut left = inside;
    loop {
        let overlap = reserved.overlap(left);
        if overlap.is_empty() {
            return !bitmap.is_full();
        }
        bitmap.set(Pages::of(overlap));
        left = FrameRange::new(overlap.end().get(), inside.end().get()).unwrap_or_default();
    }
}
