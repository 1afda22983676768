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
use super::segment::pinned::{Hotplug, Unpin};
use super::word::Content;
use super::word::geometry::HUGE_FRAMES;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, PhysRange};
use crate::sync::Ordering;

/// What holds a frame that keeps its range from going offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is reserved for ever: tables, descriptors, the kernel's image.
    Reserved,
    /// A worker has borrowed it, and gives it back soon.
    Worker,
    /// It is allocated, or cached by a CPU that has not drained its cache.
    Allocation,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserved => "reserved for ever",
            Self::Worker => "borrowed by a worker",
            Self::Allocation => "allocated",
        })
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
    /// The list of what can't be freed is full: it needs space for one range more.
    ListFull {
        /// The range.
        range: PhysRange,
        /// Ranges it has space for.
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
            } => {
                write!(
                    f,
                    "{range} can't go offline: {frames} frames are in use, the first is {frame}, {holder}"
                )?;
                if *held_by_cpus > 0 {
                    write!(f, "; CPUs still cache {held_by_cpus} frames")?;
                }
                f.write_str(": move or free them, then try again")
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
    /// # use firstlight::addr::PhysRange;
    /// # use firstlight::frames::{Frames, OfflineError};
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
        let (frames, _one) = self.begin(range)?;
        self.must_be_online(range, frames)?;
        let isolation = self.isolate(frames).map_err(|error| match error {
            IsolateError::Isolated { frame } => OfflineError::Isolated { range, frame },
            IsolateError::InUse { frame } => self.in_use(range, frame, 1),
            IsolateError::Misaligned { .. } => OfflineError::Misaligned { range },
            IsolateError::NoMemory { .. } => {
                let frame = frames.start();
                OfflineError::OutsideMemory { range, frame }
            }
        })?;
        self.take_offline(range, isolation)
    }

    /// All of an isolation, which ends.
    fn take_offline(
        &self,
        range: PhysRange,
        isolation: Isolation<'_, 'm>,
    ) -> Result<(), OfflineError> {
        let frames = isolation.range();
        if let Some(frame) = isolation.first_in_use() {
            return Err(self.in_use(range, frame, isolation.frames_in_use()));
        }
        isolation
            .take_words()
            .map_err(|frame| self.in_use(range, frame, 1))?;
        let is_listed = self.nodes.pinned.pin(frames);
        // Only now: a free that read the list before it changed fails at the word.
        let mut all = self.huges(frames);
        let freed = all.find(|(segment, huge)| !is_listed || !segment.set_offline(*huge));
        if let Some((segment, huge)) = freed {
            if is_listed {
                // Just put there by this call.
                let _ = self.nodes.pinned.unpin(frames);
            }
            for (segment, huge) in self.huges(frames) {
                segment.end_offline(huge);
            }
            let frame = Frame::new(segment.huge_start(huge));
            return Err(if is_listed {
                self.in_use(range, frame, 1)
            } else {
                self.list_full(range)
            });
        }
        self.nodes.count_range(frames, -1);
        self.count_moved(frames);
        Ok(())
    }

    /// CPUs look anew where they fill their lists from.
    fn count_moved(&self, frames: FrameRange) {
        // Release: as in `Frames::add`.
        (self.nodes.added).fetch_add(frames.count(), Ordering::Release);
        self.drain_at_next_call();
    }

    fn list_full(&self, range: PhysRange) -> OfflineError {
        let capacity = self.nodes.pinned.capacity();
        OfflineError::ListFull { range, capacity }
    }

    /// Brings `range`, all of which is offline, back: all of it is free from now on, in the zone it
    /// was in.
    ///
    /// # Errors
    /// [`OfflineError`]; nothing changed then.
    pub fn online(&self, range: PhysRange) -> Result<(), OfflineError> {
        let (frames, _one) = self.begin(range)?;
        self.must_be_offline(range, frames)?;
        self.nodes.pinned.unpin(frames).map_err(|why| match why {
            Unpin::NotPinned(frame) => OfflineError::NotOffline { range, frame },
            Unpin::Full => self.list_full(range),
        })?;
        // Each is freed as what it is, allocated; an error: another call freed some of it at this
        // moment.
        let _ = range::free_with(&self.nodes, frames, Content::Unknown);
        self.count_moved(frames);
        Ok(())
    }

    /// Removes `range`, all of which is offline: it is absent, and may be added again.
    ///
    /// # Errors
    /// [`OfflineError`]; nothing changed then.
    pub fn remove(&self, range: PhysRange) -> Result<(), OfflineError> {
        let (frames, _one) = self.begin(range)?;
        self.must_be_offline(range, frames)?;
        let mut left = frames;
        while let Some((segment, part)) = self.next_part(&mut left) {
            if segment.is_memory_from_start() {
                let frame = part.start();
                return Err(OfflineError::FromStart { range, frame });
            }
        }
        for (segment, huge) in self.huges(frames) {
            segment.set_absent(huge);
        }
        for (segment, part) in self.online_parts(frames) {
            let last = Frame::new(part.end().get() - 1);
            for giant in segment.giant_of(part.start())..=segment.giant_of(last) {
                segment.close_absent(giant);
            }
        }
        Ok(())
    }

    /// Whether all of the huge frame of `frame` is offline.
    pub fn is_offline(&self, frame: Frame) -> bool {
        let segment = self.nodes.segments.at(frame);
        let online = segment.and_then(ZoneSegment::online);
        online.is_some_and(|online| online.is_offline(online.huge_of(frame)))
    }

    /// The first frame of `frames` that is offline.
    pub(super) fn first_offline(&self, frames: FrameRange) -> Option<Frame> {
        let mut left = frames;
        let mut parts = core::iter::from_fn(|| self.next_part(&mut left));
        parts.find_map(|(segment, part)| {
            let offline = segment.started()?.first_offline(part, true)?;
            Some(offline.max(part.start()))
        })
    }

    /// `range` in frames, and no other call like this one until the second is dropped.
    fn begin(&self, range: PhysRange) -> Result<(FrameRange, Hotplug<'_>), OfflineError> {
        let frames = range.inner_frames();
        let is_whole = frames.checked_bytes() == Some(range)
            && [frames.start(), frames.end()]
                .iter()
                .all(|end| end.get().is_multiple_of(HUGE_FRAMES.into()));
        if frames.is_empty() || !is_whole {
            return Err(OfflineError::Misaligned { range });
        }
        let mut left = frames;
        while let Some((segment, part)) = self.next_part(&mut left) {
            let huges = part.intersect(segment.frames());
            let is_cut = huges.start().get() % u64::from(HUGE_FRAMES) != 0
                || huges.end().get() % u64::from(HUGE_FRAMES) != 0;
            if is_cut {
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
                holder: Holder::Reserved,
                held_by_cpus: 0,
            }
        } else {
            OfflineError::OutsideMemory { range, frame }
        })
    }

    fn must_be_offline(&self, range: PhysRange, frames: FrameRange) -> Result<(), OfflineError> {
        let mut parts = self.online_parts(frames);
        let online = parts.find_map(|(segment, part)| segment.first_offline(part, false));
        online.map_or(Ok(()), |frame| {
            Err(OfflineError::NotOffline { range, frame })
        })
    }

    fn in_use(&self, range: PhysRange, frame: Frame, frames: u64) -> OfflineError {
        let segment = self.nodes.segments.at(frame).and_then(ZoneSegment::online);
        let is_borrowed = segment.is_some_and(|segment| segment.is_borrowed(frame));
        let held_by_cpus = super::cpu::drain::DrainRequest::new(self.slots).pending_frames();
        OfflineError::InUse {
            range,
            frame,
            frames: frames.max(1),
            holder: if is_borrowed {
                Holder::Worker
            } else {
                Holder::Allocation
            },
            held_by_cpus,
        }
    }

    /// The parts of `frames`, in segments with memory.
    fn online_parts(&self, frames: FrameRange) -> impl Iterator<Item = (&Segment<'m>, FrameRange)> {
        let mut left = frames;
        core::iter::from_fn(move || self.next_part(&mut left))
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

impl<'m> Isolation<'_, 'm> {
    /// Ends the isolation by taking all of it offline, as [`Frames::offline`]: for a kernel that
    /// moves away what is in use meanwhile.
    ///
    /// ```
    /// # use firstlight::addr::{Frame, FrameRange};
    /// # use firstlight::frames::{Frames, OfflineError};
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
        let (shared, range) = (self.shared(), self.range().bytes());
        let (frames, _one) = shared.begin(range)?;
        shared.must_be_online(range, frames)?;
        shared.take_offline(range, self)
    }
}
