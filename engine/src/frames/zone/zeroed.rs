//! Blocks for requests for zeros, once they are taken: what is known of them is checked, the rest
//! is zeroed, and both are counted: [`ZeroedFrames`].

use core::ops::AddAssign;

use super::Nodes;
use super::segment::ZoneSegment;
use crate::addr::FrameRange;
use crate::frames::word::Known;
use crate::frames::word::geometry::Block;
use crate::sync::{AtomicU64, Ordering};

/// What requests for zeros got, and what was made for them; sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroedFrames {
    /// Frames that were known to be zero.
    pub hit: u64,
    /// Frames that were zeroed on the spot.
    pub missed: u64,
    /// Frames that were given back as zero: by a worker, or freed so.
    pub made: u64,
}

impl AddAssign for ZeroedFrames {
    fn add_assign(&mut self, other: Self) {
        self.hit += other.hit;
        self.missed += other.missed;
        self.made += other.made;
    }
}

/// The sums of a segment.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hit: AtomicU64,
    missed: AtomicU64,
    made: AtomicU64,
}

impl Counts {
    /// Frames were given back as zero.
    pub(crate) fn add_made(&self, frames: u64) {
        self.made.fetch_add(frames, Ordering::Relaxed);
    }

    fn get(&self) -> ZeroedFrames {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ZeroedFrames {
            hit: read(&self.hit),
            missed: read(&self.missed),
            made: read(&self.made),
        }
    }
}

impl Nodes<'_> {
    /// Makes all of a block zero that a request for zeros has just taken; whether the kernel did.
    pub(crate) fn make_zero(&self, block: Block, known: &Known) -> bool {
        let (mut hit, mut missed, mut from) = (0, 0, block.start);
        let end = FrameRange::new(block.range().end().get(), block.range().end().get());
        for rest in known.rest(block).chain(end) {
            let zeros = FrameRange::new(from.get(), rest.start().get()).unwrap_or_default();
            from = rest.end();
            let is_zero = zeros.is_empty() || self.hooks.is_none_or(|hooks| hooks.is_zero(zeros));
            for (range, is_zero) in [(zeros, is_zero), (rest, false)] {
                if range.is_empty() {
                    continue;
                }
                if is_zero {
                    hit += range.count();
                } else if self.hooks.is_some_and(|hooks| hooks.zero(range)) {
                    missed += range.count();
                } else {
                    return false;
                }
            }
        }
        if let Some(segment) = self.segments.at(block.start) {
            for (count, frames) in [(&segment.zeroed.hit, hit), (&segment.zeroed.missed, missed)] {
                if frames > 0 {
                    count.fetch_add(frames, Ordering::Relaxed);
                }
            }
        }
        true
    }

    /// The sums of some segments.
    pub(crate) fn zeroed<'a, 'm: 'a>(
        segments: impl Iterator<Item = &'a ZoneSegment<'m>>,
    ) -> ZeroedFrames {
        let mut sum = ZeroedFrames::default();
        segments.for_each(|segment| sum += segment.zeroed.get());
        sum
    }
}
