//! Where in a segment to look: [`any`], one block; [`batch`], many; [`contiguous`], frames in
//! a row. What is found is taken by the segment's primitives, and a search goes on where
//! another CPU was faster.
//!
//! Where there is a choice, a block of pages comes from a huge frame that is split for the
//! same mobility already, then from a free one, and from one that is split for the other
//! mobility only when there is nothing else: [`any_of_other`]. Memory of known content comes last
//! where nothing of it is requested, and first where zeros are: [`known`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "indices of huge frames, which fit 32 bits below 2^53 bytes"
)]

pub(crate) mod batch;
pub(crate) mod contiguous;
pub(crate) mod known;
pub(crate) mod probe;

use core::ops::Range;

use super::request::Request;
use super::segment::calls::Calls;
use super::segment::take::{Miss, Part};
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::word::geometry::{Block, GIANT_FRAMES, GIANT_ORDER, HUGE_ORDER, HUGES};
use super::word::{Content, Giant, GiantState, Huge, IS_KEPT, Known, Mobility, Purpose};
use crate::addr::Frame;
use crate::sync::{AtomicU32, Ordering};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRequest<'k> {
    pub(crate) order: u8,
    /// Frames at the end of the block that stay free; of a block of up to a huge frame.
    pub(crate) spare: u32,
    pub(crate) mobility: Mobility,
    /// Zeros, if there are any: where to note which parts are.
    pub(crate) known: Option<&'k Known>,
}

impl<'k> BlockRequest<'k> {
    #[inline]
    pub(crate) const fn of(request: &Request, known: Option<&'k Known>) -> Self {
        Self {
            known,
            ..Self::block(request.order().get(), request.mobility())
        }
    }

    /// A block.
    #[inline]
    pub(crate) const fn block(order: u8, mobility: Mobility) -> Self {
        Self {
            order,
            spare: 0,
            mobility,
            known: None,
        }
    }

    /// How many frames, from the first of the block on.
    #[inline]
    pub(crate) const fn frames(self) -> u32 {
        (1 << self.order) - self.spare
    }

    /// Whether whole huge frames are.
    #[inline]
    const fn is_whole(self) -> bool {
        self.order >= HUGE_ORDER && self.spare == 0
    }

    fn purpose(self) -> Purpose<'k> {
        Purpose {
            mobility: self.mobility,
            known: if IS_KEPT { self.known } else { None },
        }
    }

    /// Whether memory of known content is left to others while there is other memory: of pages nothing
    /// is known.
    const fn skips_known(self) -> bool {
        IS_KEPT && (self.known.is_none() || self.order < HUGE_ORDER)
    }

    /// Whether a giant frame is, of which something is known.
    fn skips(self, word: Giant) -> bool {
        let is_whole = self.order == GIANT_ORDER;
        self.skips_known() && (is_whole || !word.may_hold(Content::Unknown))
    }
}

/// Where the next search of each mobility begins: what the last one found. None of it decides what is free.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The huge frame that last served a request.
    last: [AtomicU32; 2],
    /// The one that last served a request for zeros.
    zero: [AtomicU32; 2],
    /// Why one of these was opened. The model checker does not weave it: it chooses among what is free.
    opened: core::sync::atomic::AtomicU32,
}

/// Why a huge frame was opened: what its giant frame counted, and the order of which none that it counts as split had a
/// block. While it counts the same, the huge frame, free as a whole again, is opened again without another search; also
/// where one that is split has room meanwhile, which no count of the giant frame shows: once, since they then differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opened(u32);

impl Opened {
    const ORDER: u32 = 0xf;

    fn new(giant: Giant, want: BlockRequest<'_>) -> Self {
        // Before the huge frame is opened, and likewise once it is free again.
        let counts = giant.partial(want.mobility) << 12 | giant.free();
        Self(counts << 8 | (want.mobility as u32) << 4 | u32::from(want.order))
    }

    /// Whether it would be opened for the same reason now, for a block of the same order or a larger one.
    fn serves(self, now: Self) -> bool {
        self.0 & !Self::ORDER == now.0 & !Self::ORDER && self.0 & Self::ORDER <= now.0 & Self::ORDER
    }
}

impl Hints {
    /// At both ends, so that the two meet as late as possible.
    pub(crate) fn new(segment: &Segment<'_>) -> Self {
        let end = segment.huge_count().saturating_sub(1) as u32;
        let at_both_ends = || [AtomicU32::new(0), AtomicU32::new(end)];
        Self {
            last: at_both_ends(),
            zero: at_both_ends(),
            opened: core::sync::atomic::AtomicU32::new(0),
        }
    }

