//! Given ranges of any length: [`Frames::claim_range`], [`Frames::free_range`].
//!
//! A range is taken and given back by the largest aligned blocks it is made
//! of, in ascending order. Who takes a range counts itself in [`RangeCalls`]
//! first: if it meets a block that is in use it gives back what it has, and a
//! search that saw those frames used must not believe it.

use super::Frames;
use super::directory::Directory;
use super::geometry::{Block, GIANT_ORDER};
use super::range_error::RangeError;
use super::request::Mobility;
use super::segment::Segment;
use crate::addr::{Frame, FrameRange};
use crate::sync::{AtomicU64, Ordering, fence};

/// How many calls are taking a range just now (low half), and how often one
/// gave back what it had taken (high half).
#[derive(Debug)]
pub(crate) struct RangeCalls(AtomicU64);

/// One call in flight.
const CALL: u64 = 1;
/// One call that gave back what it had taken.
const UNDONE: u64 = 1 << 32;

/// What [`RangeCalls`] said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallsSeen(u64);

impl CallsSeen {
    /// Whether nobody was taking a range.
    pub(crate) const fn is_quiet(self) -> bool {
        self.0.is_multiple_of(UNDONE)
    }
}

impl RangeCalls {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn begin(&self) {
        self.0.fetch_add(CALL, Ordering::Relaxed);
        // Pairs with the fence in `seen`: who saw a frame that is taken from
        // here on sees this call too.
        fence(Ordering::Release);
    }

    /// Ends a call; `undone` if it gave back what it had taken.
    fn end(&self, undone: bool) {
        // Wraps after 2^32 calls that were undone during one look.
        let change = if undone { UNDONE } else { 0 };
        self.0
            .fetch_add(change.wrapping_sub(CALL), Ordering::Release);
    }

    /// To be compared with what is seen after a look: equal and quiet means
    /// that nothing it saw used was given back by such a call.
    pub(crate) fn seen(&self) -> CallsSeen {
        fence(Ordering::Acquire);
        CallsSeen(self.0.load(Ordering::Acquire))
    }
}

/// The largest aligned blocks that `range` is made of, ascending.
pub(crate) fn blocks(range: FrameRange) -> impl Iterator<Item = Block> + Clone {
    let end = range.end().get();
    let mut at = range.start().get();
    core::iter::from_fn(move || {
        let left = end - at;
        // Both are at most 64, and what is left is not 0 where it counts.
        let fits = u8::try_from(left.checked_ilog2()?).unwrap_or(GIANT_ORDER);
        let aligned = u8::try_from(at.trailing_zeros()).unwrap_or(GIANT_ORDER);
        let block = Block {
            start: Frame::new(at),
            order: fits.min(aligned).min(GIANT_ORDER),
        };
        at += block.frames();
        Some(block)
    })
}

