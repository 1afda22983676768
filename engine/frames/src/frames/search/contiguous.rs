//! Any number of frames in a row, of any alignment: [`find`].
//!
//! A search looks at a candidate from its end backwards. The first thing in use that it meets
//! is the last one in the candidate, so the next candidate is the first aligned one behind it,
//! and what was seen free up to there is not looked at again: no word is read twice, and the
//! longer the range, the more words are never read.

use super::probe::{Probe, probe, probe_zero};
use crate::addr::{Frame, FrameRange};
use crate::frames::segment::Segment;
use crate::frames::word::geometry::{GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use crate::frames::word::{Content, Mobility};

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeRequest {
    /// How many frames in a row.
    pub(crate) frames: u64,
    /// The first is a multiple of this power of two.
    pub(crate) align_frames: u64,
    /// What is kept there.
    pub(crate) mobility: Mobility,
    /// What is there now.
    pub(crate) content: ContentRequest,
}

/// The content of frames that are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentRequest {
    /// Any; what is known comes last.
    Any,
    /// Any; what is known comes first.
    KnownFirst,
    /// Zeros, nothing else.
    Zero {
        /// Reported memory counts as zero.
        or_reported: bool,
    },
}

impl ContentRequest {
    /// Whether memory of this content is zero.
    fn is_zero(self, content: Content) -> bool {
        match content {
            Content::Unknown => false,
            Content::Zero => true,
            Content::Reported => self == (Self::Zero { or_reported: true }),
        }
    }
}

/// How to look for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    align_frames: u64,
    /// Order of the largest units that may be broken up for it.
    largest: u8,
    /// Pages of huge frames that are split for this mobility are left alone.
    not_from: Option<Mobility>,
    /// Memory whose content is known, or is not, is left alone.
    not_known: Option<bool>,
    /// What of it counts as free.
    content: ContentRequest,
}

/// What a search did besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probed {
    /// Something free was left alone, for its size or mobility.
    pub(crate) skipped: bool,
    /// Something free was left alone for what is known of its content, or is not.
    pub(crate) skipped_content: bool,
    /// Something was being opened, and some of it may be free.
    pub(crate) opening: bool,
    #[cfg(test)]
    pub(crate) probes: u64,
}

impl RangeRequest {
    /// From the policy that breaks up and mixes least to the one that takes anything.
    fn policies(self, not_known: Option<bool>) -> [Policy; 4] {
        let policy = |align: u64, largest| Policy {
            align_frames: self.align_frames.max(align),
            largest,
            not_from: self.mobility.other(),
            not_known,
            content: self.content,
        };
        let any = policy(1, GIANT_ORDER);
        let mixed = Policy {
            not_from: None,
            ..any
        };
        let huge = u64::from(HUGE_FRAMES);
        if self.frames >= GIANT_FRAMES {
            let whole = policy(GIANT_FRAMES, GIANT_ORDER);
            [whole, whole, any, mixed]
        } else if self.frames >= huge {
            let (split, whole) = (policy(huge, HUGE_ORDER), policy(huge, GIANT_ORDER));
            [split, whole, any, mixed]
        } else {
            [policy(1, 0), policy(1, HUGE_ORDER), any, mixed]
        }
    }
}

impl Policy {
    /// Whether something free is left alone for its content.
    fn skips_content(self, free: &Probe) -> bool {
        self.not_known == Some(free.known)
    }

    /// Whether something free is left alone otherwise.
    fn skips(self, free: &Probe) -> bool {
        free.level > self.largest || free.mobility.is_some() && free.mobility == self.not_from
    }
}

/// The range that `take` took of those that are seen free, by one policy after the other.
pub(crate) fn find(
    segment: &Segment<'_>,
    want: RangeRequest,
    probed: &mut Probed,
    mut take: impl FnMut(FrameRange) -> bool,
) -> Option<FrameRange> {
    let rounds: &[_] = match want.content {
        ContentRequest::Any => &[Some(true), None],
        ContentRequest::KnownFirst => &[Some(false), None],
        ContentRequest::Zero { .. } => &[None],
    };
    for (round, &not_known) in rounds.iter().enumerate() {
        if round > 0 && !probed.skipped_content {
            break;
        }
        let mut last_align = 0;
        for policy in want.policies(not_known) {
            // Nothing was skipped: the next policy would see the same.
            if policy.align_frames == last_align && !probed.skipped {
                continue;
            }
            last_align = policy.align_frames;
            probed.skipped = false;
            let mut from = segment.frames.start();
            while let Some(range) = find_from(segment, want.frames, policy, from, probed) {
                if take(range) {
                    return Some(range);
                }
                // Another CPU was faster.
                from = Frame::new(range.start().get() + 1);
            }
        }
    }
    None
}

/// The first range from `from` on that is seen free.
fn find_from(
    segment: &Segment<'_>,
    frames: u64,
    policy: Policy,
    from: Frame,
    probed: &mut Probed,
) -> Option<FrameRange> {
    let align = policy.align_frames;
    let mut start = from.get().checked_next_multiple_of(align)?;
    // From `start` up to here all was seen free.
    let mut seen_to = start;
    loop {
        let end = start.checked_add(frames)?;
        let candidate = FrameRange::new(start, end)?;
        if !segment.frames.covers(candidate) {
            return None;
        }
        let Some(obstacle) = last_obstacle(segment, candidate, seen_to, policy, probed) else {
            return Some(candidate);
        };
        seen_to = end;
        start = obstacle.get().checked_next_multiple_of(align)?;
    }
}

/// End of the last run in `candidate`, not before `seen_to`, that can't be had.
fn last_obstacle(
    segment: &Segment<'_>,
    candidate: FrameRange,
    seen_to: u64,
    policy: Policy,
    probed: &mut Probed,
) -> Option<Frame> {
    // The next candidate begins behind all of such a unit, wherever in it something is used.
    let enough = |unit: FrameRange| unit.count() <= policy.align_frames && candidate.covers(unit);
    let first = candidate.start().get().max(seen_to);
    let mut at = candidate.end().get();
    while at > first {
        let last = Frame::new(at - 1);
        let seen = match policy.content {
            ContentRequest::Any | ContentRequest::KnownFirst => probe(segment, last, enough),
            zero => probe_zero(segment, last, enough, |content| zero.is_zero(content)),
        };
        #[cfg(test)]
        {
            probed.probes += 1;
        }
        let skipped = seen.free && policy.skips(&seen);
        let skipped_content = seen.free && policy.skips_content(&seen);
        probed.skipped |= skipped;
        probed.skipped_content |= skipped_content;
        probed.opening |= seen.opening;
        if skipped || skipped_content || !seen.free {
            return Some(seen.frames.end());
        }
        at = seen.frames.start().get();
    }
    None
}
