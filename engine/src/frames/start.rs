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

use core::iter::Peekable;

use super::geometry::{HUGE_FRAMES, HUGES};
use super::segment::Segment;
use super::word::{Giant, Huge};
use crate::addr::FrameRange;

/// What starting a segment wrote and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Started {
    /// Bytes of tables written.
    pub(crate) written_bytes: u64,
    /// Frames that can be allocated.
    pub(crate) free_frames: u64,
}

impl Started {
    fn add(&mut self, written_bytes: u64, free_frames: u64) {
        self.written_bytes += written_bytes;
        self.free_frames += free_frames;
    }
}

/// Writes the tables of `segment`. `reserved` yields ranges in ascending order,
/// those before the segment may still be in it; what reaches beyond the
/// segment stays in it.
pub(crate) fn start<I: Iterator<Item = FrameRange>>(
    segment: &Segment<'_>,
    reserved: &mut Peekable<I>,
) -> Started {
    let mut started = Started::default();
    for giant in 0..segment.giant_count() {
        let frames = segment.giant_frames(giant);
        let overlap = next_overlap(reserved, frames.intersect(segment.frames));
        let word = if !segment.has_all_of_giant(giant) {
            start_mixed(segment, giant, reserved, &mut started)
        } else if overlap.is_empty() {
            started.add(0, frames.count());
            Giant::WHOLE
        } else if overlap == frames {
            Giant::ALLOCATED
        } else {
            start_mixed(segment, giant, reserved, &mut started)
        };
        segment.publish_giant(giant, word);
        started.add(size_of::<u64>() as u64, 0);
    }
    started
}

/// The part of the next reserved range that lies in `frames`; empty if none does.
fn next_overlap<I: Iterator<Item = FrameRange>>(
    reserved: &mut Peekable<I>,
    frames: FrameRange,
) -> FrameRange {
    while reserved
        .next_if(|range| range.end() <= frames.start())
        .is_some()
    {}
    reserved.peek().map_or(FrameRange::EMPTY, |range| {
        let overlap = range.intersect(frames);
        if overlap.is_empty() {
            FrameRange::EMPTY
        } else {
            overlap
        }
    })
}

/// Writes the level below a giant frame that is neither all free nor all reserved.
fn start_mixed<I: Iterator<Item = FrameRange>>(
    segment: &Segment<'_>,
    giant: usize,
    reserved: &mut Peekable<I>,
    started: &mut Started,
) -> Giant {
    let (mut free, mut partial) = (0, 0);
    for huge in segment.huges_in(giant) {
        let all = segment.huge_frames(huge);
        let inside = all.intersect(segment.frames);
        let overlap = next_overlap(reserved, inside);
        let word = if inside == all && overlap.is_empty() {
            started.add(0, u64::from(HUGE_FRAMES));
            Huge::FREE
        } else if overlap == all {
            Huge::ALLOCATED
        } else {
            let count = start_row(segment, huge, reserved);
            started.add(size_of_row(), u64::from(count));
            Huge::split(count)
        };
        segment.publish_huge(huge, word);
        started.add(size_of::<u32>() as u64, 0);
        free += u32::from(word == Huge::FREE);
        partial += u32::from(word.is_partial());
    }
    debug_assert!(free <= HUGES);
    Giant::split(free, partial)
}

/// Writes the bitmap of a huge frame and says how many of its pages are free.
fn start_row<I: Iterator<Item = FrameRange>>(
    segment: &Segment<'_>,
    huge: usize,
    reserved: &mut Peekable<I>,
) -> u32 {
    let all = segment.huge_frames(huge);
    let inside = all.intersect(segment.frames);
    let place = |part: FrameRange| {
        // Both fit: positions and lengths within one huge frame.
        (
            (part.start().get() - all.start().get()) as u32,
            part.count() as u32,
        )
    };
    let row = segment.row(huge);
    let (at, count) = place(inside);
    row.fill(true, at, count);
    loop {
        let overlap = next_overlap(reserved, inside);
        if overlap.is_empty() {
            break;
        }
        let (at, count) = place(overlap);
        row.paint(true, at, count);
        // A range that reaches beyond stays for the next huge frame.
        if reserved
            .next_if(|range| range.end() <= inside.end())
            .is_none()
        {
            break;
        }
    }
    row.count_free()
}

const fn size_of_row() -> u64 {
    size_of::<super::row::Row>() as u64
}
