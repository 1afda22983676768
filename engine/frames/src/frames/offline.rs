//! Memory that goes: [`Frames::offline`], [`Frames::online`], [`Frames::remove`].
//!
//! *Offline is the reverse of [`Frames::add`]*: the range is isolated, the caches of CPUs are
//! drained, all of it is taken, and it is put back on the list of frames that can't be freed. The
//! words of its huge frames say that it is offline, until it comes online, or is removed: then it
//! is absent, as before it was added.

use core::fmt;

use super::find::Frames;
use super::isolation::{IsolateError, Isolation};
use super::range;
use super::segment::Segment;
use super::segment::pinned::Unpin;
use super::segment::pinned::hotplug::Hotplug;
use super::word::Content;
use super::word::geometry::HUGE_FRAMES;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, PAGE_SHIFT, PHYS_END, PhysRange};
use crate::sync::Ordering;

/// What holds a frame that keeps its range from going offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is reserved for ever: tables, descriptors, the kernel's image.
    Reserved {
        /// For what: the owner that early memory was given; `None` if its log had no space.
        owner: Option<&'static str>,
    },
    /// It is allocated; or cached by a CPU that has not drained its cache; or a worker has it.
    Allocation,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { owner: Some(owner) } => write!(f, "reserved for ever, for {owner}"),
            Self::Reserved { owner: None } => f.write_str("reserved for ever"),
            Self::Allocation => f.write_str("allocated"),
        }
    }
}

/// A range can't go offline, come online, or be removed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflineError {
    /// It does not begin and end where huge frames do, or is empty.
    Misaligned {
        /// The range.
        range: PhysRange,
    },
    /// Not all of it is memory.
    OutsideMemory {
        /// The range.
        range: PhysRange,
        /// Its first frame that is not.
        frame: Frame,
    },
    /// Another call takes memory offline, brings it online or removes it.
    Busy {
        /// The range.
        range: PhysRange,
    },
    /// Some of it is isolated by the kernel.
    Isolated {
        /// The range.
        range: PhysRange,
        /// The first frame that is.
        frame: Frame,
    },
    /// Some of it is in use.
    InUse {
        /// The range.
        range: PhysRange,
        /// The first frame that is.
        frame: Frame,
        /// How many are.
        frames: u64,
        /// What holds the first.
        holder: Holder,
        /// Frames that CPUs cache which have not drained, in the range or elsewhere.
        held_by_cpus: u64,
        /// Frames that workers have and give back soon, in the range or elsewhere.
        in_work: u64,
    },
    /// Some of it is offline already.
    Offline {
        /// The range.
        range: PhysRange,
        /// The first frame that is.
        frame: Frame,
    },
    /// Some of it is not offline.
    NotOffline {
        /// The range.
        range: PhysRange,
        /// The first frame that is not.
        frame: Frame,
    },
    /// Some of it was memory from the start: it can be offline, and stays.
    FromStart {
        /// The range.
        range: PhysRange,
        /// The first frame that was.
        frame: Frame,
    },
    /// The list of what can't be freed is full: it needs space for `capacity + 1` ranges.
    ListFull {
        /// The range.
        range: PhysRange,
        /// Ranges it has space for, one fewer than it needs.
        capacity: usize,
    },
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { range } => write!(
                f,
                "{range} can't go: expected one huge frame or more, and multiples of {HUGE_FRAMES:#x} frames"
            ),
            Self::OutsideMemory { range, frame } => {
                write!(f, "{range} can't go: {frame} is not memory")
            }
            Self::Busy { range } => write!(
                f,
                "{range} is left as it is: another call changes what is offline; try again"
            ),
            Self::Isolated { range, frame } => {
                write!(f, "{range} can't go: {frame} is isolated; end that first")
            }
            Self::InUse {
                range,
                frame,
                frames,
                holder,
                held_by_cpus,
                in_work,
            } => {
                match frames {
                    1 => write!(
                        f,
                        "{range} can't go offline: 1 frame is in use, {frame}, {holder}"
                    )?,
                    _ => write!(
                        f,
                        "{range} can't go offline: {frames} frames are in use, the first is {frame}, {holder}"
                    )?,
                }
                if *held_by_cpus > 0 {
                    let s = if *held_by_cpus == 1 { "" } else { "s" };
                    write!(f, "; CPUs still cache {held_by_cpus} frame{s}")?;
                }
                if *in_work > 0 {
                    write!(f, "; workers have {in_work} frames and give them back soon")?;
                }
                let them = if *frames == 1 { "it" } else { "them" };
                write!(f, ": move or free {them}, then try again")
            }
            Self::Offline { range, frame } => {
                write!(f, "{range} can't go offline: {frame} is offline already")
            }
            Self::NotOffline { range, frame } => {
                write!(f, "{range}: {frame} is not offline; take it offline first")
            }
            Self::FromStart { range, frame } => write!(
                f,
                "{range} can't be removed: {frame} was memory from the start"
            ),
            Self::ListFull { range, capacity } => write!(
                f,
                "{range} can't go offline: the list of absent ranges has space for {capacity}, and needs {}",
                capacity + 1
            ),
        }
    }
}

