//! What a range of memory is used for: [`Occupancy`].

use core::iter::Sum;
use core::ops::AddAssign;

use super::Segment;
use crate::addr::{Frame, FrameRange};
use crate::frames::word::GiantState;

/// What the frames of a range are used for. Exact whenever no call is in flight; costs one look at each giant
/// frame's word, and at the huge words of those that are split.
///
/// Memory can leave, or become one large block, once what is movable has moved; not as long as some
/// is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Free frames.
    pub free_frames: u64,
    /// Frames in use whose content can be moved: those of huge frames that were taken or split for such,
    /// none of which is reserved for ever. What a CPU caches counts as in use.
    pub movable_frames: u64,
    /// All others: in use for content that stays, in a giant frame that is one block, or reserved.
    pub fixed_frames: u64,
}

impl AddAssign for Occupancy {
    fn add_assign(&mut self, other: Self) {
        self.free_frames += other.free_frames;
        self.movable_frames += other.movable_frames;
        self.fixed_frames += other.fixed_frames;
    }
}

impl Sum for Occupancy {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|one| sum += one);
        sum
    }
}

impl Segment<'_> {
    /// What the huge frames that `range` touches are used for, as far as they lie in the segment.
    pub(crate) fn occupancy(&self, range: FrameRange) -> Occupancy {
        let mut sum = Occupancy::default();
        let range = range.intersect(self.frames);
        if range.is_empty() {
            return sum;
        }
        let last = Frame::new(range.end().get() - 1);
        for giant in self.giant_of(range.start())..=self.giant_of(last) {
            let part = self.giant_frames(giant).intersect(range);
            match self.giant(giant).state {
                GiantState::Free => sum.free_frames += part.count(),
                GiantState::Allocated | GiantState::Opening => sum.fixed_frames += part.count(),
                GiantState::Split => {
                    for huge in self.huges_touched(part) {
                        let all = self.huge_frames(huge).intersect(self.frames).count();
                        let (word, used) = (self.huge(huge), self.in_use(huge));
                        sum.free_frames += all - used;
                        if word.mobility.is_movable() && !word.pinned() {
                            sum.movable_frames += used;
                        } else {
                            sum.fixed_frames += used;
                        }
                    }
                }
            }
        }
        sum
    }
}
