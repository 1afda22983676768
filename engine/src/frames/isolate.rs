//! Taking a range out of use while some of it is still allocated: [`Isolation`].
//!
//! *What is isolated can be given back but not taken.* The mark is a bit in the word
//! of each huge frame; the counts of its giant frame leave it out, so that no search and
//! no promise comes near it, and allocation pays nothing. Memory that is to be removed, or
//! to become one block of gigantic size, is isolated, what is in use there is moved away
//! or waited for, and then the whole is taken.

use core::fmt;

use super::geometry::{HUGE_FRAMES, HUGES};
use super::request::Mobility;
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::split::Pages;
use super::word::{Change, Giant, GiantState, Huge, HugeState};
use super::{Frames, Place};
use crate::addr::{Frame, FrameRange};
use crate::sync::pause;

/// A range can't be isolated, or not be taken; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolateError {
    /// The range does not begin or end where a huge frame does, nor where memory does.
    Misaligned {
        /// The range asked for.
        range: FrameRange,
    },
    /// There is no memory in it.
    NoMemory {
        /// The range asked for.
        range: FrameRange,
    },
    /// Some of it is isolated already.
    Isolated {
        /// First frame of the first huge frame that is.
        frame: Frame,
    },
    /// Some of it is still allocated or reserved.
    InUse {
        /// The first frame that is.
        frame: Frame,
    },
}

impl fmt::Display for IsolateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { range } => write!(
                f,
                "{range} can't be isolated: expected a begin and an end at multiples of {HUGE_FRAMES:#x} frames, or where memory ends"
            ),
            Self::NoMemory { range } => write!(f, "{range} can't be isolated: no memory there"),
            Self::Isolated { frame } => {
                write!(f, "{frame} is isolated already: end that isolation first")
            }
            Self::InUse { frame } => write!(
                f,
                "{frame} is still allocated or reserved: move it away or free it, then try again"
            ),
        }
    }
}

impl core::error::Error for IsolateError {}

/// A range of which nothing can be allocated. Dropping it lets what is free be allocated
/// again.
///
/// ```
/// # use firstlight::addr::FrameRange;
/// # use firstlight::frames::{Frames, IsolateError};
/// /// Takes a range out of use, calling `move_away` for what is still in use there.
/// fn evacuate(
///     frames: &Frames<'_>,
///     range: FrameRange,
///     mut move_away: impl FnMut(firstlight::addr::Frame) -> bool,
/// ) -> Result<FrameRange, IsolateError> {
///     let isolation = frames.isolate(range)?;
///     while let Some(frame) = isolation.first_in_use() {
///         if !move_away(frame) {
///             return Err(IsolateError::InUse { frame }); // all is as before
///         }
///     }
///     isolation.take()
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the isolation"]
pub struct Isolation<'f, 'm> {
    frames: &'f Frames<'m>,
    range: FrameRange,
}

impl<'m> Frames<'m> {
    /// Isolates the memory in `range`: whole huge frames, or up to where memory ends. Holes
    /// in it are skipped. Costs a step a huge frame.
    ///
    /// What lies in magazines counts as in use; all CPUs are asked to give theirs back.
    /// The caller drains its own first.
    ///
    /// # Errors
    /// [`IsolateError`], but not [`IsolateError::InUse`].
    pub fn isolate(&self, range: FrameRange) -> Result<Isolation<'_, 'm>, IsolateError> {
        let mut any = false;
        for (segment, huges) in self.huges_in(range) {
            any = true;
            for huge in [huges.start, huges.end - 1] {
                let inside = segment.huge_frames(huge).intersect(segment.frames);
                if !range.covers(inside) {
                    return Err(IsolateError::Misaligned { range });
                }
            }
        }
        if !any {
            return Err(IsolateError::NoMemory { range });
        }
        let mut done = Isolation {
            frames: self,
            range: FrameRange::EMPTY,
        };
        for (segment, huges) in self.huges_in(range) {
            for huge in huges {
                let inside = segment.huge_frames(huge).intersect(segment.frames);
                // `done` ends the isolation of what came before.
                (segment.isolate(huge)).map_err(|AlreadyIsolated| IsolateError::Isolated {
                    frame: inside.start(),
                })?;
                done.range =
                    FrameRange::new(range.start().get(), inside.end().get()).unwrap_or(done.range);
            }
        }
        done.range = range;
        self.cpus.ask_everybody();
        Ok(done)
    }

