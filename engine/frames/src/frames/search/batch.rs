//! Many pages or huge frames at a time, from where a CPU took the last ones.
//!
//! Up to 64 pages that lie in one word of a bitmap cost one atomic operation, as does each
//! huge frame.

use super::{HugeIndex, giants_around, huges_around, is_others};
use crate::addr::Frame;
use crate::frames::segment::Segment;
use crate::frames::segment::take::{Miss, Part};
use crate::frames::word::{Giant, GiantState, IS_KEPT, Mobility};

/// How many giant frames to pass in search of pages or huge frames.
const GIANTS: usize = 64;
/// How many huge frames to take pages from at a time.
const HUGE_FRAMES: usize = 32;

/// Space for frames on their way from a segment to a caller.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    frames: &'a mut [Frame],
    count: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(frames: &'a mut [Frame]) -> Self {
        Self { frames, count: 0 }
    }

    /// How many frames are in it, from the first entry on.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Those that are in it.
    pub(crate) fn frames(&self) -> &[Frame] {
        self.frames.get(..self.count).unwrap_or_default()
    }

    /// How many more it takes.
    pub(crate) fn space(&self) -> u32 {
        u32::try_from(self.frames.len() - self.count).unwrap_or(u32::MAX)
    }

    /// Puts the pages in it whose bits are set, counted from `start`.
    fn put_pages(&mut self, start: Frame, mut bits: u64) {
        let free = self.frames.get_mut(self.count..).unwrap_or_default();
        for entry in free {
            if bits == 0 {
                break;
            }
            *entry = Frame::new(start.get() + u64::from(bits.trailing_zeros()));
            bits &= bits - 1;
            self.count += 1;
        }
        debug_assert!(bits == 0, "pages from {start} on would be lost");
    }

    pub(crate) fn put(&mut self, frame: Frame) {
        debug_assert!(self.space() > 0, "{frame} would be lost");
        if let Some(entry) = self.frames.get_mut(self.count) {
            *entry = frame;
            self.count += 1;
        }
    }
}

/// Takes single pages from huge frames that are split for `mobility`, from the one of the
/// hint on: as many as there is space for, or what some of them have.
pub(crate) fn take_pages(
    segment: &Segment<'_>,
    mobility: Mobility,
    hint: &mut HugeIndex,
    batch: &mut Batch<'_>,
) {
    let from = *hint;
    let mut left = HUGE_FRAMES;
    for giant in giants_around(segment, from, mobility).take(GIANTS) {
        if batch.space() == 0 || left == 0 {
            return;
        }
        let word = segment.giant(giant);
        if word.state() != GiantState::Split || word.partial(mobility) == 0 {
            continue;
        }
        let mut emptied = 0;
        for huge in huges_around(segment, giant, from, mobility) {
            if !segment.huge(huge).is_counted_for(mobility) {
                continue;
            }
            left -= 1;
            *hint = huge;
            emptied += take_pages_of(segment, huge, mobility, batch);
            if batch.space() == 0 || left == 0 {
                break;
            }
        }
        // One step for all of them.
        segment.count_emptied(giant, mobility, emptied);
    }
}

/// As many pages of one huge frame as it has and there is space for; 1 if they were its last,
/// which its giant frame still counts.
fn take_pages_of(
    segment: &Segment<'_>,
    huge: HugeIndex,
    mobility: Mobility,
    batch: &mut Batch<'_>,
) -> i32 {
    while batch.space() > 0 {
        let part = Part::UpTo(batch.space().min(64));
        let Ok(taken) = segment.take(huge, mobility.into(), part) else {
            break;
        };
        batch.put_pages(taken.start, taken.bits);
        match taken.emptied {
            None => {}
            Some(same) if same == mobility => return 1,
            Some(other) => segment.count_emptied(segment.giant_of_huge(huge), other, 1),
        }
    }
    0
}

/// Takes whole huge frames for `mobility`, as many as there is space for, of the first giant
/// frame that yields any: that of the hint, the CPU's home; another one that is no other home, split already, but not for
/// pages of the other mobility; one that is free as a whole; one split for those; another home. Those of known content
/// come last.
pub(crate) fn take_huges(
    segment: &Segment<'_>,
    mobility: Mobility,
    hint: &mut HugeIndex,
    is_home: impl Fn(Frame) -> bool,
    batch: &mut Batch<'_>,
) {
    let from = *hint;
    let skipped = take_huges_with(segment, mobility, hint, &is_home, batch, !IS_KEPT);
    if IS_KEPT && skipped && batch.count() == 0 {
        *hint = from;
        take_huges_with(segment, mobility, hint, &is_home, batch, true);
    }
}

/// Takes huge frames of unknown content, or of any; whether some were left for their content.
fn take_huges_with(
    segment: &Segment<'_>,
    mobility: Mobility,
    hint: &mut HugeIndex,
    is_home: impl Fn(Frame) -> bool,
    batch: &mut Batch<'_>,
    any_content: bool,
) -> bool {
    // The hint may be one of another segment of the zone, longer than this one.
    let from = (*hint).min(segment.huge_count().saturating_sub(1));
    let home = segment.giant_of_huge(from);
    let mut skipped = false;
    let mut has_huges = |word: Giant| {
        skipped |= word.known() > 0 && !any_content;
        word.has_huges(any_content)
    };
    let mut take = |giant, word: Giant, batch: &mut Batch<'_>| match word.state() {
        GiantState::Split => {
            take_huges_of(segment, giant, mobility, hint, batch, any_content);
        }
        GiantState::Free => {
            // An error: another CPU was faster.
            let _ = segment.take_below(giant, word, || {
                take_huges_of(segment, giant, mobility, hint, batch, any_content);
                if batch.count() > 0 {
                    Ok(())
                } else {
                    Err(Miss::Changed)
                }
            });
        }
        GiantState::Allocated | GiantState::Opening => {}
    };
    let word = segment.giant(home);
    if has_huges(word) {
        take(home, word, batch);
    }
    if batch.count() > 0 {
        return skipped;
    }
    // One that is free as a whole, one of the other mobility, and another home: the last resorts. Where
    // another CPU is faster there too, the search past all lists goes on.
    let (mut whole, mut others, mut other_home) = (None, None, None);
    for giant in giants_around(segment, from, mobility).take(GIANTS) {
        if batch.count() > 0 {
            return skipped;
        }
        let word = segment.giant(giant);
        if !has_huges(word) {
            continue;
        }
        if is_home(segment.giant_frames(giant).start()) {
            other_home = other_home.or(Some(giant));
        } else if word.is_split() && is_others(word, mobility) {
            others = others.or(Some(giant));
        } else if word.is_split() {
            take(giant, word, batch);
        } else {
            whole = whole.or(Some(giant));
        }
    }
    for giant in [whole, others, other_home].into_iter().flatten() {
        if batch.count() == 0 {
            take(giant, segment.giant(giant), batch);
        }
    }
    skipped
}

/// As many huge frames as there is space for and a split giant frame has.
fn take_huges_of(
    segment: &Segment<'_>,
    giant: usize,
    mobility: Mobility,
    hint: &mut HugeIndex,
    batch: &mut Batch<'_>,
    any_content: bool,
) {
    let (huges, most) = (huges_around(segment, giant, *hint, mobility), batch.space());
    segment.take_free_huges(giant, huges, most, mobility, any_content, |huge| {
        batch.put(Frame::new(segment.huge_start(huge)));
        *hint = huge;
    });
}
