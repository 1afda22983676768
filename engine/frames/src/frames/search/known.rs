//! Memory that is known to be zero, for a request for zeros: [`any_known`].
//!
//! *Bounded: what a short search does not find is cheaper to zero than to look for.* From the huge
//! frame that served last on: a huge frame, then a giant frame to split. None is split for pages: nothing would
//! be known of the rest. A CPU takes one as a whole and cuts pages from it.

use super::{BlockRequest, GiantIndex, Hints, HugeIndex, giants_around, huges_around};
use crate::addr::Frame;
use crate::frames::segment::Segment;
use crate::frames::segment::take::{Miss, Part};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_ORDER, HUGES};
use crate::frames::word::{Content, Giant, GiantState, Known};

/// Giant frames to look at.
const GIANTS: usize = 64;
/// Of these, split ones whose huge frames are looked at.
const SPLIT_GIANTS: usize = 4;

/// Takes a block of a huge frame and more all of which holds zeros, if a short search finds one.
pub(crate) fn any_known(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
) -> Option<Frame> {
    let known = want.known.filter(|_| want.order >= HUGE_ORDER)?;
    let from = hints.zero(want.mobility);
    let found = search(segment, want, known, from)?;
    hints.set_zero(want.mobility, segment.huge_of(found));
    Some(found)
}

fn search(
    segment: &Segment<'_>,
    want: BlockRequest<'_>,
    known: &Known,
    from: HugeIndex,
) -> Option<Frame> {
    let mut whole = None;
    let mut left = SPLIT_GIANTS;
    for giant in giants_around(segment, from, want.mobility).take(GIANTS) {
        let word = segment.giant(giant);
        let may_hold = [Content::Zero, Content::Reported]
            .iter()
            .any(|&content| known.is_zero(content) && word.may_hold(content));
        match word.state() {
            GiantState::Free if may_hold => {
                if want.order < GIANT_ORDER {
                    whole = whole.or(Some((giant, word)));
                } else if let Some(found) = whole_giant(segment, giant, word, want, known) {
                    return Some(found);
                }
            }
            GiantState::Split if may_hold && left > 0 && want.order < GIANT_ORDER => {
                let found = huges_of(segment, giant, want, known, from);
                if found.is_some() {
                    return found;
                }
                left -= 1;
            }
            _ => {}
        }
    }
    let (giant, word) = whole?;
    let take = || huges_of(segment, giant, want, known, from).ok_or(Miss::Changed);
    segment.take_below(giant, word, take).ok()
}

/// A giant frame all of which holds zeros.
fn whole_giant(
    segment: &Segment<'_>,
    giant: GiantIndex,
    word: Giant,
    want: BlockRequest<'_>,
    known: &Known,
) -> Option<Frame> {
    let is_zero = match word.content() {
        Some(content) => known.is_zero(content),
        None => word.known() == HUGES && !word.may_hold(unwanted(known)?),
    };
    let is_taken = is_zero && segment.take_giant(giant, word, want.purpose());
    is_taken.then(|| segment.giant_frames(giant).start())
}

/// What does not count as zero.
fn unwanted(known: &Known) -> Option<Content> {
    let contents = [Content::Reported, Content::Unknown];
    contents
        .into_iter()
        .find(|&content| !known.is_zero(content))
}

/// Free huge frames.
fn huges_of(
    segment: &Segment<'_>,
    giant: GiantIndex,
    want: BlockRequest<'_>,
    known: &Known,
    from: HugeIndex,
) -> Option<Frame> {
    let is_zero = |huge| {
        let word = segment.huge(huge);
        word.is_free() && known.is_zero(word.content())
    };
    if want.order > HUGE_ORDER {
        let start = segment.giant_frames(giant).start();
        let mut blocks = Block {
            start,
            order: want.order,
        }
        .siblings_in_giant();
        return blocks.find_map(|block| {
            let is_inside = segment.frames.covers(block.range());
            let is_zero = is_inside && segment.huges_of(block).all(is_zero);
            let is_taken = is_zero && segment.take_huges(block, want.purpose()).is_ok();
            is_taken.then_some(block.start)
        });
    }
    huges_around(segment, giant, from, want.mobility).find_map(|huge| {
        is_zero(huge).then(|| segment.take_one(huge, want.purpose(), Part::Whole).ok())?
    })
}
