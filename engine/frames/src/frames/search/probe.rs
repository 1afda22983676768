//! What is free around a frame: [`probe`].
//!
//! The one place where searches for ranges and checks of ranges read the words of a segment.
//! A probe covers as many frames as the word it ended at speaks of, so that a walk over memory
//! takes the largest steps there are. It promises nothing: what was seen free must
//! still be taken.

use crate::addr::{Frame, FrameRange};
use crate::frames::segment::{Segment, page_of};
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};
use crate::frames::word::{Content, GiantState, Huge, HugeState, Mobility};

/// What was seen around one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Whether the frame is free.
    pub(crate) free: bool,
    /// Frames around it of which the same was seen, as far as one word speaks of them.
    pub(crate) frames: FrameRange,
    /// Order of the unit whose word said so: giant, huge, or 0 for pages.
    pub(crate) level: u8,
    /// What the huge frame is split for, where the word is one of pages.
    pub(crate) mobility: Option<Mobility>,
    /// What some of it holds is known.
    pub(crate) known: bool,
    /// It is being opened: some of it may be free.
    pub(crate) opening: bool,
}

/// What of `frame`, which must lie inside the segment, can be taken; what is isolated, or being
/// opened by another CPU, can't.
///
/// Where `enough` says so of a giant or huge frame that is not all free, all of it is reported
/// as used, and the level below is not read.
pub(crate) fn probe(
    segment: &Segment<'_>,
    frame: Frame,
    enough: impl Fn(FrameRange) -> bool,
) -> Probe {
    let giant = segment.giant_of(frame);
    let word = segment.giant(giant);
    let unit = segment.giant_frames(giant);
    let is_used_up = word.free() == 0 && !word.has_partial();
    match word.state() {
        GiantState::Free => Probe {
            known: word.known() > 0,
            ..seen(segment, true, unit, GIANT_ORDER)
        },
        GiantState::Split if !is_used_up && !enough(unit) => {
            let huge = segment.huge_of(frame);
            let word = segment.huge(huge);
            let unit = segment.huge_frames(huge);
            let is_split = word.state() == HugeState::Split;
            if word.is_isolated() || is_split && (!word.is_partial() || enough(unit)) {
                seen(segment, false, unit, HUGE_ORDER)
            } else {
                below(segment, frame, word)
            }
        }
        state => Probe {
            opening: state == GiantState::Opening,
            ..seen(segment, false, unit, GIANT_ORDER)
        },
    }
}

/// What of `frame` can be taken, where only memory counts as free that holds what `is_zero` says.
#[cold]
pub(crate) fn probe_zero(
    segment: &Segment<'_>,
    frame: Frame,
    enough: impl Fn(FrameRange) -> bool,
    is_zero: impl Fn(Content) -> bool,
) -> Probe {
    let seen = probe(segment, frame, enough);
    if !seen.free || !seen.known {
        let free = false;
        return Probe { free, ..seen };
    }
    let huge = segment.huge_of(frame);
    let of_huge = |level| Probe {
        free: is_zero(segment.huge(huge).content()),
        ..self::seen(segment, true, segment.huge_frames(huge), level)
    };
    match seen.level {
        GIANT_ORDER => match segment.giant(segment.giant_of(frame)).content() {
            Some(content) => Probe {
                free: is_zero(content),
                ..seen
            },
            None => of_huge(GIANT_ORDER),
        },
        _ => of_huge(HUGE_ORDER),
    }
}

/// The first frame of `range`, inside the segment, that can't be taken.
pub(crate) fn first_used(segment: &Segment<'_>, range: FrameRange) -> Option<Frame> {
    first(range, |at| probe(segment, at, |_| false), false)
}

/// The first frame of `range`, inside the segment, that is free, isolated or not.
pub(crate) fn first_free(segment: &Segment<'_>, range: FrameRange) -> Option<Frame> {
    first(range, |at| probe_closely(segment, at), true)
}

fn first(range: FrameRange, probe: impl Fn(Frame) -> Probe, free: bool) -> Option<Frame> {
    let mut at = range.start();
    while at < range.end() {
        let seen = probe(at);
        if seen.free == free {
            return Some(at);
        }
        at = seen.frames.end();
    }
    None
}

/// Whether a frame is free, by the word of its own level: counts do not know what is isolated.
fn probe_closely(segment: &Segment<'_>, frame: Frame) -> Probe {
    let giant = segment.giant_of(frame);
    let (unit, word) = (segment.giant_frames(giant), segment.giant(giant));
    match word.state() {
        GiantState::Free => seen(segment, true, unit, GIANT_ORDER),
        GiantState::Split => below(segment, frame, segment.huge(segment.huge_of(frame))),
        GiantState::Allocated | GiantState::Opening => seen(segment, false, unit, GIANT_ORDER),
    }
}

/// What is at a frame of a huge frame, found as `word`.
fn below(segment: &Segment<'_>, frame: Frame, word: Huge) -> Probe {
    let huge = segment.huge_of(frame);
    let unit = segment.huge_frames(huge);
    match word.state() {
        HugeState::Free => Probe {
            known: word.content().is_known(),
            ..seen(segment, true, unit, HUGE_ORDER)
        },
        HugeState::Split => {
            let (free, run) = run(frame, segment.bitmap(huge).word_at(page_of(frame)));
            Probe {
                mobility: Some(word.mobility()),
                ..seen(segment, free, run, 0)
            }
        }
        state => Probe {
            opening: state == HugeState::Opening,
            ..seen(segment, false, unit, HUGE_ORDER)
        },
    }
}

fn seen(segment: &Segment<'_>, free: bool, frames: FrameRange, level: u8) -> Probe {
    Probe {
        free,
        frames: frames.intersect(segment.frames),
        level,
        mobility: None,
        known: false,
        opening: false,
    }
}

/// Whether a frame is free by a word of pages, and those around it that are like it.
fn run(frame: Frame, used: u64) -> (bool, FrameRange) {
    let (free, before, after) = run_around(used, page_of(frame) % 64);
    let start = frame.get() - u64::from(before);
    let run = FrameRange::new(start, frame.get() + u64::from(after));
    (free, run.unwrap_or_default())
}

/// Whether bit `at` is clear, how many bits below it are like it, and how many from it on.
const fn run_around(bits: u64, at: u32) -> (bool, u32, u32) {
    let free = bits >> at & 1 == 0;
    let alike = if free { !bits } else { bits };
    let below = (alike << (63 - at)).leading_ones() - 1;
    (free, below, (alike >> at).trailing_ones())
}

#[cfg(all(test, not(firstlight_loom)))]
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
