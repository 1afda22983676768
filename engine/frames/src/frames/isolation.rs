//! Taking a range out of use while some of it is still allocated: [`Isolation`].
//!
//! *Isolated frames can be freed but not allocated.* Memory that is to be removed, or to become
//! one block of gigantic size, is isolated; frames in use there are moved away or waited for;
//! then the whole range is taken.

use core::ops::Range;

use crate::addr::{Frame, FrameRange, PAGE_SHIFT, PHYS_END, PhysRange};
use crate::frames::cpu::drain::DrainRequest;
use crate::frames::find::Frames;
use crate::frames::hotplug_error::{Holder, HotplugError, Refusal};
use crate::frames::segment::isolate::AlreadyIsolated;
use crate::frames::segment::{HugeIndex, Segment};
use crate::frames::word::geometry::blocks;
use crate::frames::zone::segment::ZoneSegment;

/// A range of which nothing can be allocated. Dropping it makes its free frames available again.
///
/// All of it is memory until then, but for holes where no memory comes: what is isolated does not go
/// offline by another call. Pages that come to a huge frame of it are isolated, too.
///
/// ```
/// # use firstlight_frames::addr::FrameRange;
/// # use firstlight_frames::frames::{Frames, HotplugError};
/// /// Takes a range out of use, calling `move_away` for what is still in use there.
/// fn evacuate(
///     frames: &Frames<'_>,
///     range: FrameRange,
///     mut move_away: impl FnMut(firstlight_frames::addr::Frame) -> bool,
/// ) -> Result<FrameRange, HotplugError> {
///     let isolation = frames.isolate(range)?;
///     while isolation.first_in_use().is_some_and(&mut move_away) {}
///     isolation.take() // or all is as before
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the isolation"]
pub struct Isolation<'f, 'm> {
    shared: &'f Frames<'m>,
    range: FrameRange,
}

/// The huge frames of `range`, by the segments that have them, in ascending order. What is isolated
/// stays in its segment.
fn huges_in<'f, 'm>(
    shared: &'f Frames<'m>,
    range: FrameRange,
) -> impl Iterator<Item = (&'f Segment<'m>, Range<HugeIndex>)> {
    let parts = shared.nodes.segments.whole_parts(range);
    parts.filter_map(|(segment, part)| {
        let online = segment.online()?;
        Some((online, online.huges_touched(part)))
    })
}

/// The huge frames with memory in `range`, one by one.
fn each_in<'f, 'm>(
    shared: &'f Frames<'m>,
    range: FrameRange,
) -> impl Iterator<Item = (&'f Segment<'m>, HugeIndex)> {
    huges_in(shared, range).flat_map(|(segment, huges)| huges.map(move |huge| (segment, huge)))
}

/// The first frame of `part` whose huge frame is no memory now, and may be later.
fn first_absent(shared: &Frames<'_>, segment: &ZoneSegment<'_>, part: FrameRange) -> Option<Frame> {
    let Some(online) = segment.online() else {
        return Some(part.start());
    };
    if segment.is_memory_from_start() {
        return shared.first_offline_in(online, part);
    }
    let list = segment.pinned();
    let is_absent = |huge: &HugeIndex| list.span_of_others(inside(online, *huge)).is_empty();
    let mut left = part;
    // Mostly there is none.
    while let Some(pinned) = list.first_in(left) {
        let run = list.run(pinned).0;
        let huges = online.huges_touched(run.intersect(left));
        // Of the huge frames of a run, all but the first and the last are pinned as a whole.
        let first = huges.clone().take(2).find(is_absent);
        if let Some(huge) = first {
            return Some(inside(online, huge).start().max(part.start()));
        }
        left = FrameRange::new(run.end().get(), left.end().get()).unwrap_or_default();
        if left.is_empty() {
            break;
        }
    }
    None
}

/// What of a huge frame lies in its segment.
fn inside(segment: &Segment<'_>, huge: usize) -> FrameRange {
    segment.huge_frames(huge).intersect(segment.frames)
}

/// Isolates `part`, which was memory of this segment; or nothing.
fn isolate_part(
    shared: &Frames<'_>,
    segment: &ZoneSegment<'_>,
    part: FrameRange,
) -> Result<(), (Frame, Refusal)> {
    let Some(online) = segment.online() else {
        return Ok(()); // It was online before.
    };
    let huges = online.huges_touched(part);
    let failed = (huges.clone()).find_map(|huge| {
        let AlreadyIsolated = online.isolate(huge).err()?;
        Some(huge)
    });
    let isolated = huges.start..failed.unwrap_or(huges.end);
    let refused = match failed {
        Some(huge) => Some((inside(online, huge).start(), Refusal::Isolated)),
        // From here on it does not go. If it went before, this sees it: the list changes before the word.
        // Of memory of the start: its frames count as offline before the word.
        None => first_absent(shared, segment, part).map(|frame| (frame, Refusal::NotMemory)),
    };
    refused.map_or(Ok(()), |why| {
        isolated.for_each(|huge| online.end_isolation(huge));
        Err(why)
    })
}