impl<'m> Directory<'m> {
    /// The segments `range` lies in, each with what of the range is in it,
    /// ascending; the last is the first frame that is not memory, if there is one.
    fn parts(
        &self,
        range: FrameRange,
    ) -> impl Iterator<Item = Result<(&Segment<'m>, FrameRange), Frame>> {
        let mut left = range;
        core::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let start = left.start();
            let Some(segment) = self.segment_at(start) else {
                left = FrameRange::EMPTY;
                return Some(Err(start));
            };
            let part = left.intersect(segment.frames);
            left = FrameRange::new(part.end().get(), left.end().get()).unwrap_or_default();
            Some(Ok((segment, part)))
        })
    }

    /// All frames of `range`, or none of them.
    pub(crate) fn claim_range(&self, range: FrameRange) -> Result<(), RangeError> {
        // Look first, so that what nobody can get is not touched.
        self.must_be_memory(range)?;
        let used = |(segment, part): (&Segment<'_>, _)| segment.first_used(part);
        if let Some(frame) = self.parts(range).flatten().find_map(used) {
            return Err(RangeError::InUse { range, frame });
        }
        self.claim_seen(range, Mobility::Unmovable)
            .map_err(|frame| RangeError::InUse { range, frame })
    }

    /// Takes all of `range`, which is memory and was seen free; or nothing, and
    /// the first frame of the block that was not free.
    pub(crate) fn claim_seen(&self, range: FrameRange, mobility: Mobility) -> Result<(), Frame> {
        self.range_calls.begin();
        let mut pieces = self.pieces(range);
        let failed = pieces.find(|(segment, block)| segment.claim_for(*block, mobility).is_err());
        let Some((_, block)) = failed else {
            self.range_calls.end(false);
            return Ok(());
        };
        let mine = self.pieces(range);
        for (segment, taken) in mine.take_while(|(_, taken)| taken.start < block.start) {
            // Fails only where somebody freed what was not his: then it is not ours to free.
            let _ = segment.free(taken);
        }
        self.range_calls.end(true);
        Err(block.start)
    }

    /// Gives back all of `range`, all of which must be allocated.
    pub(crate) fn free_range(&self, range: FrameRange) -> Result<(), RangeError> {
        // Look first, so that an error leaves everything as it was.
        self.must_be_memory(range)?;
        let free = |(segment, part): (&Segment<'_>, _)| segment.first_free(part);
        if let Some(frame) = self.parts(range).flatten().find_map(free) {
            return Err(RangeError::NotAllocated { range, frame });
        }
        let mut pieces = self.pieces(range);
        match pieces.find(|(segment, block)| segment.free(*block).is_err()) {
            None => Ok(()),
            Some((_, block)) => Err(RangeError::NotAllocated {
                range,
                frame: block.start,
            }),
        }
    }

    /// The blocks `range` is made of, each with its segment.
    fn pieces(&self, range: FrameRange) -> impl Iterator<Item = (&Segment<'m>, Block)> {
        self.parts(range)
            .flatten()
            .flat_map(|(segment, part)| blocks(part).map(move |block| (segment, block)))
    }

    fn must_be_memory(&self, range: FrameRange) -> Result<(), RangeError> {
        match self.parts(range).find_map(Result::err) {
            None => Ok(()),
            Some(frame) => Err(RangeError::OutsideMemory { range, frame }),
        }
    }
}

impl Frames<'_> {
    /// Takes exactly the frames of `range`, all of them or none: any start and
    /// any length, also across the borders of zones and nodes, as long as all
    /// of it is memory.
    ///
    /// Costs a look at the words of the range (one a giant frame where it is
    /// free as a whole) and a claim for each of the largest aligned blocks it is
    /// made of: one a giant frame and at most 34 at its two ends.
    ///
    /// ```
    /// use firstlight::addr::FrameRange;
    /// use firstlight::frames::{Frames, RangeError};
    ///
    /// /// Takes what a device was found to write to; `false` if somebody has some of it.
    /// fn keep_out(frames: &Frames<'_>, range: FrameRange) -> Result<bool, RangeError> {
    ///     match frames.claim_range(range) {
    ///         Ok(()) => Ok(true),
    ///         Err(RangeError::InUse { .. }) => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    ///
    /// Frames in the magazines of CPUs are in use; if some of the range is, the
    /// other CPUs are asked to give back what they hold, and it is tried once
    /// more. A caller with a [`Cpu`](super::Cpu) of its own drains that first.
    ///
    /// # Errors
    /// [`RangeError::OutsideMemory`] names the first frame that is not memory,
    /// [`RangeError::InUse`] the first that was seen in use. What had been taken
    /// up to there is given back; until then others see it as used.
    pub fn claim_range(&self, range: FrameRange) -> Result<(), RangeError> {
        let mut claimed = self.directory.claim_range(range);
        if matches!(claimed, Err(RangeError::InUse { .. })) && !self.cpus.slots.is_empty() {
            // Also if nobody holds anything: it may have come back since the first look.
            self.cpus.ask();
            claimed = self.directory.claim_range(range);
        }
        claimed?;
        self.count_range(range, -1);
        Ok(())
    }

    /// Gives back all frames of `range`, however they were allocated: the
    /// opposite of [`Frames::claim_range`] and [`Frames::allocate_contiguous`].
    ///
    /// # Errors
    /// [`RangeError::OutsideMemory`] and [`RangeError::NotAllocated`] name the
    /// first frame that is at fault; nothing is changed then, unless another CPU
    /// frees some of it at the same moment.
    pub fn free_range(&self, range: FrameRange) -> Result<(), RangeError> {
        self.directory.free_range(range)?;
        self.count_range(range, 1);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_range_is_made_of_the_largest_aligned_blocks() {
        let of = |start, end| {
            blocks(FrameRange::new(start, end).unwrap())
                .map(|block| (block.start.get(), block.order))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(5, 5), []);
        assert_eq!(of(0, 7), [(0, 2), (4, 1), (6, 0)]);
        assert_eq!(of(3, 13), [(3, 0), (4, 2), (8, 2), (12, 0)]);
        assert_eq!(of(0, 3 << 18), [(0, 18), (1 << 18, 18), (2 << 18, 18)]);
        assert_eq!(of(u64::MAX - 1, u64::MAX), [(u64::MAX - 1, 0)]);
        let most = blocks(FrameRange::new(1, (3 << 18) - 1).unwrap()).count();
        assert_eq!(most, 18 + 1 + 18);
    }

    #[test]
    fn an_undone_call_is_seen_afterwards() {
        let calls = RangeCalls::new();
        let before = calls.seen();
        assert!(before.is_quiet());
        calls.begin();
        assert!(!calls.seen().is_quiet());
        calls.end(false);
        assert_eq!(calls.seen(), before);
        calls.begin();
        calls.end(true);
        assert!(calls.seen().is_quiet());
        assert_ne!(calls.seen(), before);
    }
}
