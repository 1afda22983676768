//! Memory that is added: [`Frames::add`], [`NewMemory`], [`Frames::adopt`].
//!
//! *A frame is absent until it is added, which makes it free, or adopted, which makes it
//! allocated.* Absent frames are pinned: every table says that they are allocated, and the list
//! of [`Pinned`] that they can't be freed. So adding is taking them off that list, and freeing
//! them as any call does. In a window they are taken off the machine's list and that of the segment
//! they come to ([`windows`](super::zone::windows)).

#[cfg(feature = "hotplug")]
use super::build::bytes_up_to;
use super::find::Frames;
#[cfg(feature = "hotplug")]
use super::hotplug::OnlinePolicy;
use super::hotplug_error::{HotplugError, Refusal};
use super::range;
#[cfg(doc)]
use super::segment::pinned::Pinned;
use super::segment::pinned::Unpin;
use super::word::Content;
use super::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, PhysRange};
use crate::node::NodeZone;
use crate::sync::Ordering;
#[cfg(feature = "hotplug")]
use crate::sync::fence;

/// Memory that is added: a range alone, or with what is known of it.
///
/// ```
/// # use firstlight_frames::addr::PhysRange;
/// # use firstlight_frames::frames::{Content, Frames, HotplugError, NewMemory};
/// # use firstlight_frames::node::{NodeId, NodeZone, ZoneKind};
/// /// A DIMM of node 0 that is to be removed again some time.
/// fn plugged(frames: &Frames<'_>, dimm: PhysRange) -> Result<(), HotplugError> {
///     let of = NodeZone { node: NodeId(0), zone: ZoneKind::Movable };
///     frames.add(NewMemory::new(dimm).of(of).holds(Content::Zero))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMemory {
    range: PhysRange,
    of: Option<NodeZone>,
    content: Content,
    #[cfg(feature = "hotplug")]
    offline: bool,
}

impl NewMemory {
    /// Memory of the node and zone that its window has by itself, of unknown content.
    #[inline]
    pub const fn new(range: PhysRange) -> Self {
        Self {
            range,
            of: None,
            content: Content::Unknown,
            #[cfg(feature = "hotplug")]
            offline: false,
        }
    }

    /// Of this node and zone.
    pub const fn of(mut self, of: NodeZone) -> Self {
        self.of = Some(of);
        self
    }

    /// What it holds: zeros, if it is that of a virtual machine that was never touched. What waits
    /// offline holds anything.
    pub const fn holds(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    /// It waits offline if that is the policy, to be of its node and zone, or of another zone of the
    /// node ([`Frames::online_to`]). Costs a step a huge frame then.
    #[cfg(feature = "hotplug")]
    pub const fn policy(mut self, policy: OnlinePolicy) -> Self {
        self.offline = matches!(policy, OnlinePolicy::Offline);
        self
    }
}

impl From<PhysRange> for NewMemory {
    #[inline]
    fn from(range: PhysRange) -> Self {
        Self::new(range)
    }
}

impl<'m> Frames<'m> {
    /// Adds memory: all of it is free from now on, unless it waits offline. Any CPU, at any time,
    /// with interrupts off where handlers free.
    ///
    /// Nothing else may use it: what of it is in use is adopted, or never added. What a layout has
    /// reserved for ever is memory already, and refused.
    ///
    /// # Errors
    /// [`HotplugError`].
    #[inline]
    pub fn add(&self, memory: impl Into<NewMemory>) -> Result<(), HotplugError> {
        let memory = memory.into();
        // In the caller's code: most name no zone.
        #[cfg(feature = "hotplug")]
        if memory.offline {
            return self.add_offline(memory.range, memory.of);
        }
        // Most memory is of its window's node and zone: code of its own.
        match memory.of {
            None => self.add_to_window(memory.range, memory.content),
            Some(of) => self.add_to(memory.range, of, memory.content),
        }
    }

    fn add_to_window(&self, range: PhysRange, content: Content) -> Result<(), HotplugError> {
        self.add_online(range, None, content)
    }

    fn add_to(&self, range: PhysRange, of: NodeZone, content: Content) -> Result<(), HotplugError> {
        self.must_fit(range, of)?;
        self.add_online(range, Some(of), content)
    }

    #[inline(always)]
    fn add_online(
        &self,
        range: PhysRange,
        of: Option<NodeZone>,
        content: Content,
    ) -> Result<(), HotplugError> {
        let frames = self.unpin(range, of, ZoneSegment::is_memory_from_start)?;
        let freed = self.free_new(frames, of, content);
        freed.map_err(|frame| HotplugError::at(range, frame, Refusal::FreedMeanwhile))
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
    /// [`HotplugError`].
    pub fn adopt(&self, range: PhysRange) -> Result<(), HotplugError> {
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
    pub(super) fn no_tables(&self, range: PhysRange, frame: Frame) -> HotplugError {
        #[cfg(feature = "hotplug")]
        if let Some(needed_bytes) = bytes_up_to(self.layout(), range.inner_frames(), frame) {
            return HotplugError::at(range, frame, Refusal::NoTables { needed_bytes });
        }
        HotplugError::at(range, frame, Refusal::OutsideSpan)
    }

    /// Takes `range`, all of which is absent or reserved, off the list of what can't be freed, and off
    /// that of the segments it comes to, unless some of it lies in a segment that is `refused`.
    pub(super) fn unpin(
        &self,
        range: PhysRange,
        of: Option<NodeZone>,
        refused: impl Fn(&ZoneSegment<'m>) -> bool,
    ) -> Result<FrameRange, HotplugError> {
        let frames = range.inner_frames();
        if frames.is_empty() || frames.checked_addrs() != Some(range) {
            return Err(HotplugError::of(range, Refusal::Misaligned));
        }
        let mut left = frames;
        while let Some((segment, part)) = self.nodes.segments.next_home(&mut left, of) {
            if refused(segment) {
                let frame = part.start();
                return Err(HotplugError::at(range, frame, Refusal::Present));
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
            Unpin::NotPinned(frame) => HotplugError::at(range, frame, Refusal::Present),
            Unpin::OtherZone(frame) => HotplugError::at(range, frame, Refusal::OtherZone),
            Unpin::Full(capacity) => HotplugError::of(range, Refusal::ListFull { capacity }),
        })?;
        // Pairs with the fence in `close_absent`.
        #[cfg(feature = "hotplug")]
        fence(Ordering::SeqCst);
        Ok(frames)
    }
}