impl core::error::Error for OfflineError {}

impl<'m> Frames<'m> {
    /// Takes all of `range` out of use: isolates it, has CPUs drain their caches, and takes it.
    /// From then on it is neither allocated nor freed, and counts as no memory. The caller drains
    /// its own cache first, and moves or frees what is in use.
    ///
    /// Costs a step a huge frame, whatever the size of the machine.
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Frames, OfflineError};
    /// /// A DIMM that is to be unplugged.
    /// fn unplug(frames: &Frames<'_>, dimm: PhysRange) -> Result<(), OfflineError> {
    ///     frames.offline(dimm)?; // all is as before if some of it is in use
    ///     frames.remove(dimm)    // and from now on it may come again
    /// }
    /// ```
    ///
    /// # Errors
    /// [`OfflineError`]; nothing changed then.
    pub fn offline(&self, range: PhysRange) -> Result<(), OfflineError> {
        let (frames, one) = self.begin(range)?;
        self.must_be_online(range, frames)?;
        let isolation = self.isolate(frames).map_err(|error| match error {
            IsolateError::Isolated { frame } => OfflineError::Isolated { range, frame },
            IsolateError::InUse { frame } => self.in_use(range, frame, 1),
            IsolateError::Misaligned { .. } => OfflineError::Misaligned { range },
            IsolateError::Absent { frame } => OfflineError::OutsideMemory { range, frame },
            IsolateError::NoMemory { .. } => {
                let frame = frames.start();
                OfflineError::OutsideMemory { range, frame }
            }
        })?;
        self.take_offline(range, isolation, &one)
    }

    /// All of an isolation, which ends.
    fn take_offline(
        &self,
        range: PhysRange,
        isolation: Isolation<'_, 'm>,
        one: &Hotplug<'_, 'm>,
    ) -> Result<(), OfflineError> {
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
            Err(OfflineError::ListFull { range, capacity })
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
    ) -> Result<(), OfflineError> {
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_part(&mut left) {
            let (of_window, list) = (segment.is_of_window(), segment.pinned());
            if of_window && !list.pin_undoable(part) {
                let capacity = list.capacity();
                return Err(OfflineError::ListFull { range, capacity });
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

    pub(super) fn not_unpinned(&self, range: PhysRange, why: Unpin) -> OfflineError {
        match why {
            // What is offline is whole huge frames.
            Unpin::NotPinned(frame) | Unpin::OtherZone(frame) => {
                OfflineError::NotOffline { range, frame }
            }
            Unpin::Full(capacity) => OfflineError::ListFull { range, capacity },
        }
    }

    /// Brings `range`, all of which is offline, back: all of it is free from now on, in the zone it
    /// was in.
    ///
    /// # Errors
    /// [`OfflineError`]; nothing changed then.
    pub fn online(&self, range: PhysRange) -> Result<(), OfflineError> {
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
    /// [`OfflineError`]; nothing changed then.
    pub fn remove(&self, range: PhysRange) -> Result<(), OfflineError> {
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
    fn must_be_added(&self, range: PhysRange, frames: FrameRange) -> Result<(), OfflineError> {
        let mut parts = self.nodes.segments.parts(frames);
        let from_start = parts.find(|(segment, _)| segment.is_memory_from_start());
        from_start.map_or(Ok(()), |(_, part)| {
            let frame = part.start();
            Err(OfflineError::FromStart { range, frame })
        })
    }

    /// Whether all of the huge frame of `frame` is offline.
    pub fn is_offline(&self, frame: Frame) -> bool {
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
    ) -> Result<(FrameRange, Hotplug<'_, 'm>), OfflineError> {
        let frames = whole_huges(range)?;
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_part(&mut left) {
            if !is_whole(part.intersect(segment.frames())) {
                // A huge frame that crosses the end of a zone or of memory.
                return Err(OfflineError::Misaligned { range });
            }
            if !segment.is_present() {
                let frame = part.start();
                return Err(OfflineError::OutsideMemory { range, frame });
            }
        }
        if !left.is_empty() {
            let frame = left.start();
            return Err(OfflineError::OutsideMemory { range, frame });
        }
        self.begin_any(range)
    }

    /// `range` in frames, which need not be memory, and no other call like this one until the second is dropped.
    pub(super) fn begin_any(
        &self,
        range: PhysRange,
    ) -> Result<(FrameRange, Hotplug<'_, 'm>), OfflineError> {
        let frames = whole_huges(range)?;
        let one = self.nodes.pinned.begin_hotplug();
        Ok((frames, one.ok_or(OfflineError::Busy { range })?))
    }

    /// Nothing of `frames` is offline, absent or reserved.
    fn must_be_online(&self, range: PhysRange, frames: FrameRange) -> Result<(), OfflineError> {
        let Some(frame) = self.nodes.pinned.first_in(frames) else {
            return Ok(());
        };
        let segment = self.nodes.segments.at(frame);
        Err(if self.is_offline(frame) {
            OfflineError::Offline { range, frame }
        } else if segment.is_some_and(ZoneSegment::is_memory_from_start) {
            let frames = self.nodes.pinned.frames_in(frames);
            OfflineError::InUse {
                range,
                frame,
                frames,
                holder: Holder::Reserved {
                    owner: self.layout().owner_of(frame),
                },
                held_by_cpus: 0,
                in_work: 0,
            }
        } else {
            OfflineError::OutsideMemory { range, frame }
        })
    }

    pub(super) fn must_be_offline(
        &self,
        range: PhysRange,
        frames: FrameRange,
    ) -> Result<(), OfflineError> {
        let mut parts = self.online_parts(frames);
        let online = parts.find_map(|(segment, part)| segment.first_offline(part, false));
        online.map_or(Ok(()), |frame| {
            Err(OfflineError::NotOffline { range, frame })
        })
    }

    fn in_use(&self, range: PhysRange, frame: Frame, frames: u64) -> OfflineError {
        let held_by_cpus = super::cpu::drain::DrainRequest::new(&self.slots).pending_frames();
        OfflineError::InUse {
            range,
            frame,
            frames: frames.max(1),
            holder: Holder::Allocation,
            held_by_cpus,
            in_work: self.in_work(),
        }
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
fn whole_huges(range: PhysRange) -> Result<FrameRange, OfflineError> {
    let frames = range.inner_frames();
    if frames.is_empty() || frames.checked_addrs() != Some(range) || !is_whole(frames) {
        return Err(OfflineError::Misaligned { range });
    }
    Ok(frames)
}

impl<'m> Isolation<'_, 'm> {
    /// Ends the isolation by taking all of it offline, as [`Frames::offline`]: for a kernel that
    /// moves away what is in use meanwhile.
    ///
    /// ```
    /// # use firstlight_frames::addr::{Frame, FrameRange};
    /// # use firstlight_frames::frames::{Frames, OfflineError};
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
    /// [`OfflineError`]; the isolation has ended then, and what is free can be allocated again.
    pub fn offline(self) -> Result<(), OfflineError> {
        // Frames without an address are no memory, and refused as such.
        let reach = FrameRange::new(0, PHYS_END >> PAGE_SHIFT).unwrap_or_default();
        let (shared, range) = (self.shared(), self.range().intersect(reach).addrs());
        let (frames, one) = shared.begin(range)?;
        shared.must_be_online(range, frames)?;
        shared.take_offline(range, self, &one)
    }
}