    /// The first search for an unmovable block begins where pages are free, if that is known.
    pub(crate) fn begin_at(&self, first_partial: Option<HugeIndex>) {
        if let Some(huge) = first_partial {
            self.set(Mobility::Unmovable, huge);
        }
    }

    fn get(&self, mobility: Mobility) -> HugeIndex {
        self.last[mobility as usize].load(Ordering::Relaxed) as usize
    }

    fn set(&self, mobility: Mobility, huge: HugeIndex) {
        Self::store(&self.last[mobility as usize], huge as u32);
    }

    fn zero(&self, mobility: Mobility) -> HugeIndex {
        self.zero[mobility as usize].load(Ordering::Relaxed) as usize
    }

    fn set_zero(&self, mobility: Mobility, huge: HugeIndex) {
        Self::store(&self.zero[mobility as usize], huge as u32);
    }

    /// The giant frame of the last huge frame, which is free as a whole again since it was opened, while counts say that
    /// no other one serves.
    fn opened_again(&self, segment: &Segment<'_>, want: BlockRequest<'_>) -> Option<GiantIndex> {
        let huge = self.get(want.mobility);
        let giant = segment.giant_of_huge(huge);
        let word = segment.giant(giant);
        let is_again = word.is_split()
            && Opened(self.opened.load(Ordering::Relaxed)).serves(Opened::new(word, want))
            && segment.huge(huge).is_free_unknown();
        is_again.then_some(giant)
    }

    fn set_opened(&self, opened: Opened) {
        if self.opened.load(Ordering::Relaxed) != opened.0 {
            self.opened.store(opened.0, Ordering::Relaxed);
        }
    }

    fn store(hint: &AtomicU32, value: u32) {
        if hint.load(Ordering::Relaxed) != value {
            hint.store(value, Ordering::Relaxed);
        }
    }
}

/// What a pass through segments saw that found nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// One number made of all words: another number means that something became free or was used
    /// up meanwhile, also if it was used up before and after.
    fingerprint: u64,
    /// Other CPUs were changing what was looked at.
    pub(crate) changed: bool,
    /// Pages of the other mobility may be free.
    pub(crate) other: bool,
    /// A giant frame was being opened, of which all but a little may be free.
    pub(crate) opening: bool,
}

impl Pass {
    /// Whether this pass, after another one, proves that there was nothing at one moment
    /// between the two.
    pub(crate) fn proves(self, before: Option<Self>) -> bool {
        !self.changed && before.is_some_and(|before| before.fingerprint == self.fingerprint)
    }

    /// Adds a word. What a change adds depends on all of the word and on its position, so that
    /// changes in several words do not cancel out.
    #[inline]
    fn add(&mut self, position: u64, bits: u64) {
        let mixed = bits.wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // No two words give the same x * (2x + 1): it is odd times x, plus x * x * 2.
        let mixed = mixed.wrapping_mul(mixed.wrapping_mul(2).wrapping_add(1));
        self.fingerprint = self.fingerprint.wrapping_add(mixed);
    }

    /// Adds what is in flight in a segment, before its words are read.
    pub(crate) fn begin(&mut self, segment: &Segment<'_>) {
        self.begin_calls(&segment.calls, segment.frames.start().get() | 1 << 63);
    }

    /// Adds what is in flight, before any words are read. `position` distinguishes it
    /// from other words.
    pub(crate) fn begin_calls(&mut self, calls: &Calls, position: u64) {
        let calls = calls.snapshot();
        self.changed |= !calls.is_quiet();
        self.add(position, calls.number());
    }
}

/// How many giant frames to pass in search of a fitting huge frame that is split
/// before another one is split.
const SPLIT_SEARCH: usize = 64;

/// All of `range` once: from `from` on to the end, then from the start; or the
/// other way round.
fn around(range: Range<usize>, from: usize, down: bool) -> impl Iterator<Item = usize> {
    let Range { start, end } = range;
    let highest = end.max(start + 1) - 1;
    let (step, last, first) = if down {
        (1usize.wrapping_neg(), start, highest)
    } else {
        (1, highest, start)
    };
    let mut next = from.clamp(start, highest);
    (start..end).map(move |_| {
        let at = next;
        next = if at == last {
            first
        } else {
            at.wrapping_add(step)
        };
        at
    })
}

/// All giant frames, from the one of huge frame `from` on: upwards for unmovable blocks,
/// downwards for movable ones.
fn giants_around(
    segment: &Segment<'_>,
    from: HugeIndex,
    mobility: Mobility,
) -> impl Iterator<Item = GiantIndex> {
    let first = segment.giant_of_huge(from);
    around(0..segment.giant_count(), first, mobility.is_movable())
}

