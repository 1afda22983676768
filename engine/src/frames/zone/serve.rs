//! Blocks for requests for zeros, once they are taken: what is known of them is checked, the rest
//! is zeroed, and both are counted.

use super::Nodes;
#[cfg(feature = "content")]
use super::segment::ZoneSegment;
#[cfg(feature = "content")]
use super::zeroed::ZeroedFrames;
use crate::addr::FrameRange;
use crate::frames::word::Known;
use crate::frames::word::geometry::Block;

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
            segment.zeroed.add_served(hit, missed);
        }
        true
    }

    /// The sums of some segments.
    #[cfg(feature = "content")]
    pub(crate) fn zeroed<'a, 'm: 'a>(
        segments: impl Iterator<Item = &'a ZoneSegment<'m>>,
    ) -> ZeroedFrames {
        let mut sum = ZeroedFrames::default();
        segments.for_each(|segment| sum += segment.zeroed.get());
        sum
    }
}
