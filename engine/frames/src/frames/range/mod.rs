//! Any number of frames: ranges by address ([`allocate`], [`free`]) and ranges anywhere
//! ([`contiguous`]), which may have to be zero ([`zeroed`]).
//!
//! *A given range is allocated or freed as a whole, or not at all*, unless another CPU frees a part
//! of it at the same moment.
//!
//! Up to a huge frame, frames anywhere are the start of a block ([`cut`]): a search is for what no
//! block serves. Of one huge frame they are freed in one step, as a block is.
//!
//! A range is allocated and freed by the largest aligned blocks it consists of, in ascending
//! order. A call that meets a block in use frees the blocks it has; it is counted in
//! `range_calls`, so that a search does not report frames held for that moment as exhausted.

pub(crate) mod contiguous;
pub(crate) mod cut;
pub(crate) mod zeroed;

use super::error::RangeError;
use super::search::probe::{first_free, first_used};
use super::segment::Segment;
use super::segment::give::{Refused, Why};
use super::word::geometry::{Block, blocks, is_in_one_huge};
use super::word::{Content, Mobility};
use super::zone::segment::ZoneSegment;
use super::zone::{Nodes, Segments};
use crate::addr::{Frame, FrameRange, Order};

/// The segments `range` lies in, each with what of the range is in it, ascending; the last is
/// the first frame that is not memory, if there is one.
fn parts<'s, 'm>(
    segments: &'s Segments<'m>,
    range: FrameRange,
) -> impl Iterator<Item = Result<(&'s ZoneSegment<'m>, &'s Segment<'m>, FrameRange), Frame>> {
    let mut left = range;
    core::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let start = left.start();
        let part = segments.next_part(&mut left);
        let part = part.and_then(|(segment, part)| Some((segment, segment.online()?, part)));
        if part.is_none() {
            left = FrameRange::EMPTY;
        }
        Some(part.ok_or(start))
    })
}

/// The blocks `range` is made of, each with its segment.
fn pieces<'s, 'm>(
    segments: &'s Segments<'m>,
    range: FrameRange,
) -> impl Iterator<Item = (&'s ZoneSegment<'m>, &'s Segment<'m>, Block)> {
    let parts = parts(segments, range).flatten();
    parts
        .flat_map(|(segment, online, part)| blocks(part).map(move |block| (segment, online, block)))
}

fn must_be_memory(segments: &Segments<'_>, range: FrameRange) -> Result<(), RangeError> {
    match parts(segments, range).find_map(Result::err) {
        None => Ok(()),
        Some(frame) => Err(RangeError::OutsideMemory { range, frame }),
    }
}

/// All frames of `range`, or none of them.
pub(crate) fn allocate(segments: &Segments<'_>, range: FrameRange) -> Result<(), RangeError> {
    // Check first, so that a range in use is not touched.
    must_be_memory(segments, range)?;
    let mut parts = parts(segments, range).flatten();
    if let Some(frame) = parts.find_map(|(_, online, part)| first_used(online, part)) {
        return Err(RangeError::InUse { range, frame });
    }
    take(segments, range, Mobility::Unmovable).map_err(|frame| RangeError::InUse { range, frame })
}

/// Takes all of `range`, which is memory and was seen free; or nothing: the error is the first
/// frame of the block that was not free.
pub(crate) fn take(
    segments: &Segments<'_>,
    range: FrameRange,
    mobility: Mobility,
) -> Result<(), Frame> {
    let mut call = segments.range_calls.begin();
    let mut all = pieces(segments, range);
    let failed = all.find(|(_, online, block)| online.take_at(*block, mobility).is_err());
    let Some((_, _, failed)) = failed else {
        return Ok(());
    };
    let mine = pieces(segments, range).take_while(|(_, _, taken)| taken.start < failed.start);
    for (_, online, taken) in mine {
        // An error: another call freed a block that was not its own.
        let _ = online.give(taken);
    }
    call.undo();
    Err(failed.start)
}

/// Frees all of `range`, all of which must be allocated.
pub(crate) fn free(nodes: &Nodes<'_>, range: FrameRange) -> Result<(), RangeError> {
    // What is wrong with a part that is refused, the checks below say.
    if is_part(range) && nodes.free_part(range) {
        return Ok(());
    }
    free_with(nodes, range, Content::Unknown)
}

/// Whether `range` is a block, or frames of one huge frame.
fn is_part(range: FrameRange) -> bool {
    let is_block = || {
        let order = Order::of_block(range.count());
        order.is_some_and(|order| range.start().is_aligned(order))
    };
    !range.is_empty() && (is_in_one_huge(range) || is_block())
}

/// Frees all of `range`, which holds this.
pub(crate) fn free_with(
    nodes: &Nodes<'_>,
    range: FrameRange,
    content: Content,
) -> Result<(), RangeError> {
    let count = |segment: &ZoneSegment<'_>, frames: u64| {
        if content == Content::Zero {
            segment.add_made(frames);
        }
        if nodes.segments.zones.has_marks() {
            nodes.count_zone(segment.node(), segment.zone(), frames.cast_signed());
        }
    };
    give_with(&nodes.segments, range, content, count)
}

/// Whether all of `range` is allocated, as far as the tables say.
pub(crate) fn check_free(segments: &Segments<'_>, range: FrameRange) -> Result<(), RangeError> {
    must_be_memory(segments, range)?;
    for (_, online, part) in parts(segments, range).flatten() {
        if let Some(frame) = online.first_pinned(part) {
            return Err(RangeError::Reserved { range, frame });
        }
        if let Some(frame) = first_free(online, part) {
            return Err(RangeError::NotAllocated { range, frame });
        }
    }
    Ok(())
}

/// Gives back all of `range`; `count` is called with each segment and how many of its frames were freed.
#[cfg(test)]
pub(crate) fn give(
    segments: &Segments<'_>,
    range: FrameRange,
    count: impl Fn(&ZoneSegment<'_>, u64),
) -> Result<(), RangeError> {
    give_with(segments, range, Content::Unknown, count)
}

fn give_with(
    segments: &Segments<'_>,
    range: FrameRange,
    content: Content,
    count: impl Fn(&ZoneSegment<'_>, u64),
) -> Result<(), RangeError> {
    // Check first, so that an error leaves everything unchanged.
    check_free(segments, range)?;
    for (segment, online, block) in pieces(segments, range) {
        let freed = if content.is_known() {
            online.give_with(block, content)
        } else {
            online.give(block)
        };
        let frames = match freed {
            Ok(()) => block.frames(),
            Err(Refused { given_frames, .. }) => given_frames,
        };
        count(segment, frames);
        freed.map_err(|Refused { why, .. }| {
            let frame = block.start;
            match why {
                Why::NotAllocated => RangeError::NotAllocated { range, frame },
                Why::Reserved => RangeError::Reserved { range, frame },
            }
        })?;
    }
    Ok(())
}