/// All huge frames of a giant frame, from `from` on.
fn huges_around(
    segment: &Segment<'_>,
    giant: GiantIndex,
    from: HugeIndex,
    mobility: Mobility,
) -> impl Iterator<Item = HugeIndex> {
    let down = mobility.is_movable();
    around(segment.huges_in(giant), from, down)
}

/// Takes any block that is wanted, near where the last one was. Without one, says in `pass`
/// what it saw.
#[inline]
pub(crate) fn any(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
    pass: &mut Pass,
) -> Option<Frame> {
    if let Some(found) = at_hint(segment, hints, want) {
        return Some(found);
    }
    any_past_hint(segment, hints, want, pass)
}

/// Takes any block that is wanted past the hint's huge frame, also for a request for zeros.
pub(crate) fn any_past_hint(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
    pass: &mut Pass,
) -> Option<Frame> {
    pass.begin(segment);
    let found = search(segment, want, hints, pass)?;
    hints.set(want.mobility, segment.huge_of(found));
    Some(found)
}

/// A block of any content from the hint's huge frame: pages if it is split, all of it if it is
/// free.
#[inline(always)]
pub(crate) fn at_hint(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
) -> Option<Frame> {
    let BlockRequest {
        order, mobility, ..
    } = want;
    if order > HUGE_ORDER {
        return None;
    }
    let huge = hints.get(mobility);
    if !segment.giant(segment.giant_of_huge(huge)).is_split() {
        return None;
    }
    let word = segment.huge(huge);
    if order == 0 && word.may_have(0, mobility) {
        segment.take_page(huge).ok()
    } else if order < HUGE_ORDER && word.may_have(order, mobility) {
        segment.take_pages(huge, order, want.frames()).ok()
    } else if want.is_whole() && word.is_free_unknown() {
        segment.take_free_huge(huge, word, mobility.into()).ok()?;
        Some(Frame::new(segment.huge_start(huge)))
    } else if want.is_whole() && cfg!(feature = "movable") {
        // Not in the smallest build, which it makes larger.
        next_of_hint(segment, hints, huge, mobility)
    } else {
        None
    }
}

/// The huge frame next to the hint's, in the direction its mobility goes and in the same giant frame: what the search
/// would find, too, where many are taken in a row.
fn next_of_hint(
    segment: &Segment<'_>,
    hints: &Hints,
    huge: HugeIndex,
    mobility: Mobility,
) -> Option<Frame> {
    let down = mobility.is_movable();
    let next = if down { huge.checked_sub(1)? } else { huge + 1 };
    let border = segment.huge_start(if down { huge } else { next });
    if border.is_multiple_of(GIANT_FRAMES) || next >= segment.huge_count() {
        return None;
    }
    let word = segment.huge(next);
    if !word.is_free_unknown() {
        return None;
    }
    segment.take_free_huge(next, word, mobility.into()).ok()?;
    hints.set(mobility, next);
    Some(Frame::new(segment.huge_start(next)))
}

