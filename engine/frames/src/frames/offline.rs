//! Memory that goes: [`Frames::offline`], [`Frames::online`], [`Frames::remove`].
//!
//! *Offline is the reverse of [`Frames::add`]*: the range is isolated, the caches of CPUs are
//! drained, all of it is taken, and it is put back on the list of frames that can't be freed. The
//! words of its huge frames say that it is offline, until it comes online, or is removed: then it
//! is absent, as before it was added.

use super::find::Frames;
use super::hotplug_error::{Holder, HotplugError, Refusal};
use super::isolation::{Isolation, addrs};
use super::range;
use super::segment::Segment;
use super::segment::pinned::Unpin;
use super::segment::pinned::hotplug::Hotplug;
use super::word::Content;
use super::word::geometry::HUGE_FRAMES;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, PhysRange};
use crate::sync::Ordering;

impl<'m> Frames<'m> {
    /// Takes all of `range` out of use: isolates it, has CPUs drain their caches, and takes it.
    /// From then on it is neither allocated nor freed, and counts as no memory. The caller drains
    /// its own cache first, and moves or frees what is in use.
    ///
    /// Costs a step a huge frame, whatever the size of the machine.
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Frames, HotplugError};
    /// /// A DIMM that is to be unplugged.
    /// fn unplug(frames: &Frames<'_>, dimm: PhysRange) -> Result<(), HotplugError> {
    ///     frames.offline(dimm)?; // all is as before if some of it is in use
    ///     frames.remove(dimm)    // and from now on it may come again
    /// }
    /// ```
    ///
    /// # Errors
    /// [`HotplugError`]; nothing changed then.
    pub fn offline(&self, range: PhysRange) -> Result<(), HotplugError> {
        let (frames, one) = self.begin(range)?;
        self.must_be_online(range, frames)?;
        let isolation = self.isolate(frames)?;
        self.take_offline(range, isolation, &one)
    }

    /// All of an isolation, which ends.
    fn take_offline(
        &self,
        range: PhysRange,
        isolation: Isolation<'_, 'm>,
        one: &Hotplug<'_, 'm>,
    ) -> Result<(), HotplugError> {
        let frames = isolation.range();
        if let Some(frame) = isolation.first_in_use() {
            return Err(self.in_use(range, frame, isolation.frames_in_use()));
        }
        isolation
            .take_words()
            .map_err(|frame| self.in_use(range, frame, 1))?;
        let mut done = FrameRange::EMPTY;
        // Before the words: a call that isolates one of them sees the count.
        one.count(frames.count().cast_signed());
        let taken = if one.pin(frames) {
            self.take_parts(range, frames, &mut done)
        } else {
            let capacity = self.nodes.pinned.capacity();
            Err(HotplugError::of(range, Refusal::ListFull { capacity }))
        };
        if taken.is_err() {
            for (segment, part) in self.nodes.segments.parts(done) {
                segment.count_offline(-part.count().cast_signed());
                if segment.is_of_window() {
                    segment.pinned().unpin_back(part);
                }
            }
        }
        for (segment, _) in self.nodes.segments.parts(frames) {
            segment.pinned().release_undo_entries();
        }
        if let Err(why) = taken {
            one.undo();
            for (segment, huge) in self.huges(frames) {
                segment.end_offline(huge);
            }
            one.count(-frames.count().cast_signed());
            return Err(why);
        }
        self.nodes.count_range(frames, -1);
        self.count_moved(frames);
        Ok(())
    }

    /// Makes the words of `frames` say that they are offline, part by part; `done` are those of which
    /// they do.
    fn take_parts(
        &self,
        range: PhysRange,
        frames: FrameRange,
        done: &mut FrameRange,
    ) -> Result<(), HotplugError> {
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_part(&mut left) {
            let (of_window, list) = (segment.is_of_window(), segment.pinned());
            if of_window && !list.pin_undoable(part) {
                let capacity = list.capacity();
                return Err(HotplugError::of(range, Refusal::ListFull { capacity }));
            }
            // Only now: a free that read the list before it changed fails at the word.
            let went = segment.online().map(|online| {
                let mut all = online.huges_touched(part);
                let freed = all.find(|&huge| !online.set_offline(huge));
                freed.map(|huge| Frame::new(online.huge_start(huge)))
            });
            if let Some(frame) = went.unwrap_or(Some(part.start())) {
                if of_window {
                    list.unpin_back(part);
                }
                return Err(self.in_use(range, frame, 1));
            }
            segment.count_offline(part.count().cast_signed());
            *done = FrameRange::new(frames.start().get(), part.end().get()).unwrap_or_default();
        }
        Ok(())
    }

    /// CPUs look anew where they fill their lists from.
    pub(super) fn count_moved(&self, frames: FrameRange) {
        // Release: as in `Frames::add`.
        (self.nodes.added).fetch_add(frames.count(), Ordering::Release);
        self.drain_at_next_call();
    }

    pub(super) fn not_unpinned(&self, range: PhysRange, why: Unpin) -> HotplugError {
        match why {
            // What is offline is whole huge frames.
            Unpin::NotPinned(frame) | Unpin::OtherZone(frame) => {
                HotplugError::at(range, frame, Refusal::NotOffline)
            }
            Unpin::Full(capacity) => HotplugError::of(range, Refusal::ListFull { capacity }),
        }
    }

    /// Brings `range`, all of which is offline, back: all of it is free from now on, in the zone it
    /// was in.
    ///
    /// # Errors
    /// [`HotplugError`]; nothing changed then.
    pub fn online(&self, range: PhysRange) -> Result<(), HotplugError> {
        let (frames, one) = self.begin(range)?;
        self.must_be_offline(range, frames)?;
        let unpinned = self.unpin_offline(frames);
        unpinned.map_err(|why| self.not_unpinned(range, why))?;
        // Each is freed as what it is, allocated; an error: another call freed some of it at this
        // moment.
        let _ = range::free_with(&self.nodes, frames, Content::Unknown);
        one.count(-frames.count().cast_signed());
        self.count_moved(frames);
        Ok(())
    }

    /// Takes `frames`, all of which are offline, off the lists of what can't be freed.
    fn unpin_offline(&self, frames: FrameRange) -> Result<(), Unpin> {
        let segments = &self.nodes.segments;
        let mut offline = frames;
        let next_part = |left: &mut FrameRange| segments.next_part(left);
        self.nodes.unpin(frames, || Ok(()), &next_part)?;
        while let Some((segment, part)) = segments.next_part(&mut offline) {
            segment.count_offline(-part.count().cast_signed());
        }
        Ok(())
    }

    /// Removes `range`, all of which is offline: it is absent, and may be added again.
    ///
    /// # Errors
    /// [`HotplugError`]; nothing changed then.
    pub fn remove(&self, range: PhysRange) -> Result<(), HotplugError> {
        let (frames, one) = self.begin(range)?;
        self.must_be_offline(range, frames)?;
        self.must_be_added(range, frames)?;
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_part(&mut left) {
            segment.remove_offline(part);
        }
        one.count(-frames.count().cast_signed());
        Ok(())
    }

    /// Nothing of `frames` was memory from the start.
    fn must_be_added(&self, range: PhysRange, frames: FrameRange) -> Result<(), HotplugError> {
        let mut parts = self.nodes.segments.parts(frames);
        let from_start = parts.find(|(segment, _)| segment.is_memory_from_start());
        from_start.map_or(Ok(()), |(_, part)| {
            let frame = part.start();
            Err(HotplugError::at(range, frame, Refusal::FromStart))
        })
    }

    /// Whether all of the huge frame of `frame` is offline.
    pub(super) fn is_offline(&self, frame: Frame) -> bool {
        let segment = self.nodes.segments.at(frame);
        let online = segment.and_then(ZoneSegment::online);
        online.is_some_and(|online| online.is_offline(online.huge_of(frame)))
    }

    /// The first frame of `frames` that is offline, in any segment that has it.
    pub(super) fn first_offline(&self, frames: FrameRange) -> Option<Frame> {
        let started = self.nodes.segments.iter().filter_map(ZoneSegment::started);
        let offline = started
            .filter_map(|segment| self.first_offline_in(segment, frames.intersect(segment.frames)));
        offline.min()
    }

    /// `range` in frames, and no other call like this one until the second is dropped.
    pub(super) fn begin(
        &self,
        range: PhysRange,
    ) -> Result<(FrameRange, Hotplug<'_, 'm>), HotplugError> {
        let frames = whole_huges(range)?;
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_part(&mut left) {
            if !is_whole(part.intersect(segment.frames())) {
                // A huge frame that crosses the end of a zone or of memory.
                return Err(HotplugError::of(range, Refusal::Misaligned));
            }
            if !segment.is_present() {
                let frame = part.start();
                return Err(HotplugError::at(range, frame, Refusal::NotMemory));
            }
        }
        if !left.is_empty() {
            let frame = left.start();
            return Err(HotplugError::at(range, frame, Refusal::NotMemory));
        }
        self.begin_any(range)
    }

    /// `range` in frames, which need not be memory, and no other call like this one until the second is dropped.
    pub(super) fn begin_any(
        &self,
        range: PhysRange,
    ) -> Result<(FrameRange, Hotplug<'_, 'm>), HotplugError> {
        let frames = whole_huges(range)?;
        let one = self.nodes.pinned.begin_hotplug();
        Ok((frames, one.ok_or(HotplugError::of(range, Refusal::Busy))?))
    }

    /// Nothing of `frames` is offline, absent or reserved.
    fn must_be_online(&self, range: PhysRange, frames: FrameRange) -> Result<(), HotplugError> {
        let Some(frame) = self.nodes.pinned.first_in(frames) else {
            return Ok(());
        };
        let segment = self.nodes.segments.at(frame);
        let why = if self.is_offline(frame) {
            Refusal::Offline
        } else if segment.is_some_and(ZoneSegment::is_memory_from_start) {
            let owner = self.layout().owner_of(frame);
            Refusal::InUse {
                frames: self.nodes.pinned.frames_in(frames),
                holder: Holder::Reserved { owner },
                held_by_cpus: 0,
                in_work: 0,
            }
        } else {
            Refusal::NotMemory
        };
        Err(HotplugError::at(range, frame, why))
    }

    pub(super) fn must_be_offline(
        &self,
        range: PhysRange,
        frames: FrameRange,
    ) -> Result<(), HotplugError> {
        let mut parts = self.online_parts(frames);
        let online = parts.find_map(|(segment, part)| segment.first_offline(part, false));
        online.map_or(Ok(()), |frame| {
            Err(HotplugError::at(range, frame, Refusal::NotOffline))
        })
    }

    /// The parts of `frames`, in segments with memory.
    fn online_parts(&self, frames: FrameRange) -> impl Iterator<Item = (&Segment<'m>, FrameRange)> {
        let mut left = frames;
        core::iter::from_fn(move || self.nodes.segments.next_part(&mut left))
            .filter_map(|(segment, part)| Some((segment.online()?, part)))
    }

    /// The huge frames of `frames`, all of them whole.
    fn huges(&self, frames: FrameRange) -> impl Iterator<Item = (&Segment<'m>, usize)> {
        let parts = self.online_parts(frames);
        parts.flat_map(|(segment, part)| {
            (segment.huges_touched(part)).map(move |huge| (segment, huge))
        })
    }
}

