//! Memory that comes: [`Frames::add`], [`Frames::adopt`].
//!
//! *A frame is absent until it is added, which makes it free, or adopted, which makes it
//! allocated.* Absent frames are pinned: every table says that they are allocated, and the list
//! of [`Pinned`] that they can't be freed. So adding is taking them off that list, and freeing
//! them as any call does. In a window they are taken off the machine's list and that of the segment
//! they come to ([`windows`](super::zone::windows)).

use core::fmt;

#[cfg(feature = "hotplug")]
use super::build::bytes_up_to;
use super::find::Frames;
use super::range;
#[cfg(doc)]
use super::segment::pinned::Pinned;
use super::segment::pinned::Unpin;
use super::word::Content;
use super::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, PAGE_BYTES, PhysRange};
use crate::node::NodeZone;
use crate::sync::Ordering;
#[cfg(feature = "hotplug")]
use crate::sync::fence;

/// Memory can't be added or adopted. Nothing changed, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// It does not begin and end where pages do, or is empty.
    Misaligned {
        /// The range.
        range: PhysRange,
    },
    /// Not all of it lies where memory may come: in the span of [`Frames::over`], or in a window
    /// of the layout.
    OutsideSpan {
        /// The range.
        range: PhysRange,
        /// Its first frame that does not.
        frame: Frame,
    },
    /// Firmware announces that memory may come there, but there are no tables for it: the layout's
    /// share of memory for tables ([`Layout::with_window_share`](crate::layout::Layout::with_window_share))
    /// ends before, or early memory had no space for them in one piece. Never without the feature `hotplug`, which
    /// has [`AddError::OutsideSpan`] instead.
    NoTables {
        /// The range.
        range: PhysRange,
        /// Its first frame that has none.
        frame: Frame,
        /// Bytes of tables that windows would need, from the first window on up to the end of the
        /// range.
        needed_bytes: u64,
    },
    /// Some of it is there already, or offline.
    Present {
        /// The range.
        range: PhysRange,
        /// Its first frame that is.
        frame: Frame,
    },
    /// It has a part of a huge frame whose other memory is of another node or zone.
    OtherZone {
        /// The range.
        range: PhysRange,
        /// A frame of that memory.
        frame: Frame,
    },
    /// The list of what is absent is full: it needs space for `capacity + 1` ranges.
    ListFull {
        /// The range.
        range: PhysRange,
        /// Ranges it has space for, one fewer than it needs.
        capacity: usize,
    },
    /// Another call freed some of it, which was not there, at the same moment; the rest is
    /// adopted.
    FreedMeanwhile {
        /// The range.
        range: PhysRange,
        /// The first frame that was.
        frame: Frame,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { range } => write!(
                f,
                "{range} can't be added or adopted: expected one page or more, and multiples of {PAGE_BYTES} bytes"
            ),
            Self::OutsideSpan { range, frame } => write!(
                f,
                "{range} can't be added or adopted: {frame} is outside of where memory may come"
            ),
            Self::NoTables {
                range,
                frame,
                needed_bytes,
            } => write!(
                f,
                "{range} can't be added or adopted: memory is announced at {frame}, but without tables; {needed_bytes} bytes of tables would be needed"
            ),
            Self::Present { range, frame } => {
                write!(
                    f,
                    "{range} can't be added or adopted: {frame} is memory already"
                )
            }
            Self::OtherZone { range, frame } => write!(
                f,
                "{range} can't be added or adopted: {frame} in the same huge frame is of another node or zone; expected that, or multiples of 2 MiB"
            ),
            Self::ListFull { range, capacity } => write!(
                f,
                "{range} can't be added or adopted: the list of absent ranges has space for {capacity}, and needs {}",
                capacity + 1
            ),
            Self::FreedMeanwhile { range, frame } => write!(
                f,
                "{range} was added, but {frame} was freed at that moment, before it was memory"
            ),
        }
    }
}

impl core::error::Error for AddError {}