fn search(
    segment: &Segment<'_>,
    want: BlockRequest<'_>,
    hints: &Hints,
    pass: &mut Pass,
) -> Option<Frame> {
    let BlockRequest {
        order, mobility, ..
    } = want;
    let from = hints.get(mobility);
    if order < HUGE_ORDER
        && let Some(giant) = hints.opened_again(segment, want)
        && let Ok(found) = first_free_of(segment, giant, want, from)
    {
        return Some(found);
    }
    let (mut open, mut whole) = (None, None);
    // One whose pages are all of the other mobility: before it, one that is free as a whole is split.
    let mut others = None;
    let mut has_any = false;
    // A giant frame all of which is of known content: for others, while there is another one.
    let mut skipped = None;
    let giants = giants_around(segment, from, mobility);
    for (passed, giant) in giants.enumerate() {
        if passed >= SPLIT_SEARCH && has_any {
            break;
        }
        let word = segment.giant(giant);
        pass.add(segment.frames.start().get() + giant as u64, word.bits());
        if word.is_used_up() {
            continue;
        }
        let skips = word.known() > 0 && want.skips(word);
        let found = match word.state() {
            GiantState::Allocated => Err(Miss::Nothing),
            GiantState::Opening => {
                pass.opening = true;
                Err(Miss::Changed)
            }
            GiantState::Free if skips => {
                skipped = skipped.or(Some(giant));
                has_any = true;
                continue;
            }
            GiantState::Free if order == GIANT_ORDER => take_giant(segment, giant, word, want),
            GiantState::Free => {
                whole = whole.or(Some((giant, word)));
                has_any = true;
                continue;
            }
            GiantState::Split => {
                if order < HUGE_ORDER {
                    if skips {
                        skipped = skipped.or(Some(giant));
                    } else if word.free() > 0 {
                        let to_open = if is_others(word, mobility) {
                            &mut others
                        } else {
                            &mut open
                        };
                        to_open.get_or_insert((giant, word));
                    }
                    has_any |= word.free() > 0;
                    pass.other |= mobility
                        .other()
                        .is_some_and(|other| word.may_have(order, other));
                    pages_of(segment, giant, word, want, from)
                } else if order == GIANT_ORDER && word.free() == HUGES {
                    Err(Miss::Changed)
                } else if order == HUGE_ORDER && skips {
                    skipped = skipped.or(Some(giant));
                    has_any = true;
                    continue;
                } else {
                    huges_of(segment, giant, word, want, from)
                }
            }
        };
        match found {
            Ok(found) => return Some(found),
            Err(miss) => pass.changed |= miss == Miss::Changed,
        }
    }
    if whole.is_none() {
        open = open.or(others);
    }
    // If other CPUs are faster, another pass follows.
    let found = match (open, whole) {
        (Some((giant, word)), _) => {
            hints.set_opened(Opened::new(word, want));
            first_free_of(segment, giant, want, from)
        }
        (None, Some((giant, word))) => split(segment, giant, word, want),
        (None, None) => take_skipped(segment, skipped?, want, from),
    };
    pass.changed |= found.is_err();
    found.ok()
}

/// Whether only pages of the other mobility are free in a split giant frame: its free huge frames are best left to those, so
/// that it comes back whole or stays for long.
fn is_others(word: Giant, mobility: Mobility) -> bool {
    let is_of = |one: Mobility| word.partial(one) > 0;
    mobility.other().is_some_and(is_of) && !is_of(mobility)
}

/// A block of a free giant frame that is split for it.
fn split(
    segment: &Segment<'_>,
    giant: GiantIndex,
    word: Giant,
    want: BlockRequest<'_>,
) -> Result<Frame, Miss> {
    segment.take_below(giant, word, || {
        let Range { start, end } = segment.huges_in(giant);
        let from = if want.mobility.is_movable() {
            end - 1
        } else {
            start
        };
        let word = segment.giant(giant);
        if want.order < HUGE_ORDER {
            first_free_of(segment, giant, want, from)
        } else {
            huges_of(segment, giant, word, want, from)
        }
    })
}

/// A block of a giant frame of known content.
#[cold]
fn take_skipped(
    segment: &Segment<'_>,
    giant: GiantIndex,
    want: BlockRequest<'_>,
    from: HugeIndex,
) -> Result<Frame, Miss> {
    let word = segment.giant(giant);
    match word.state() {
        GiantState::Free if want.order == GIANT_ORDER => take_giant(segment, giant, word, want),
        GiantState::Free => split(segment, giant, word, want),
        GiantState::Split if want.order <= HUGE_ORDER => first_free_of(segment, giant, want, from),
        // It was seen free.
        _ => Err(Miss::Changed),
    }
}

/// A free giant frame.
fn take_giant(
    segment: &Segment<'_>,
    giant: GiantIndex,
    word: Giant,
    want: BlockRequest<'_>,
) -> Result<Frame, Miss> {
    if segment.take_giant(giant, word, want.purpose()) {
        Ok(segment.giant_frames(giant).start())
    } else {
        Err(Miss::Changed)
    }
}

/// Takes a block of pages from a huge frame that is split for the other mobility.
pub(crate) fn any_of_other(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
) -> Option<Frame> {
    let mobility = want.mobility.other()?;
    any_of_split(
        segment,
        hints,
        BlockRequest { mobility, ..want },
        usize::MAX,
    )
}

/// Takes a block of pages from a huge frame that is split for its mobility already, of the
/// next `giants` giant frames.
pub(crate) fn any_of_split(
    segment: &Segment<'_>,
    hints: &Hints,
    want: BlockRequest<'_>,
    giants: usize,
) -> Option<Frame> {
    let from = hints.get(want.mobility);
    let mut giants = giants_around(segment, from, want.mobility).take(giants);
    giants.find_map(|giant| {
        let word = segment.giant(giant);
        if word.state() != GiantState::Split {
            return None;
        }
        pages_of(segment, giant, word, want, from).ok()
    })
}