/// The addresses of `range`, as far as frames have some; of none, an empty range. Those without are no
/// memory, and refused as such.
pub(super) fn addrs(range: FrameRange) -> PhysRange {
    let all = FrameRange::new(0, PHYS_END >> PAGE_SHIFT).unwrap_or_default();
    range.intersect(all).checked_addrs().unwrap_or_default()
}

impl Frames<'_> {
    /// `frames` frames of `range` are in use, from `frame` on.
    pub(super) fn in_use(&self, range: PhysRange, frame: Frame, frames: u64) -> HotplugError {
        let why = Refusal::InUse {
            frames: frames.max(1),
            holder: Holder::Allocation,
            held_by_cpus: DrainRequest::new(&self.cpus).pending_frames(),
            in_work: self.in_work(),
        };
        HotplugError::at(range, frame, why)
    }
}

impl<'f, 'm> Isolation<'f, 'm> {
    /// Isolates the memory in `range`, as [`Frames::isolate`](crate::frames::Frames::isolate).
    pub(crate) fn new(shared: &'f Frames<'m>, range: FrameRange) -> Result<Self, HotplugError> {
        let refused = |frame, why| HotplugError::at(addrs(range), frame, why);
        let mut any = false;
        for (segment, part) in shared.nodes.segments.whole_parts(range) {
            any = true;
            if let Some(frame) = first_absent(shared, segment, part) {
                return Err(refused(frame, Refusal::NotMemory));
            }
        }
        if !any {
            return Err(refused(range.start(), Refusal::NotMemory));
        }
        let covers = |segment: &Segment<'_>, huge| range.covers(inside(segment, huge));
        for (segment, huges) in huges_in(shared, range) {
            if !(covers(segment, huges.start) && covers(segment, huges.end - 1)) {
                return Err(refused(range.start(), Refusal::Misaligned));
            }
        }
        let mut done = Self {
            shared,
            range: FrameRange::EMPTY,
        };
        for (segment, part) in shared.nodes.segments.whole_parts(range) {
            // `done` ends the isolation of the parts before.
            isolate_part(shared, segment, part).map_err(|(frame, why)| refused(frame, why))?;
            let isolated = FrameRange::new(range.start().get(), part.end().get());
            done.range = isolated.unwrap_or_default();
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
        let mut all = each_in(self.shared, self.range);
        all.find_map(|(segment, huge)| {
            (segment.in_use(huge) > 0).then(|| segment.first_in_use(huge))?
        })
    }

    /// How many frames are still allocated or reserved.
    pub fn frames_in_use(&self) -> u64 {
        let all = each_in(self.shared, self.range);
        all.map(|(segment, huge)| segment.in_use(huge)).sum()
    }

    /// Ends the isolation by allocating all of it to the caller, as
    /// [`Frames::allocate_range`](crate::frames::Frames::allocate_range) would have.
    ///
    /// # Errors
    /// [`Refusal::InUse`]; the isolation has ended then, and what is free can be
    /// allocated again. Check [`Isolation::first_in_use`] before.
    pub fn take(mut self) -> Result<FrameRange, HotplugError> {
        let in_use = |frame, frames| self.shared.in_use(addrs(self.range), frame, frames);
        if let Some(frame) = self.first_in_use() {
            return Err(in_use(frame, self.frames_in_use()));
        }
        self.take_all().map_err(|frame| in_use(frame, 1))?;
        let nodes = &self.shared.nodes;
        for (segment, part) in nodes.segments.parts(self.range) {
            if let Some(online) = segment.online() {
                let huges = online.huges_touched(part);
                huges.for_each(|huge| online.end_isolation(huge));
                nodes.count(segment, -part.count().cast_signed());
                nodes.prepare_range(part);
            }
        }
        Ok(core::mem::take(&mut self.range))
    }

    /// Makes all of it allocated, still isolated; or nothing: the error is the first frame of the
    /// huge frame that was in use.
    fn take_all(&self) -> Result<(), Frame> {
        let all = || each_in(self.shared, self.range);
        let Some((segment, failed)) = all().find(|&(segment, huge)| !segment.take_isolated(huge))
        else {
            return Ok(());
        };
        let frame = inside(segment, failed).start();
        let mine = all().take_while(|&(segment, huge)| inside(segment, huge).start() < frame);
        for (segment, huge) in mine {
            for block in blocks(inside(segment, huge)) {
                // An error: another call freed what was not its own.
                let _ = segment.give(block);
            }
        }
        Err(frame)
    }

    /// Makes all of it allocated, or nothing; the caller ends the isolation.
    #[cfg(feature = "hotplug")]
    pub(crate) fn take_words(mut self) -> Result<(), Frame> {
        self.take_all()?;
        self.range = FrameRange::EMPTY;
        Ok(())
    }
}

impl Drop for Isolation<'_, '_> {
    fn drop(&mut self) {
        let all = each_in(self.shared, self.range);
        all.for_each(|(segment, huge)| segment.end_isolation(huge));
    }
}
