//! Checks that every count equals what it counts: [`Violation`] says where not.

use core::fmt;

use super::geometry::{HUGE_FRAMES, HUGES};
use super::segment::Segment;
use super::word::{Giant, GiantState, Huge, HugeState};
use crate::addr::FrameRange;

/// Two levels of the allocator's metadata disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The frames the disagreement is about.
    pub frames: FrameRange,
    /// The rule that does not hold.
    pub rule: &'static str,
    /// What the rule asks for.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frames,
            rule,
            expected,
            found,
        } = self;
        write!(f, "{frames}: {rule}: expected {expected}, found {found}")
    }
}

impl core::error::Error for Violation {}

fn check(
    frames: FrameRange,
    rule: &'static str,
    expected: u64,
    found: u64,
) -> Result<(), Violation> {
    if expected == found {
        Ok(())
    } else {
        Err(Violation {
            frames,
            rule,
            expected,
            found,
        })
    }
}

impl Segment<'_> {
    /// Recounts everything. Only while no other call is in flight.
    pub(crate) fn validate(&self) -> Result<(), Violation> {
        for giant in 0..self.giant_count() {
            let frames = self.giant_frames(giant);
            let word = self.giant(giant);
            let is_mine = u64::from(self.has_all_of_giant(giant));
            match word.state {
                GiantState::Whole | GiantState::Allocated => {
                    check(
                        frames,
                        "one block only if all of it is in the segment",
                        1,
                        is_mine,
                    )?;
                    if word.is_written_below() {
                        let free = |huge: &usize| self.huge(*huge) == Huge::FREE;
                        let free = self.huges_in(giant).filter(free).count() as u64;
                        let rule = "what lies below a block is written as free";
                        check(frames, rule, u64::from(HUGES), free)?;
                    }
                }
                GiantState::Splitting => check(frames, "no split is under way", 0, 1)?,
                GiantState::Split => self.validate_split(giant, word)?,
            }
        }
        Ok(())
    }

    fn validate_split(&self, giant: usize, word: Giant) -> Result<(), Violation> {
        let (mut free, mut partial) = (0u32, [0u32; 2]);
        for huge in self.huges_in(giant) {
            let seen = self.huge(huge);
            self.validate_huge(huge, seen)?;
            free += u32::from(seen == Huge::FREE);
            if seen.is_partial() {
                let index = seen.mobility as usize;
                partial[index] += 1;
                let bound = u64::from(word.run[index]);
                let rule = "no larger block of pages than the giant frame says";
                check(
                    self.huge_frames(huge),
                    rule,
                    bound,
                    bound.max(seen.bound().into()),
                )?;
            }
        }
        let frames = self.giant_frames(giant);
        check(
            frames,
            "free huge frames of a giant frame",
            u64::from(free),
            u64::from(word.free),
        )?;
        for (counted, kept) in partial.into_iter().zip(word.partial) {
            check(
                frames,
                "partly free huge frames",
                counted.into(),
                kept.into(),
            )?;
        }
        check(frames, "no call is in flight", 0, u64::from(word.busy))?;
        check(
            frames,
            "a giant frame that is all free is whole",
            0,
            u64::from(word.free == HUGES),
        )
    }

    fn validate_huge(&self, huge: usize, seen: Huge) -> Result<(), Violation> {
        let frames = self.huge_frames(huge);
        let inside = frames.intersect(self.frames);
        let outside = frames.count() - inside.count();
        match seen.state {
            HugeState::Splitting => check(frames, "no split is under way", 0, 1),
            HugeState::Free | HugeState::Allocated => check(
                frames,
                "one block only if all of it is in the segment",
                0,
                outside,
            ),
            HugeState::Split => {
                let row = self.row(huge);
                let clear = u64::from(row.count_free());
                check(
                    frames,
                    "free pages of a huge frame",
                    clear,
                    u64::from(seen.free),
                )?;
                let larger = row.has_run(seen.bound() + 1);
                let rule = "no larger block of pages than the huge frame says";
                check(frames, rule, 0, u64::from(seen.free > 0 && larger))?;
                check(
                    frames,
                    "all free is one block",
                    0,
                    u64::from(seen.free == HUGE_FRAMES),
                )?;
                let set = (0u32..HUGE_FRAMES)
                    .zip(frames.start().get()..)
                    .filter(|&(_, frame)| !inside.contains(crate::addr::Frame::new(frame)))
                    .filter(|&(page, _)| row.is_set(page))
                    .count() as u64;
                check(frames, "pages outside the segment stay set", outside, set)
            }
        }
    }
}