/// A block below [`HUGE_ORDER`] from a huge frame that is split for its mobility.
fn pages_of(
    segment: &Segment<'_>,
    giant: GiantIndex,
    word: Giant,
    want: BlockRequest<'_>,
    from: HugeIndex,
) -> Result<Frame, Miss> {
    let BlockRequest {
        order, mobility, ..
    } = want;
    if !word.may_have(order, mobility) {
        return Err(Miss::Nothing);
    }
    let counted = word.partial(mobility);
    // Upwards, up to the first that counts, words are read in a row.
    let huges = segment.huges_in(giant);
    let down = mobility.is_movable();
    let from = if down {
        from
    } else {
        let first = if huges.contains(&from) {
            from
        } else {
            huges.start
        };
        let is_counted = |word: Huge| word.is_counted_for(mobility);
        (segment.find_huge(first..huges.end, is_counted)).unwrap_or(first)
    };
    let mut miss = Miss::Nothing;
    let mut passed = 0;
    for huge in around(huges, from, down) {
        let word = segment.huge(huge);
        if !word.is_counted_for(mobility) {
            continue;
        }
        passed += 1;
        if word.may_have(order, mobility) {
            match take_pages(segment, huge, want) {
                Ok(start) => return Ok(start),
                Err(seen) => miss = seen.unwrap_or(miss),
            }
        }
        // Those that had a page were as many as there are. A larger block may lie in one that
        // is left, where others became partial and full meanwhile.
        if order == 0 && passed == counted {
            break;
        }
    }
    if order > 0 {
        segment.lower_giant_bound(giant, mobility, order);
    }
    // Fewer than counted: one is being opened, filled, emptied or merged just now.
    if passed < counted {
        Err(Miss::Changed)
    } else {
        Err(miss)
    }
}

/// Any block of a split huge frame; an error that says whether it is worth another look.
#[inline]
fn take_pages(
    segment: &Segment<'_>,
    huge: HugeIndex,
    want: BlockRequest<'_>,
) -> Result<Frame, Option<Miss>> {
    match segment.take_one(huge, want.purpose(), Part::Any(want.order, want.frames())) {
        Ok(start) => Ok(start),
        Err(Miss::Nothing) => {
            segment.lower_bound(huge, want.order);
            // A word that says that a page is free is about to change.
            Err((want.order == 0).then_some(Miss::Changed))
        }
        Err(Miss::Changed) => Err(Some(Miss::Changed)),
    }
}

/// The first block of the next free huge frame of a split giant frame.
fn first_free_of(
    segment: &Segment<'_>,
    giant: GiantIndex,
    want: BlockRequest<'_>,
    from: HugeIndex,
) -> Result<Frame, Miss> {
    let part = if want.is_whole() {
        Part::Whole
    } else {
        Part::Any(want.order, want.frames())
    };
    let take = |is_free: fn(Huge) -> bool| {
        let mut huges = huges_around(segment, giant, from, want.mobility);
        huges.find_map(|huge| {
            let is_free = is_free(segment.huge(huge));
            is_free.then(|| segment.take_one(huge, want.purpose(), part).ok())?
        })
    };
    if !want.skips_known() {
        return take(Huge::is_free).ok_or(Miss::Changed);
    }
    let found = take(Huge::is_free_unknown);
    found.or_else(|| take(Huge::is_free)).ok_or(Miss::Changed)
}

/// A block of one or more whole huge frames, below [`GIANT_ORDER`].
fn huges_of(
    segment: &Segment<'_>,
    giant: GiantIndex,
    word: Giant,
    want: BlockRequest<'_>,
    from: HugeIndex,
) -> Result<Frame, Miss> {
    let order = want.order;
    let start = segment.giant_frames(giant).start();
    let block = Block { start, order };
    if word.free() < block.huges() {
        return Err(Miss::Nothing);
    }
    if order == HUGE_ORDER {
        return first_free_of(segment, giant, want, from);
    }
    let any = |skips_known: bool| {
        let mut miss = Miss::Nothing;
        for block in block.siblings_in_giant() {
            if skips_known && segment.may_be_known(block) {
                continue;
            }
            match segment.take_huges(block, want.purpose()) {
                Ok(()) => return Ok(block.start),
                Err(Miss::Changed) => miss = Miss::Changed,
                Err(Miss::Nothing) => {}
            }
        }
        Err(miss)
    };
    // What is skipped first is taken after all, if there is nothing else.
    if want.skips_known() && word.known() > 0 {
        return any(true).or_else(|_| any(false));
    }
    any(false)
}