impl<'m> Frames<'m> {
    /// Memory that came: all of `range` is free from now on. Any CPU, at any time, with interrupts
    /// off where handlers free.
    ///
    /// Nothing else may use it: what of it is in use is adopted, or never added. What a layout has
    /// reserved for ever is memory already, and refused.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(&self, range: PhysRange) -> Result<(), AddError> {
        self.add_with(range, Content::Unknown)
    }

    /// Memory that came, as [`Frames::add`], and what it holds: zeros, if it is that of a virtual machine that
    /// was never touched.
    ///
    /// # Errors
    /// As [`Frames::add`].
    pub fn add_with(&self, range: PhysRange, content: Content) -> Result<(), AddError> {
        let frames = self.unpin(range, None, ZoneSegment::is_memory_from_start)?;
        let freed = self.free_new(frames, None, content);
        freed.map_err(|frame| AddError::FreedMeanwhile { range, frame })
    }

    /// Makes `frames` free that were just taken off the lists; or the first frame that another call
    /// freed meanwhile, which is not its own.
    pub(super) fn free_new(
        &self,
        frames: FrameRange,
        of: Option<NodeZone>,
        content: Content,
    ) -> Result<(), Frame> {
        let mut left = frames;
        let (mut freed, mut news) = (Ok(()), frames.count());
        while let Some((segment, part)) = self.nodes.segments.next_home(&mut left, of) {
            if segment.populate(part, content) {
                self.nodes.count(segment, part.count().cast_signed());
                news += u64::from(HUGE_FRAMES);
            } else {
                freed = freed.and(range::free_with(&self.nodes, part, content));
            }
        }
        self.count_added(news);
        freed.map_err(|error| error.frame().unwrap_or(frames.start()))
    }

    /// CPUs look anew where they fill their lists from, if there is a huge frame more.
    fn count_added(&self, news: u64) {
        // Release: pairs with `Nodes::added_huges`.
        let before = self.nodes.added.fetch_add(news, Ordering::Release);
        if before >> HUGE_ORDER != (before + news) >> HUGE_ORDER {
            self.drain_at_next_call();
        }
    }

    /// Memory that is in use by what ran before the allocator: all of `range` is allocated from now
    /// on, so that it can be freed, whole or in parts. Also for frames that a layout has reserved
    /// for ever. Any CPU, at any time.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn adopt(&self, range: PhysRange) -> Result<(), AddError> {
        let frames = self.unpin(range, None, |_| false)?;
        let mut left = frames;
        while let Some((segment, _)) = self.nodes.segments.next_home(&mut left, None) {
            if segment.populate(FrameRange::EMPTY, Content::Unknown) {
                // What is added next is looked for at once. Release, as in `add`.
                let news = u64::from(HUGE_FRAMES);
                self.nodes.added.fetch_add(news, Ordering::Release);
            }
        }
        // As allocated as if it had been free: a CPU may cache it, once it is freed.
        self.nodes.prepare_range(frames);
        Ok(())
    }

    /// Why memory can't come to `frame` of `range`, which has no tables.
    #[cold]
    pub(super) fn no_tables(&self, range: PhysRange, frame: Frame) -> AddError {
        #[cfg(feature = "hotplug")]
        if let Some(needed_bytes) = bytes_up_to(self.layout(), range.inner_frames(), frame) {
            return AddError::NoTables {
                range,
                frame,
                needed_bytes,
            };
        }
        AddError::OutsideSpan { range, frame }
    }

    /// Takes `range`, all of which is absent or reserved, off the list of what can't be freed, and off
    /// that of the segments it comes to, unless some of it lies in a segment that is `refused`.
    pub(super) fn unpin(
        &self,
        range: PhysRange,
        of: Option<NodeZone>,
        refused: impl Fn(&ZoneSegment<'m>) -> bool,
    ) -> Result<FrameRange, AddError> {
        let frames = range.inner_frames();
        if frames.is_empty() || frames.checked_addrs() != Some(range) {
            return Err(AddError::Misaligned { range });
        }
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_home(&mut left, of) {
            if refused(segment) {
                let frame = part.start();
                return Err(AddError::Present { range, frame });
            }
        }
        if !left.is_empty() {
            return Err(self.no_tables(range, left.start()));
        }
        let refused = || {
            // Offline memory is pinned too, and stays.
            #[cfg(feature = "hotplug")]
            if let Some(frame) = self.first_offline(frames) {
                return Err(Unpin::NotPinned(frame));
            }
            let beside = self.nodes.segments.other_zone_beside(frames, of);
            beside.map_or(Ok(()), |frame| Err(Unpin::OtherZone(frame)))
        };
        let next_home = |left: &mut FrameRange| self.nodes.segments.next_home(left, of);
        let unpinned = self.nodes.unpin(frames, refused, &next_home);
        unpinned.map_err(|why| match why {
            Unpin::NotPinned(frame) => AddError::Present { range, frame },
            Unpin::Full(capacity) => AddError::ListFull { range, capacity },
            Unpin::OtherZone(frame) => AddError::OtherZone { range, frame },
        })?;
        // Pairs with the fence in `close_absent`.
        #[cfg(feature = "hotplug")]
        fence(Ordering::SeqCst);
        Ok(frames)
    }
}
