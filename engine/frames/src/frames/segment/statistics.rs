//! How much is free, counted from the words themselves: nothing is kept
//! beside them, so allocation pays nothing for it.

use core::iter::Sum;
use core::ops::AddAssign;

use super::{HugeIndex, Segment};
use crate::addr::FrameRange;
use crate::frames::word::geometry::{GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGES, blocks};
use crate::frames::word::{Content, Giant, GiantState, HugeState};

/// What is free, by the largest block it forms. Exact whenever no call is in
/// flight; costs one look at each giant frame's word and, where pages of it
/// are free one by one, at its 512 huge words and the bitmaps of those that are partly free.
/// Nothing is written.
///
/// `managed_frames` = `free_frames` + `cached_frames` + `in_work_frames` + what is allocated.
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
    /// Of what is free: known to hold zeros.
    pub zero: ContentStatistics,
    /// Of what is free: given to the host.
    pub reported: ContentStatistics,
    /// Frames that a worker has borrowed and gives back soon: free for the water marks, but not
    /// counted as free here.
    pub in_work_frames: u64,
}

/// How much of what is free is of one content, by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentStatistics {
    /// All frames.
    pub frames: u64,
    /// Huge frames that are free as a whole, those of free giant frames included.
    pub huges: u64,
    /// Giant frames that are free as a whole.
    pub giants: u64,
}

impl AddAssign for ContentStatistics {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.huges += other.huges;
        self.giants += other.giants;
    }
}

/// How many free blocks of each order there are: each frame counts in the largest aligned free
/// block it is part of.
pub type FreeBlocks = [u64; GIANT_ORDER as usize + 1];

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        self.managed_frames += other.managed_frames;
        self.cached_frames += other.cached_frames;
        self.free_frames += other.free_frames;
        self.free_giants += other.free_giants;
        self.free_huges += other.free_huges;
        self.partial_huges += other.partial_huges;
        self.zero += other.zero;
        self.reported += other.reported;
        self.in_work_frames += other.in_work_frames;
    }
}

impl Statistics {
    /// What is free of one content that is known.
    pub(crate) fn of(&mut self, content: Content) -> Option<&mut ContentStatistics> {
        match content {
            Content::Unknown => None,
            Content::Zero => Some(&mut self.zero),
            Content::Reported => Some(&mut self.reported),
        }
    }

    pub(crate) fn add_huges(&mut self, content: Content, count: u64) {
        if let Some(known) = self.of(content) {
            known.huges += count;
            known.frames += count * u64::from(HUGE_FRAMES);
        }
    }

    fn add_giants(&mut self, content: Content) {
        if let Some(known) = self.of(content) {
            known.giants += 1;
        }
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
            match word.state() {
                GiantState::Free => {
                    sum.free_giants += 1;
                    sum.free_huges += u64::from(HUGES);
                    sum.free_frames += GIANT_FRAMES;
                    self.add_contents(giant, word, &mut sum);
                }
                GiantState::Split => {
                    sum.free_huges += u64::from(word.free());
                    sum.free_frames += u64::from(word.free()) * u64::from(HUGE_FRAMES);
                    self.add_contents(giant, word, &mut sum);
                    if word.has_partial() {
                        sum += self.partial_statistics(giant);
                    }
                }
                GiantState::Opening | GiantState::Allocated => {}
            }
        }
        sum
    }

    /// Adds what is known of the free huge frames of a giant frame.
    fn add_contents(&self, giant: usize, word: Giant, sum: &mut Statistics) {
        let is_whole = word.state() == GiantState::Free;
        if let Some(content) = word.content().filter(|_| is_whole) {
            sum.add_huges(content, u64::from(HUGES));
            sum.add_giants(content);
        } else if word.known() > 0 {
            let (mut zero, mut reported) = (0, 0);
            for word in self.huges_in(giant).map(|huge| self.huge(huge)) {
                let is_free = word.is_free();
                zero += u64::from(is_free && word.content() == Content::Zero);
                reported += u64::from(is_free && word.content() == Content::Reported);
            }
            for (content, count) in [(Content::Zero, zero), (Content::Reported, reported)] {
                sum.add_huges(content, count);
                if is_whole && count == u64::from(HUGES) {
                    sum.add_giants(content);
                }
            }
        }
    }

    /// Adds up how many of the largest free blocks of each order there are.
    pub(crate) fn count_blocks(&self, counts: &mut FreeBlocks) {
        let mut run = FrameRange::EMPTY;
        let mut add = |frames: FrameRange| {
            if run.end() == frames.start() {
                run = FrameRange::new(run.start().get(), frames.end().get()).unwrap_or_default();
            } else {
                blocks(run).for_each(|block| counts[usize::from(block.order)] += 1);
                run = frames;
            }
        };
        for giant in 0..self.giant_count() {
            let word = self.giant(giant);
            match word.state() {
                GiantState::Free => add(self.giant_frames(giant)),
                GiantState::Split => {
                    for huge in self.huges_in(giant) {
                        self.free_runs_of(huge, &mut add);
                    }
                }
                GiantState::Opening | GiantState::Allocated => {}
            }
        }
        // Whatever comes after ends the last run.
        add(FrameRange::ALL);
    }

    /// The free frames of a huge frame, a word of its bitmap at a time.
    fn free_runs_of(&self, huge: HugeIndex, add: &mut impl FnMut(FrameRange)) {
        let (start, word) = (self.huge_start(huge), self.huge(huge));
        if word.is_isolated() {
            return;
        }
        match word.state() {
            HugeState::Free => add(self.huge_frames(huge)),
            HugeState::Split => {
                for first in (0..HUGE_FRAMES).step_by(64) {
                    let mut free = !self.bitmap(huge).word_at(first);
                    while free != 0 {
                        let at = start + u64::from(first + free.trailing_zeros());
                        add(FrameRange::new(at, at + 1).unwrap_or_default());
                        free &= free - 1;
                    }
                }
            }
            HugeState::Allocated | HugeState::Opening => {}
        }
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
