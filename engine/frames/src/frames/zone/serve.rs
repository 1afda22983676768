//! Blocks for requests for zeros, once they are taken: what is known of them is checked, the rest
//! is zeroed; or all goes back as it is.

use super::Nodes;
#[cfg(feature = "content")]
use super::segment::ZoneSegment;
use super::zeroed::ZeroedFrames;
use crate::addr::Frame;
use crate::frames::request::Request;
use crate::frames::word::geometry::{Block, blocks};
use crate::frames::word::{Content, Known};

/// Not all of a block is zero, and the kernel does not zero it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotZeroed {
    /// Frames of it that were zeroed before that was seen.
    zeroed: u64,
}

impl Nodes<'_> {
    /// Makes all of a block zero that a request for zeros has just taken; what that took. If the
    /// kernel refuses, `known` says what is known of it now.
    pub(crate) fn make_zero(&self, block: Block, known: &Known) -> Result<ZeroedFrames, NotZeroed> {
        let mut served = ZeroedFrames::default();
        for (part, content) in known.parts(block) {
            let counts = known.is_zero(content);
            // SAFETY: of a block that was free and was just taken, for the request in progress.
            let is_zero = counts
                && self
                    .hooks
                    .is_none_or(|hooks| unsafe { hooks.is_zero(part) });
            // SAFETY: likewise.
            let zero = || self.hooks.is_some_and(|hooks| unsafe { hooks.zero(part) });
            let count = match content {
                Content::Zero if is_zero => &mut served.hit,
                Content::Reported if is_zero => &mut served.reported,
                _ if zero() => {
                    known.set(block, part, Content::Zero);
                    &mut served.missed
                }
                _ => {
                    if counts {
                        known.set(block, part, Content::Unknown);
                    }
                    let zeroed = served.missed;
                    return Err(NotZeroed { zeroed });
                }
            };
            *count += part.count();
        }
        Ok(served)
    }

    /// Gives back a block that is not zero, with what is known of its parts.
    pub(crate) fn give_back(&self, block: Block, known: &Known, why: NotZeroed) {
        let Some(segment) = self.segments.at(block.start) else {
            return;
        };
        for (part, content) in known.parts(block) {
            for piece in blocks(part) {
                if let Some(online) = segment.online() {
                    // An error: another call freed what it did not have.
                    let _ = online.give_with(piece, content);
                }
            }
        }
        segment.zeroed.add_made(why.zeroed);
    }

    /// Makes a block zero that a request was allocated, or frees it as it is; whether it did.
    pub(crate) fn serve_zeroed(&self, start: Frame, request: &Request, known: &Known) -> bool {
        let order = request.order().get();
        let block = Block { start, order };
        let made = self.make_zero(block, known);
        if let Some(segment) = self.segments.at(start) {
            match made {
                Ok(served) => segment.zeroed.add(served),
                Err(why) => {
                    self.give_back(block, known, why);
                    self.count(segment, block.frames().cast_signed());
                }
            }
        }
        made.is_ok()
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
