//! What of a range is memory now, and whether that is in use: [`Present`].
//!
//! *Read from what is there anyway*: segments, the list of pinned frames, and, only while something
//! is offline, the words of pinned huge frames. Pinned memory of the start is reserved or offline; of
//! memory that came later, absent or offline.

use super::find::Frames;
use super::segment::Segment;
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange};
#[cfg(feature = "hotplug")]
use crate::frames::word::geometry::GIANT_ORDER;
use crate::node::{NodeId, ZoneKind};

/// Frames in a row that are memory, of one node and zone, all of them offline or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Their zone.
    pub zone: ZoneKind,
    /// They were memory when the allocator was built.
    pub is_from_start: bool,
    /// They are offline.
    pub is_offline: bool,
}

/// What frames in a row are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Absent,
    Offline,
    Online,
}

impl<'m> Frames<'m> {
    /// The lowest memory with frames of `range`. It may reach past the range, and more like it may
    /// lie beside it. Costs two searches; where something is offline, a look at the words of what
    /// is out of use there besides.
    pub fn present_in(&self, range: FrameRange) -> Option<Present> {
        let parts = self.nodes.segments.parts(range);
        let mut parts = parts.filter(|(segment, _)| segment.is_present());
        parts.find_map(|(segment, inside)| {
            let (mut at, end) = (inside.start(), inside.end());
            while at < end {
                let (frames, used) = self.use_of(segment, at);
                if used != Use::Absent {
                    return Some(Present {
                        frames,
                        node: segment.node(),
                        zone: segment.zone(),
                        is_from_start: segment.is_memory_from_start(),
                        is_offline: used == Use::Offline,
                    });
                }
                // A list that changes meanwhile moves nothing backwards.
                at = frames.end().max(Frame::new(at.get() + 1));
            }
            None
        })
    }

    /// What `at` is, a frame of `segment`, and frames in a row from there that are the same.
    fn use_of(&self, segment: &ZoneSegment<'m>, at: Frame) -> (FrameRange, Use) {
        let (all, is_from_start) = (segment.frames(), segment.is_memory_from_start());
        if is_from_start && !self.is_any_offline() {
            return (all, Use::Online);
        }
        let (run, is_pinned) = segment.pinned().run(at);
        let run = run.intersect(all);
        let pinned_is = if is_from_start {
            Use::Online
        } else {
            Use::Absent
        };
        match is_pinned {
            false => (run, Use::Online),
            true if !self.is_any_offline() => (run, pinned_is),
            true => self.use_of_pinned(segment, at, run, pinned_is),
        }
    }

    #[cfg(feature = "hotplug")]
    fn is_any_offline(&self) -> bool {
        self.nodes.pinned.is_any_offline()
    }

    #[cfg(not(feature = "hotplug"))]
    fn is_any_offline(&self) -> bool {
        let _ = self;
        false
    }

    /// The first frame of `part`, inside `segment`, whose huge frame is offline.
    #[cfg(feature = "hotplug")]
    pub(super) fn first_offline_in(
        &self,
        segment: &Segment<'_>,
        part: FrameRange,
    ) -> Option<Frame> {
        if !self.is_any_offline() {
            return None;
        }
        Some(segment.first_offline(part, true)?.max(part.start()))
    }

    #[cfg(not(feature = "hotplug"))]
    pub(super) fn first_offline_in(&self, _: &Segment<'_>, _: FrameRange) -> Option<Frame> {
        let _ = self;
        None
    }

    /// What `at` is, a pinned frame, and frames in a row from there that are the same, up to the end of its giant frame at most: offline, or
    /// what the others are.
    #[cfg(feature = "hotplug")]
    fn use_of_pinned(
        &self,
        segment: &ZoneSegment<'m>,
        at: Frame,
        run: FrameRange,
        others: Use,
    ) -> (FrameRange, Use) {
        let giant_end = ((at.get() >> GIANT_ORDER) + 1) << GIANT_ORDER;
        let end = run.end().get().min(giant_end);
        let from = |end: u64| FrameRange::new(at.get(), end).unwrap_or_default();
        let Some(started) = segment.started() else {
            return (run, others);
        };
        let is_offline = started.is_offline(started.huge_of(at));
        let other = started.first_offline(from(end), !is_offline);
        // Whole huge frames are offline, so the next other one begins above `at`.
        let frames = from(other.map_or(end, Frame::get));
        (frames, if is_offline { Use::Offline } else { others })
    }

    #[cfg(not(feature = "hotplug"))]
    fn use_of_pinned(
        &self,
        _: &ZoneSegment<'m>,
        _: Frame,
        run: FrameRange,
        others: Use,
    ) -> (FrameRange, Use) {
        let _ = self;
        (run, others)
    }
}
