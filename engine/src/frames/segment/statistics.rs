//! How much is free, counted from the words themselves: nothing is kept
//! beside them, so allocation pays nothing for it.

use core::iter::Sum;
use core::ops::AddAssign;

use super::Segment;
use crate::frames::word::GiantState;
use crate::frames::word::geometry::{GIANT_FRAMES, HUGE_FRAMES, HUGES};

/// What is free, by the largest block it forms. Exact whenever no call is in
/// flight; costs one look at each giant frame's word and, where pages of it
/// are free one by one, at its 512 huge words and the bitmaps of those that are partly free.
/// Nothing is written.
///
/// `managed_frames` = `free_frames` + `cached_frames` + what is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that are free, or may be freed: all that is memory, less what is reserved for ever.
    pub managed_frames: u64,
    /// Frames that CPUs cache.
    pub cached_frames: u64,
    /// All frames that can be allocated now, past the caches.
    pub free_frames: u64,
    /// Giant (1 GiB) frames that are free as a whole.
    pub free_giants: u64,
    /// Huge (2 MiB) frames that are free as a whole, those of free giant frames included.
    pub free_huges: u64,
    /// Huge frames of which some pages are free.
    pub partial_huges: u64,
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        self.managed_frames += other.managed_frames;
        self.cached_frames += other.cached_frames;
        self.free_frames += other.free_frames;
        self.free_giants += other.free_giants;
        self.free_huges += other.free_huges;
        self.partial_huges += other.partial_huges;
    }
}

impl Sum for Statistics {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|one| sum += one);
        sum
    }
}

impl Segment<'_> {
    /// What is free in the segment.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics {
            managed_frames: self.managed_frames(),
            ..Statistics::default()
        };
        for giant in 0..self.giant_count() {
            let word = self.giant(giant);
            match word.state {
                GiantState::Free => {
                    sum.free_giants += 1;
                    sum.free_huges += u64::from(HUGES);
                    sum.free_frames += GIANT_FRAMES;
                }
                GiantState::Split => {
                    sum.free_huges += u64::from(word.free);
                    sum.free_frames += u64::from(word.free) * u64::from(HUGE_FRAMES);
                    if word.partial != [0; 2] {
                        sum += self.partial_statistics(giant);
                    }
                }
                GiantState::Opening | GiantState::Allocated => {}
            }
        }
        sum
    }

    fn partial_statistics(&self, giant: usize) -> Statistics {
        let mut sum = Statistics::default();
        for huge in self.huges_in(giant) {
            let word = self.huge(huge);
            if word.is_counted() {
                sum.partial_huges += 1;
                sum.free_frames += u64::from(self.bitmap(huge).count_free());
            }
        }
        sum
    }
}
