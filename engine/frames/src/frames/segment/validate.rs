//! Checks that every count equals what it counts: [`Violation`] says where not.

use core::fmt;

use super::Segment;
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::{HUGE_FRAMES, HUGES};
use crate::frames::word::{Content, Giant, GiantState, Huge, HugeState, Mobility};

const RULE_OF_KNOWN: &str = "nothing is known of what is allocated or split";

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
        let calls = u64::from(!self.calls.snapshot().is_quiet());
        check(self.frames, "no call is in flight", 0, calls)?;
        (0..self.giant_count()).try_for_each(|giant| self.validate_giant(giant))
    }

    fn validate_giant(&self, giant: usize) -> Result<(), Violation> {
        let frames = self.giant_frames(giant);
        let word = self.giant(giant);
        match word.state() {
            GiantState::Free | GiantState::Allocated => {
                let is_mine = u64::from(self.has_all_of_giant(giant));
                let rule = "one block only if all of it is in the segment";
                check(frames, rule, 1, is_mine)?;
                if word.was_opened() {
                    let is_free = |huge: Huge| huge.with_content(Content::Unknown) == Huge::FREE;
                    let free = |huge: &usize| is_free(self.huge(*huge));
                    let free = self.huges_in(giant).filter(free).count() as u64;
                    let rule = "what lies below one block says that it is free";
                    check(frames, rule, u64::from(HUGES), free)?;
                    if !word.is_unwritten() {
                        let known = |huge: &usize| self.huge(*huge).content().is_known();
                        let known = self.huges_in(giant).filter(known).count() as u64;
                        let rule = "huge frames of known content below one block";
                        check(frames, rule, known, u64::from(word.known()))?;
                    }
                }
                Ok(())
            }
            GiantState::Opening => check(frames, "no giant frame is being opened", 0, 1),
            GiantState::Split => self.validate_split(giant, word),
        }
    }

    fn validate_split(&self, giant: usize, word: Giant) -> Result<(), Violation> {
        let (mut free, mut partial) = (0u32, [0u32; 2]);
        let mut known = 0;
        for huge in self.huges_in(giant) {
            let seen = self.huge(huge);
            self.validate_huge(huge, seen)?;
            free += u32::from(seen.is_free());
            known += u32::from(seen.is_free() && seen.content().is_known());
            if seen.is_counted() {
                partial[seen.mobility() as usize] += 1;
                let bound = u64::from(word.max_order(seen.mobility()));
                let rule = "no larger block of pages than the giant frame says";
                let larger = bound.max(seen.max_order().into());
                check(self.huge_frames(huge), rule, bound, larger)?;
            }
        }
        let frames = self.giant_frames(giant);
        let rule = "free huge frames of a giant frame";
        check(frames, rule, u64::from(free), u64::from(word.free()))?;
        let rule = "free huge frames of known content";
        check(frames, rule, u64::from(known), u64::from(word.known()))?;
        for mobility in Mobility::ALL {
            let (counted, kept) = (partial[mobility as usize], word.partial(mobility));
            let rule = "partly free huge frames";
            check(frames, rule, counted.into(), kept.into())?;
        }
        let rule = "a giant frame that is all free is one block";
        check(frames, rule, 0, u64::from(word.free() == HUGES))
    }

    fn validate_huge(&self, huge: usize, seen: Huge) -> Result<(), Violation> {
        let frames = self.huge_frames(huge);
        let inside = frames.intersect(self.frames);
        let outside = frames.count() - inside.count();
        match seen.state() {
            HugeState::Opening => check(frames, "no huge frame is being opened", 0, 1),
            HugeState::Free | HugeState::Allocated => {
                let rule = "one block only if all of it is in the segment";
                check(frames, rule, 0, outside)?;
                let is_known = seen.state() == HugeState::Allocated && seen.content().is_known();
                check(frames, RULE_OF_KNOWN, 0, u64::from(is_known))
            }
            HugeState::Split => {
                let bitmap = self.bitmap(huge);
                let free = bitmap.count_free();
                let rule = "partial if some page is free";
                check(
                    frames,
                    rule,
                    u64::from(free > 0),
                    u64::from(seen.is_partial()),
                )?;
                let larger = bitmap
                    .max_order()
                    .is_some_and(|order| order > seen.max_order());
                let rule = "no larger block of pages than the huge frame says";
                check(frames, rule, 0, u64::from(larger))?;
                let rule = "a huge frame that is all free is one block";
                check(frames, rule, 0, u64::from(free == HUGE_FRAMES))?;
                let set = (0u32..HUGE_FRAMES)
                    .zip(frames.start().get()..)
                    .filter(|&(_, frame)| !inside.contains(Frame::new(frame)))
                    .filter(|&(page, _)| bitmap.is_set(page))
                    .count() as u64;
                check(frames, "pages outside the segment stay set", outside, set)?;
                check(
                    frames,
                    RULE_OF_KNOWN,
                    0,
                    u64::from(seen.content().is_known()),
                )
            }
        }
    }
}
