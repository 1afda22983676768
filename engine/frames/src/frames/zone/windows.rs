//! Memory that comes to windows: which node and zone it is of is decided when it comes.
//!
//! *A window has a segment for each node and zone whose memory may come there, all over the same
//! frames.* Each frame is memory in one of them at most; in the others it can't be freed, by a list
//! ([`Pinned`]) that each of them has of its own. So a segment keeps its node and zone for ever, a
//! search is over once it has found a block, and memory changes its zone by going from one segment and
//! coming to another. Only a look by address has to find the segment that has the frame.

use super::segment::{ONE_ZONE, ZoneSegment};
use super::{Nodes, Segments};
use crate::addr::{Frame, FrameRange};
#[cfg(doc)]
use crate::frames::segment::pinned::Pinned;
use crate::frames::segment::pinned::Unpin;
use crate::frames::word::geometry::HUGE_FRAMES;
use crate::node::NodeZone;

/// The beginning of the huge frame of `frame`.
fn whole(frame: Frame) -> Frame {
    Frame::new(frame.get() / u64::from(HUGE_FRAMES) * u64::from(HUGE_FRAMES))
}

/// The beginning of the first huge frame from `frame` on.
fn whole_up(frame: Frame) -> Frame {
    whole(Frame::new(
        frame.get().saturating_add(u64::from(HUGE_FRAMES) - 1),
    ))
}

/// From `start` to `end`.
fn up_to(start: Frame, end: Frame) -> FrameRange {
    FrameRange::new(start.get(), end.get()).unwrap_or_default()
}

