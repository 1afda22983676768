//! Taking a range out of use while some of it is still allocated: [`Isolation`].
//!
//! *Isolated frames can be freed but not allocated.* Memory that is to be removed, or to become
//! one block of gigantic size, is isolated; frames in use there are moved away or waited for;
//! then the whole range is taken.

use core::fmt;

use crate::addr::{Frame, FrameRange};
use crate::frames::find::Frames;
use crate::frames::segment::Segment;
use crate::frames::segment::isolate::AlreadyIsolated;
use crate::frames::word::geometry::{HUGE_FRAMES, blocks};
use crate::frames::zone::segment::ZoneSegment;

/// A range can't be isolated, or can't be taken: nothing of it is allocated by the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolateError {
    /// The range does not begin or end where a huge frame does, nor where memory does.
    Misaligned {
        /// The range of the call.
        range: FrameRange,
    },
    /// There is no memory in it.
    NoMemory {
        /// The range of the call.
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

/// A range of which nothing can be allocated. Dropping it makes its free frames available again.
///
/// A segment of it that had no memory before, and gets some meanwhile, is not isolated, and counts
/// as in use.
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
    shared: &'f Frames<'m>,
    range: FrameRange,
}

/// The huge frames of `range`, segment by segment.
fn huges_in<'f, 'm>(
    shared: &'f Frames<'m>,
    range: FrameRange,
) -> impl Iterator<Item = (&'f Segment<'m>, core::ops::Range<usize>)> {
    let online = |segment: &'f ZoneSegment<'m>| segment.online();
    let segments = shared.nodes.segments.iter();
    let inside = segments.filter(move |one| !one.frames().intersect(range).is_empty());
    inside
        .filter_map(online)
        .map(move |online| (online, online.huges_touched(online.frames.intersect(range))))
}

/// Those that an isolation of `range` has isolated: not of segments that became memory since.
fn isolated_in<'f, 'm>(
    shared: &'f Frames<'m>,
    range: FrameRange,
) -> impl Iterator<Item = (&'f Segment<'m>, core::ops::Range<usize>)> {
    huges_in(shared, range).filter(|(segment, huges)| segment.is_isolated(huges.start))
}

/// What of a huge frame lies in its segment.
fn inside(segment: &Segment<'_>, huge: usize) -> FrameRange {
    segment.huge_frames(huge).intersect(segment.frames)
}

impl<'f, 'm> Isolation<'f, 'm> {
    /// Isolates the memory in `range`, as [`Frames::isolate`](crate::frames::Frames::isolate).
    pub(crate) fn new(shared: &'f Frames<'m>, range: FrameRange) -> Result<Self, IsolateError> {
        let mut any = false;
        for (segment, huges) in huges_in(shared, range) {
            any = true;
            for huge in [huges.start, huges.end - 1] {
                if !range.covers(inside(segment, huge)) {
                    return Err(IsolateError::Misaligned { range });
                }
            }
        }
        if !any {
            return Err(IsolateError::NoMemory { range });
        }
        let mut done = Self {
            shared,
            range: FrameRange::EMPTY,
        };
        for (segment, huges) in huges_in(shared, range) {
            for huge in huges {
                let inside = inside(segment, huge);
                // `done` ends the isolation of what came before.
                (segment.isolate(huge)).map_err(|AlreadyIsolated| IsolateError::Isolated {
                    frame: inside.start(),
                })?;
                let isolated = FrameRange::new(range.start().get(), inside.end().get());
                done.range = isolated.unwrap_or(done.range);
            }
        }
        done.range = range;
        shared.drain_all();
        Ok(done)
    }

    #[cfg(feature = "hotplug")]
    pub(super) fn shared(&self) -> &'f Frames<'m> {
        self.shared
    }

    /// The isolated range, holes included.
    pub fn range(&self) -> FrameRange {
        self.range
    }

    /// The first frame that is still allocated or reserved; what CPUs cache too, until they
    /// make their next call: isolating requested them to drain. The allocator's own tables are
    /// reserved for good: a range with some of them never becomes empty. A page that a call in
    /// flight took just before counts as in use until that call frees it.
    pub fn first_in_use(&self) -> Option<Frame> {
        let mut all = huges_in(self.shared, self.range);
        all.find_map(|(segment, mut huges)| {
            // It came after the isolation, and may be anyone's.
            if !segment.is_isolated(huges.start) {
                return Some(inside(segment, huges.start).start());
            }
            huges.find_map(|huge| (segment.in_use(huge) > 0).then(|| segment.first_in_use(huge))?)
        })
    }

    /// How many frames are still allocated or reserved.
    pub fn frames_in_use(&self) -> u64 {
        let all = isolated_in(self.shared, self.range);
        all.map(|(segment, huges)| huges.map(|huge| segment.in_use(huge)).sum::<u64>())
            .sum()
    }

    /// Ends the isolation by allocating all of it to the caller, as
    /// [`Frames::allocate_range`](crate::frames::Frames::allocate_range) would have.
    ///
    /// # Errors
    /// [`IsolateError::InUse`]; the isolation has ended then, and what is free can be
    /// allocated again. Check [`Isolation::first_in_use`] before.
    pub fn take(mut self) -> Result<FrameRange, IsolateError> {
        if let Some(frame) = self.first_in_use() {
            return Err(IsolateError::InUse { frame });
        }
        self.take_all()
            .map_err(|frame| IsolateError::InUse { frame })?;
        for (segment, huges) in isolated_in(self.shared, self.range) {
            huges.for_each(|huge| segment.end_isolation(huge));
            let taken = segment.frames.intersect(self.range);
            self.shared.nodes.count_range(taken, -1);
            self.shared.nodes.prepare_range(taken);
        }
        Ok(core::mem::take(&mut self.range))
    }

    /// Makes all of it allocated, still isolated; or nothing: the error is the first frame of the
    /// huge frame that was in use.
    fn take_all(&self) -> Result<(), Frame> {
        let all = || {
            let segments = isolated_in(self.shared, self.range);
            segments.flat_map(|(segment, huges)| huges.map(move |huge| (segment, huge)))
        };
        let Some((segment, failed)) = all().find(|&(segment, huge)| !segment.take_isolated(huge))
        else {
            return Ok(());
        };
        let frame = inside(segment, failed).start();
        let mine = all().take_while(|&(at, huge)| inside(at, huge).start() < frame);
        for (segment, huge) in mine {
            for block in blocks(inside(segment, huge)) {
                // An error: another call freed what was not its own.
                let _ = segment.give(block);
            }
        }
        Err(frame)
    }

    /// The same, and the caller ends the isolation.
    #[cfg(feature = "hotplug")]
    pub(crate) fn take_words(mut self) -> Result<(), Frame> {
        self.take_all()?;
        self.range = FrameRange::EMPTY;
        Ok(())
    }
}

impl Drop for Isolation<'_, '_> {
    fn drop(&mut self) {
        for (segment, huges) in isolated_in(self.shared, self.range) {
            huges.for_each(|huge| segment.end_isolation(huge));
        }
    }
}
