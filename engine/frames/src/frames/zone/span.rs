//! What a zone spans, and how much of it there is: [`ZoneSpan`].
//!
//! *Nothing is kept for it but how much is offline*: lists say what is not there, so memory that goes
//! offline or ends that adds to one number in each segment it is of, and to one of the machine; memory
//! that is added, to none. A look costs the ranges of the zone, and the huge frames at the two ends of its
//! memory of the start that are offline.

use super::segment::ZoneSegment;
#[cfg(feature = "hotplug")]
use crate::addr::Frame;
use crate::addr::FrameRange;

/// The memory of a zone of a node, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpan {
    /// From its first present frame to its last; empty if it has none.
    pub spanned: FrameRange,
    /// Its frames: memory of the start, and what came; without what is absent or offline.
    pub present_frames: u64,
    /// Those of them that are free or may be freed: not those that are reserved for ever.
    pub managed_frames: u64,
}

impl ZoneSpan {
    /// Whether it has all that it spans: nothing of that is absent, offline or of another zone.
    pub const fn is_contiguous(&self) -> bool {
        self.present_frames == self.spanned.count()
    }
}

impl ZoneSegment<'_> {
    /// From the first present frame to the last, and how many there are.
    fn present(&self) -> (FrameRange, u64) {
        let frames = self.frames();
        if !self.is_present() {
            return (FrameRange::EMPTY, 0);
        }
        if !self.is_memory_from_start() {
            let span = self.pinned().span_of_others(frames);
            return (span, self.managed_frames());
        }
        #[cfg(feature = "hotplug")]
        let present = (self.online_span(), frames.count() - self.offline_frames());
        #[cfg(not(feature = "hotplug"))]
        let present = (frames, frames.count());
        present
    }

    /// From the first frame of the start that is not offline to the last: costs the huge frames that are offline at its ends, because the
    /// list does not tell these from what is reserved for ever, and present.
    #[cfg(feature = "hotplug")]
    fn online_span(&self) -> FrameRange {
        let frames = self.frames();
        let started = self.started().filter(|_| self.offline_frames() > 0);
        let Some(segment) = started else {
            return frames;
        };
        let mut huges = segment.huges_touched(frames);
        let is_online = |huge: &usize| !segment.is_offline(*huge);
        let Some(first) = huges.find(is_online) else {
            return FrameRange::EMPTY;
        };
        let last = huges.rfind(is_online).unwrap_or(first);
        let end = Frame::new(segment.huge_start(last + 1));
        let span = FrameRange::new(segment.huge_start(first), end.get());
        span.unwrap_or_default().intersect(frames)
    }
}

impl ZoneSpan {
    /// Of the zone that these are all segments of.
    pub(crate) fn of<'a, 'm: 'a>(segments: impl Iterator<Item = &'a ZoneSegment<'m>>) -> Self {
        let mut sum = Self {
            spanned: FrameRange::EMPTY,
            present_frames: 0,
            managed_frames: 0,
        };
        for segment in segments {
            let (span, frames) = segment.present();
            if frames > 0 {
                sum.spanned = around(sum.spanned, span);
                sum.present_frames += frames;
                sum.managed_frames += segment.managed_frames();
            }
        }
        sum
    }
}

/// Both and what lies between them; `span` is not empty.
fn around(sum: FrameRange, span: FrameRange) -> FrameRange {
    if sum.is_empty() {
        return span;
    }
    let (start, end) = (sum.start().min(span.start()), sum.end().max(span.end()));
    FrameRange::new(start.get(), end.get()).unwrap_or_default()
}