impl<'m> Segments<'m> {
    /// The segments of the window that `frame` lies in, that of the window's own node and zone first.
    #[cold]
    pub(crate) fn homes_of_window(&self, frame: Frame) -> &'m [ZoneSegment<'m>] {
        if ONE_ZONE {
            return &[];
        }
        let all = self.of_windows;
        let after = all.partition_point(|one| one.frames().start() <= frame);
        let below = all.get(..after).unwrap_or_default();
        let Some(window) = below.last().map(ZoneSegment::frames) else {
            return &[];
        };
        let first = below.partition_point(|one| one.frames().start() < window.start());
        let of_window = below.get(first..).filter(|_| window.contains(frame));
        of_window.unwrap_or_default()
    }

    /// The segment that has the first frame of `left`, and how much of `left` it has from there on.
    /// What is memory nowhere counts as in the first segment with memory.
    #[cold]
    pub(super) fn part_of_window(
        &self,
        left: FrameRange,
    ) -> Option<(&'m ZoneSegment<'m>, FrameRange)> {
        let start = left.start();
        let window = self.homes_of_window(start);
        let own = window.first()?;
        let left = left.intersect(own.frames());
        let present = || window.iter().filter(|one| one.is_present());
        let mut others = present();
        let first = others.next().unwrap_or(own);
        if others.next().is_none() {
            return Some((first, left));
        }
        let mut end = left.end();
        for one in present() {
            let (run, is_pinned) = one.pinned().run(start);
            if !is_pinned {
                return Some((one, up_to(start, run.end().min(left.end()))));
            }
            end = end.min(run.end());
        }
        #[cfg(feature = "hotplug")]
        for (one, online) in present().filter_map(|one| Some((one, one.started()?))) {
            let left = up_to(start, end);
            match online.first_offline(left, true) {
                Some(offline) if offline <= start => {
                    let until = online.first_offline(left, false);
                    // Never empty, though it may come online between the two looks.
                    let until = until.unwrap_or(end).max(Frame::new(start.get() + 1));
                    return Some((one, up_to(start, until.min(end))));
                }
                Some(offline) => end = offline,
                None => {}
            }
        }
        Some((first, up_to(start, end)))
    }

    /// The part of `left` in the segment that has its first frame, which is taken off it.
    pub(crate) fn next_part(
        &self,
        left: &mut FrameRange,
    ) -> Option<(&ZoneSegment<'m>, FrameRange)> {
        if left.is_empty() {
            return None;
        }
        let (segment, part) = match self.fixed_at(left.start()) {
            Some(segment) => (segment, left.intersect(segment.frames())),
            None => self.part_of_window(*left)?,
        };
        *left = up_to(part.end(), left.end());
        Some((segment, part))
    }

    /// The parts of `range`, what is in no segment left out.
    pub(crate) fn parts(
        &self,
        range: FrameRange,
    ) -> impl Iterator<Item = (&ZoneSegment<'m>, FrameRange)> {
        let mut left = range;
        core::iter::from_fn(move || {
            loop {
                if let Some(part) = self.next_part(&mut left) {
                    return Some(part);
                }
                // A hole.
                let next = self.first_start_after(left.start())?;
                left = up_to(next.max(left.start()), left.end());
                if left.is_empty() {
                    return None;
                }
            }
        })
    }

    /// The parts of `range`, where a huge frame of a window with memory is in one part, whose segment is the one that has it.
    /// A part may begin or end inside a huge frame that is memory nowhere.
    pub(crate) fn whole_parts(
        &self,
        range: FrameRange,
    ) -> impl Iterator<Item = (&ZoneSegment<'m>, FrameRange)> {
        let mut done = Frame::new(0);
        self.parts(range).filter_map(move |(segment, part)| {
            if !segment.is_of_window() {
                return Some((segment, part));
            }
            let homes = self.homes_of_window(part.start());
            let is_of_another = |border| {
                let mut others = homes.iter().filter(|one| !core::ptr::eq(*one, segment));
                others.any(|one| self.is_huge_of(one, border))
            };
            let start = match part.start() {
                border if self.is_huge_of(segment, border) => whole(border),
                border => border,
            };
            let end = match part.end() {
                border if self.is_huge_of(segment, border) => whole_up(border),
                // The part that follows has it; where `range` ends there is none.
                border if border < range.end() && is_of_another(border) => whole(border),
                border => border,
            };
            let inside = range.intersect(segment.frames());
            let part = up_to(start.max(done), end).intersect(inside);
            done = done.max(part.end());
            (!part.is_empty()).then_some((segment, part))
        })
    }

    /// Whether the huge frame that `border` lies in, and not at its beginning, has memory in this segment of a
    /// window, and so in no other.
    fn is_huge_of(&self, segment: &ZoneSegment<'m>, border: Frame) -> bool {
        let huge = up_to(whole(border), whole_up(border)).intersect(segment.frames());
        segment.is_present() && !huge.is_empty() && {
            let there = segment.pinned().span_of_others(huge);
            !there.is_empty()
        }
    }

    fn first_start_after(&self, frame: Frame) -> Option<Frame> {
        let after = |all: &'m [ZoneSegment<'m>]| {
            let at = all.partition_point(|one| one.frames().start() <= frame);
            all.get(at).map(|one| one.frames().start())
        };
        let starts = [self.fixed, self.of_windows].into_iter().filter_map(after);
        starts.min()
    }

    /// The part of `left` in the segment that it comes to, which is taken off it: that of this node
    /// and zone, or that of the window's own. `None` where there is none.
    pub(crate) fn next_home(
        &self,
        left: &mut FrameRange,
        of: Option<NodeZone>,
    ) -> Option<(&ZoneSegment<'m>, FrameRange)> {
        if left.is_empty() {
            return None;
        }
        let is_it = |one: &&ZoneSegment<'m>| of.is_none_or(|of| one.node_zone() == of);
        let segment = self.homes_at(left.start()).find(is_it)?;
        let part = left.intersect(segment.frames());
        *left = up_to(part.end(), left.end());
        Some((segment, part))
    }

    /// A frame that is memory in a huge frame of which `range` has a part, in another segment of its window
    /// than the one that `range` comes to: a huge frame is of one zone.
    pub(crate) fn other_zone_beside(
        &self,
        range: FrameRange,
        of: Option<NodeZone>,
    ) -> Option<Frame> {
        if ONE_ZONE {
            return None; // Code that a small kernel would link for nothing.
        }
        let (start, end) = (range.start(), range.end());
        let (below, above) = (up_to(whole(start), start), up_to(end, whole_up(end)));
        let beside = |(part, at): (FrameRange, Frame)| {
            let is_home = |one: &&ZoneSegment<'m>| of.is_none_or(|of| one.node_zone() == of);
            let home = self.homes_at(at).find(is_home)?;
            let others = self
                .homes_at(at)
                .filter(|other| !core::ptr::eq(*other, home));
            others.filter(|other| other.is_present()).find_map(|other| {
                let inside = part.intersect(other.frames());
                let there = (!inside.is_empty()).then(|| other.pinned().span_of_others(inside))?;
                (!there.is_empty()).then(|| there.start())
            })
        };
        let last = Frame::new(end.get() - 1);
        [(below, start), (above, last)].into_iter().find_map(beside)
    }

    /// The segments that memory at `frame` may come to, the window's own first.
    pub(crate) fn homes_at(&self, frame: Frame) -> impl Iterator<Item = &ZoneSegment<'m>> {
        let fixed = self.fixed_at(frame);
        let window = match fixed {
            Some(_) => &[],
            None => self.homes_of_window(frame),
        };
        fixed.into_iter().chain(window)
    }
}

/// A part of a range, and the segment it is memory of, or comes to: takes the part off the range.
pub(crate) trait NextPart<'s, 'm: 's>:
    Fn(&mut FrameRange) -> Option<(&'s ZoneSegment<'m>, FrameRange)>
{
}

impl<'s, 'm: 's, F> NextPart<'s, 'm> for F where
    F: Fn(&mut FrameRange) -> Option<(&'s ZoneSegment<'m>, FrameRange)>
{
}

impl<'m> Nodes<'m> {
    /// Takes `range` off the list of what is memory nowhere, and off those of the segments of
    /// windows that `next` finds: all of it, or nothing. `refused` as for [`Pinned::unpin`].
    pub(crate) fn unpin<'s>(
        &'s self,
        range: FrameRange,
        refused: impl FnOnce() -> Result<(), Unpin>,
        next: &impl NextPart<'s, 'm>,
    ) -> Result<(), Unpin> {
        self.pinned.unpin_and(range, refused, || {
            if ONE_ZONE {
                return Ok(()); // No segment has a list of its own.
            }
            let mut left = range;
            while let Some((segment, part)) = next(&mut left) {
                if segment.is_of_window()
                    && let Err(why) = segment.pinned().unpin(part, || Ok(()))
                {
                    let mut done = up_to(range.start(), part.start());
                    while let Some((segment, part)) = next(&mut done) {
                        if segment.is_of_window() {
                            segment.pinned().pin_back(part);
                        }
                    }
                    return Err(why);
                }
            }
            Ok(())
        })
    }
}