    /// The huge frames of `range`, segment by segment.
    fn huges_in(
        &self,
        range: FrameRange,
    ) -> impl Iterator<Item = (&Segment<'m>, core::ops::Range<HugeIndex>)> {
        let places = self.directory.places.iter();
        let inside = move |place: &'_ Place<'m>| place.frames().intersect(range);
        places
            .filter(move |place| !inside(place).is_empty())
            .map(move |place| {
                let (segment, inside) = (place.segment(), inside(place));
                let last = Frame::new(inside.end().get() - 1);
                let huges = segment.huge_of(inside.start())..segment.huge_of(last) + 1;
                (segment, huges)
            })
    }
}

impl Isolation<'_, '_> {
    /// What is isolated, holes included.
    pub fn range(&self) -> FrameRange {
        self.range
    }

    /// The first frame that is still allocated or reserved; what lies in magazines too, until
    /// its CPU makes its next call: [`Frames::isolate`] asked all. The allocator's
    /// own tables are reserved for good: a range with some of them never becomes empty.
    /// Looks from the start of the range on, a step a huge frame.
    pub fn first_in_use(&self) -> Option<Frame> {
        let mut all = self.frames.huges_in(self.range);
        all.find_map(|(segment, mut huges)| huges.find_map(|huge| segment.first_in_use(huge)))
    }

    /// How many frames are still allocated or reserved.
    pub fn frames_in_use(&self) -> u64 {
        let all = self.frames.huges_in(self.range);
        all.map(|(segment, huges)| huges.map(|huge| segment.in_use(huge)).sum::<u64>())
            .sum()
    }

    /// Ends the isolation by allocating all of it to the caller, as
    /// [`Frames::claim`] would have.
    ///
    /// # Errors
    /// [`IsolateError::InUse`]; the isolation has ended then, and what is free can be
    /// allocated again. Ask [`Isolation::first_in_use`] before.
    pub fn take(mut self) -> Result<FrameRange, IsolateError> {
        // Nothing becomes allocated while it is isolated.
        if let Some(frame) = self.first_in_use() {
            return Err(IsolateError::InUse { frame });
        }
        for (segment, huges) in self.frames.huges_in(self.range) {
            huges.for_each(|huge| segment.take_isolated(huge));
        }
        self.frames.count_range(self.range, -1);
        Ok(core::mem::take(&mut self.range))
    }
}

impl Drop for Isolation<'_, '_> {
    fn drop(&mut self) {
        for (segment, huges) in self.frames.huges_in(self.range) {
            huges.for_each(|huge| segment.end_isolation(huge));
        }
    }
}

/// Somebody else isolated the huge frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AlreadyIsolated;

