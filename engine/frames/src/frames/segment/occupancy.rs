//! What a range of memory is used for: [`Occupancy`].

use core::iter::Sum;
use core::ops::AddAssign;

use super::{HugeIndex, Segment};
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
    /// Frames in use whose content can be moved: those of huge and giant frames that were taken or
    /// split for such, none of which is reserved for ever. What a CPU caches counts as in use.
    pub movable_frames: u64,
    /// All others in use: for content that stays, or reserved.
    pub fixed_frames: u64,
}

impl AddAssign for Occupancy {
    fn add_assign(&mut self, other: Self) {
        self.free_frames += other.free_frames;
        self.movable_frames += other.movable_frames;
        self.fixed_frames += other.fixed_frames;
    }
}

/// What is pinned of frames in use.
#[derive(Clone, Copy)]
enum Pins {
    /// Nothing.
    None,
    /// Some: reserved for ever.
    Reserved,
    /// So many: absent.
    Absent(u64),
}

impl Occupancy {
    /// Frames in use for content that can be moved or not, with what is pinned of them.
    fn add_used(&mut self, frames: u64, is_movable: bool, pins: Pins) {
        let (used, is_movable) = match pins {
            Pins::None => (frames, is_movable),
            Pins::Reserved => (frames, false),
            Pins::Absent(absent) => (frames.saturating_sub(absent), is_movable),
        };
        if is_movable {
            self.movable_frames += used;
        } else {
            self.fixed_frames += used;
        }
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
    /// What is pinned is `reserved`, or else absent.
    pub(crate) fn occupancy(&self, range: FrameRange, reserved: bool) -> Occupancy {
        let mut sum = Occupancy::default();
        let range = range.intersect(self.frames);
        if range.is_empty() {
            return sum;
        }
        let last = Frame::new(range.end().get() - 1);
        for giant in self.giant_of(range.start())..=self.giant_of(last) {
            let part = self.giant_frames(giant).intersect(range);
            let word = self.giant(giant);
            match word.state() {
                GiantState::Free => sum.free_frames += part.count(),
                GiantState::Allocated | GiantState::Opening => {
                    sum.add_used(
                        part.count(),
                        word.mobility().is_movable(),
                        self.hold(part, reserved),
                    );
                }
                GiantState::Split => {
                    for huge in self.huges_touched(part) {
                        sum += self.occupancy_of(huge, reserved);
                    }
                }
            }
        }
        sum
    }

    /// What a huge frame below a giant frame that is split is used for.
    fn occupancy_of(&self, huge: HugeIndex, reserved: bool) -> Occupancy {
        let mut sum = Occupancy::default();
        let word = self.huge(huge);
        #[cfg(feature = "hotplug")]
        if word.is_offline() {
            return sum;
        }
        let inside = self.huge_frames(huge).intersect(self.frames);
        let used = self.in_use(huge);
        sum.free_frames = inside.count() - used;
        let pinned = if word.is_pinned() {
            self.hold(inside, reserved)
        } else {
            Pins::None
        };
        sum.add_used(used, word.mobility().is_movable(), pinned);
        sum
    }

    /// What of `part` is pinned.
    fn hold(&self, part: FrameRange, reserved: bool) -> Pins {
        match self.pinned.frames_in(part) {
            0 => Pins::None,
            _ if reserved => Pins::Reserved,
            frames => Pins::Absent(frames),
        }
    }
}