/// Whether these are whole huge frames.
pub(super) fn is_whole(frames: FrameRange) -> bool {
    let mut ends = [frames.start(), frames.end()].into_iter();
    ends.all(|end| end.get().is_multiple_of(HUGE_FRAMES.into()))
}

/// The frames of `range`, which is whole huge frames.
fn whole_huges(range: PhysRange) -> Result<FrameRange, HotplugError> {
    let frames = range.inner_frames();
    if frames.is_empty() || frames.checked_addrs() != Some(range) || !is_whole(frames) {
        return Err(HotplugError::of(range, Refusal::Misaligned));
    }
    Ok(frames)
}

impl<'m> Isolation<'_, 'm> {
    /// Ends the isolation by taking all of it offline, as [`Frames::offline`]: for a kernel that
    /// moves away what is in use meanwhile.
    ///
    /// ```
    /// # use firstlight_frames::addr::{Frame, FrameRange};
    /// # use firstlight_frames::frames::{Frames, HotplugError};
    /// # fn evacuate(
    /// #     frames: &Frames<'_>, range: FrameRange, mut move_away: impl FnMut(Frame) -> bool,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let isolation = frames.isolate(range)?;
    /// while isolation.first_in_use().is_some_and(&mut move_away) {}
    /// isolation.offline()?; // or all is as before
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`HotplugError`]; the isolation has ended then, and what is free can be allocated again.
    pub fn offline(self) -> Result<(), HotplugError> {
        let (shared, range) = (self.shared(), addrs(self.range()));
        let (frames, one) = shared.begin(range)?;
        shared.must_be_online(range, frames)?;
        shared.take_offline(range, self, &one)
    }
}
