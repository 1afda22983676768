//! What is free around a frame: [`Segment::look`].
//!
//! The one place where searches for ranges and checks of ranges read the
//! words of a segment. A look answers for as many frames as the word it ended
//! at speaks of, so that whoever walks over memory takes the largest steps
//! there are. It promises nothing: what was seen free must still be claimed.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions inside one huge frame"
)]

use super::geometry::{GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::request::Mobility;
use super::segment::{GiantIndex, Segment};
use super::word::{Giant, GiantState, Huge, HugeState};
use crate::addr::{Frame, FrameRange};
use crate::sync::pause;

/// What was seen around one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glimpse {
    /// Whether the frame is free; one that is promised to another CPU may be either.
    pub(crate) free: bool,
    /// Frames around it of which the same was seen, as far as one word speaks of them.
    pub(crate) run: FrameRange,
    /// Order of the unit whose word said so: giant, huge, or 0 for pages.
    pub(crate) level: u8,
    /// What the huge frame is split for, where the word is one of pages.
    pub(crate) mobility: Option<Mobility>,
    /// A call in flight may give back some of what looks used.
    pub(crate) busy: bool,
}

impl Segment<'_> {
    /// What of `frame`, which must lie inside the segment, can be taken; what is
    /// isolated can't. Waits for a CPU that is splitting or taking exactly the
    /// unit to be looked into.
    ///
    /// Where `enough` says so of a giant or huge frame that is not all free,
    /// all of it is reported as used, and the level below is not read.
    pub(crate) fn look(&self, frame: Frame, enough: impl Fn(FrameRange) -> bool) -> Glimpse {
        let giant = self.giant_of(frame);
        let word = self.settled_giant(giant);
        let unit = self.giant_frames(giant);
        match word.state {
            GiantState::Whole => self.seen(true, unit, GIANT_ORDER),
            GiantState::Split if word.free > 0 || word.partial != [0; 2] => {
                if enough(unit) {
                    return self.seen_in(giant, unit, GIANT_ORDER);
                }
                let huge = self.huge_of(frame);
                let word = self.settled_huge(huge);
                let unit = self.huge_frames(huge);
                if word.isolated {
                    self.seen(false, unit, HUGE_ORDER)
                } else if word.is_full() || word.is_partial() && enough(unit) {
                    self.seen_in(giant, unit, HUGE_ORDER)
                } else {
                    self.look_below(giant, frame, word)
                }
            }
            GiantState::Split => self.seen_in(giant, unit, GIANT_ORDER),
            GiantState::Allocated | GiantState::Splitting => self.seen(false, unit, GIANT_ORDER),
        }
    }

    /// The first frame of `range`, inside the segment, that can't be taken.
    pub(crate) fn first_used(&self, range: FrameRange) -> Option<Frame> {
        Self::first_in(range, |at| self.look(at, |_| false), false)
    }

    /// The first frame of `range`, inside the segment, that is free, isolated or not.
    pub(crate) fn first_free(&self, range: FrameRange) -> Option<Frame> {
        Self::first_in(range, |at| self.look_closely(at), true)
    }

    fn first_in(range: FrameRange, look: impl Fn(Frame) -> Glimpse, free: bool) -> Option<Frame> {
        let mut at = range.start();
        while at < range.end() {
            let seen = look(at);
            if seen.free == free {
                return Some(at);
            }
            at = seen.run.end();
        }
        None
    }

    /// Whether a frame is free, by the word of its own level: counts do not know what is
    /// isolated.
    fn look_closely(&self, frame: Frame) -> Glimpse {
        let giant = self.giant_of(frame);
        let unit = self.giant_frames(giant);
        match self.settled_giant(giant).state {
            GiantState::Whole => self.seen(true, unit, GIANT_ORDER),
            GiantState::Split => {
                let word = self.settled_huge(self.huge_of(frame));
                self.look_below(giant, frame, word)
            }
            GiantState::Allocated | GiantState::Splitting => self.seen(false, unit, GIANT_ORDER),
        }
    }

    /// What is at a frame of a huge frame, found as `word`.
    fn look_below(&self, giant: GiantIndex, frame: Frame, word: Huge) -> Glimpse {
        let huge = self.huge_of(frame);
        let unit = self.huge_frames(huge);
        match word.state {
            HugeState::Free => self.seen(true, unit, HUGE_ORDER),
            HugeState::Split => {
                let page = (frame.get() % u64::from(HUGE_FRAMES)) as u32;
                let (free, below, above) = run_around(self.row(huge).bits(page), page % 64);
                let start = frame.get() - u64::from(below);
                let run = FrameRange::new(start, frame.get() + u64::from(above));
                let run = run.unwrap_or_default();
                let glimpse = if free {
                    self.seen(true, run, 0)
                } else {
                    self.seen_in(giant, run, 0)
                };
                Glimpse {
                    mobility: Some(word.mobility),
                    ..glimpse
                }
            }
            HugeState::Allocated | HugeState::Splitting => self.seen(false, unit, HUGE_ORDER),
        }
    }

    fn seen(&self, free: bool, run: FrameRange, level: u8) -> Glimpse {
        Glimpse {
            free,
            run: run.intersect(self.frames),
            level,
            mobility: None,
            busy: false,
        }
    }

    /// Something used inside a split giant frame, where calls may be trying what they give back.
    fn seen_in(&self, giant: GiantIndex, run: FrameRange, level: u8) -> Glimpse {
        // Read after what was seen: a call is counted before it takes anything.
        let busy = self.giant(giant).busy > 0;
        Glimpse {
            busy,
            ..self.seen(false, run, level)
        }
    }

    /// The giant frame's word once nobody is splitting it.
    fn settled_giant(&self, giant: GiantIndex) -> Giant {
        loop {
            let word = self.giant(giant);
            if word.state != GiantState::Splitting {
                return word;
            }
            pause();
        }
    }
}

/// Whether bit `at` is clear, how many bits below it are like it, and how many from it on.
const fn run_around(bits: u64, at: u32) -> (bool, u32, u32) {
    let free = bits >> at & 1 == 0;
    let alike = if free { !bits } else { bits };
    let below = (alike << (63 - at)).leading_ones() - 1;
    (free, below, (alike >> at).trailing_ones())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_bits_change_and_at_the_word() {
        assert_eq!(run_around(0, 0), (true, 0, 64));
        assert_eq!(run_around(0, 63), (true, 63, 1));
        assert_eq!(run_around(!0, 10), (false, 10, 54));
        assert_eq!(run_around(0b1011_0000, 4), (false, 0, 2));
        assert_eq!(run_around(0b1011_0000, 5), (false, 1, 1));
        assert_eq!(run_around(0b1011_0000, 6), (true, 0, 1));
        assert_eq!(run_around(0b1011_0000, 8), (true, 0, 56));
        assert_eq!(run_around(1 << 63, 62), (true, 62, 1));
    }
}