impl Segment<'_> {
    /// From now on nothing of the huge frame can be taken.
    pub(super) fn isolate(&self, huge: HugeIndex) -> Result<(), AlreadyIsolated> {
        let giant = self.giant_of(self.huge_frames(huge).start());
        loop {
            let word = self.giant(giant);
            let done = match word.state {
                GiantState::Splitting => false,
                GiantState::Whole | GiantState::Allocated => self.open_isolating(giant, word, huge),
                GiantState::Split => {
                    let seen = self.settled_huge(huge);
                    if seen.isolated {
                        return Err(AlreadyIsolated);
                    }
                    self.mark_isolated(giant, huge, seen)
                }
            };
            if done {
                return Ok(());
            }
            pause();
        }
    }

    /// Marks a huge frame, found as `seen`, of a split giant frame; `false` if it changed.
    fn mark_isolated(&self, giant: GiantIndex, huge: HugeIndex, seen: Huge) -> bool {
        if seen == Huge::FREE {
            // Out of the count first, as if it were taken.
            let promised = self.change_giant(giant, Change::free(-1).and_busy(1));
            if promised.is_err() {
                return false;
            }
            let mine = self.swap_huge(huge, seen, seen.with_isolated(true));
            let back = Change::free(i32::from(!mine)).and_busy(-1);
            self.settle_giant(giant, back);
            return mine;
        }
        let mine = self.swap_huge(huge, seen, seen.with_isolated(true));
        if mine && seen.is_partial() {
            self.settle_giant(giant, Change::partial(seen.mobility, -1));
        }
        mine
    }

    /// Opens a giant frame that is one block, found as `from`, with one huge frame of it
    /// isolated and all as it was.
    fn open_isolating(&self, giant: GiantIndex, from: Giant, huge: HugeIndex) -> bool {
        if !self.swap_giant(giant, from, Giant::SPLITTING) {
            return false;
        }
        let (all, free) = if from.state == GiantState::Whole {
            (Huge::FREE, HUGES - 1)
        } else {
            (Huge::allocated(Mobility::Unmovable), 0)
        };
        // Each word once: who saw one before may take it from the moment it is written.
        let huges = self.huges_in(giant);
        self.publish_huges(huges.start..huge, all);
        self.publish_huge(huge, all.with_isolated(true));
        self.publish_huges(huge + 1..huges.end, all);
        self.publish_giant(giant, Giant::split(free, [0; 2]));
        true
    }

    /// What is free of an isolated huge frame can be taken again.
    pub(super) fn end_isolation(&self, huge: HugeIndex) {
        let giant = self.giant_of(self.huge_frames(huge).start());
        loop {
            let seen = self.settled_huge(huge);
            let now = seen.with_isolated(false);
            if now.is_partial() {
                self.settle_giant(giant, Change::partial(now.mobility, 1));
            }
            if self.swap_huge(huge, seen, now) {
                if now == Huge::FREE {
                    self.settle_giant(giant, Change::free(1));
                } else {
                    self.pass_on_bound(giant, now);
                }
                return;
            }
            if now.is_partial() {
                self.settle_giant(giant, Change::partial(now.mobility, -1));
            }
            pause();
        }
    }

    /// Makes an isolated huge frame of which nothing is in use allocated.
    pub(super) fn take_isolated(&self, huge: HugeIndex) {
        let inside = self.huge_frames(huge).intersect(self.frames);
        let mut seen = self.settled_huge(huge);
        // It is the caller's alone first: frames freed twice may come back just now.
        while !self.swap_huge(huge, seen, Huge::SPLITTING) {
            seen = self.settled_huge(huge);
        }
        if inside.count() == u64::from(HUGE_FRAMES) {
            self.publish_huge(huge, Huge::allocated(seen.mobility));
        } else {
            // It crosses the end of the segment: its pages are allocated one by one.
            let taken = Pages {
                at: 0,
                count: HUGE_FRAMES,
                taken: true,
            };
            let word = self.write_row(huge, seen.mobility, taken);
            self.publish_huge(huge, word);
        }
    }

    /// The first frame of an isolated huge frame that is allocated or reserved. Waits for
    /// calls that were promised some of it, or have not yet counted what they freed of it.
    pub(super) fn first_in_use(&self, huge: HugeIndex) -> Option<Frame> {
        let inside = self.huge_frames(huge).intersect(self.frames);
        while self.in_use(huge) > 0 {
            let mut all = (inside.start().get()..inside.end().get()).map(Frame::new);
            let allocated = all.find(|&frame| self.is_allocated(frame));
            if allocated.is_some() {
                return allocated;
            }
            pause();
        }
        None
    }

    /// How many frames of an isolated huge frame are allocated or reserved.
    fn in_use(&self, huge: HugeIndex) -> u64 {
        let inside = self.huge_frames(huge).intersect(self.frames).count();
        let word = self.settled_huge(huge);
        match word.state {
            HugeState::Free => 0,
            HugeState::Split => inside - u64::from(word.free),
            HugeState::Allocated | HugeState::Splitting => inside,
        }
    }
}
