//! The sizes of the three levels, in one place.
//!
//! The model checker explores every interleaving, so it gets a machine whose
//! giant frame has 4 huge frames and whose huge frame has 128 pages; the code
//! is the same.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use crate::addr::{Frame, FrameRange};

/// Order of a huge frame: 2 MiB.
#[cfg(not(loom))]
pub(crate) const HUGE_ORDER: u8 = 9;
/// Order of a giant frame: 1 GiB, the largest block.
#[cfg(not(loom))]
pub(crate) const GIANT_ORDER: u8 = 18;
#[cfg(loom)]
pub(crate) const HUGE_ORDER: u8 = 7;
#[cfg(loom)]
pub(crate) const GIANT_ORDER: u8 = 9;

/// Page frames in a huge frame.
pub(crate) const HUGE_FRAMES: u32 = 1 << HUGE_ORDER;
/// Page frames in a giant frame.
pub(crate) const GIANT_FRAMES: u64 = 1 << GIANT_ORDER;
/// Huge frames in a giant frame.
pub(crate) const HUGES: u32 = 1 << (GIANT_ORDER - HUGE_ORDER);
/// 64-bit words in the bitmap of a huge frame.
pub(crate) const ROW_WORDS: usize = (HUGE_FRAMES / 64) as usize;

/// Number of units of 2^`order` frames that `frames` touches.
pub(crate) const fn units(frames: FrameRange, order: u8) -> u64 {
    if frames.is_empty() {
        0
    } else {
        ((frames.end().get() - 1) >> order) - (frames.start().get() >> order) + 1
    }
}

/// The unit of 2^`order` frames with absolute number `number`.
pub(crate) fn unit(number: u64, order: u8) -> FrameRange {
    let start = number << order;
    FrameRange::new(start, start + (1 << order)).unwrap_or(FrameRange::EMPTY)
}

/// A block of `1 << order` frames whose start is aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: Frame,
    pub(crate) order: u8,
}

impl Block {
    /// Number of page frames.
    pub(crate) const fn frames(self) -> u64 {
        1 << self.order
    }

    /// Number of huge frames; 0 below [`HUGE_ORDER`].
    pub(crate) const fn huges(self) -> u32 {
        if self.order < HUGE_ORDER {
            0
        } else {
            1 << (self.order - HUGE_ORDER)
        }
    }

    /// The frames of the block.
    pub(crate) fn range(self) -> FrameRange {
        unit(self.start.get() >> self.order, self.order)
    }

    /// All blocks of this order in the giant frame that this one is the first of.
    pub(crate) fn siblings_in_giant(self) -> impl Iterator<Item = Self> {
        let start = self.start.get();
        (start..start + GIANT_FRAMES)
            .step_by(1 << self.order)
            .map(move |start| Self {
                start: Frame::new(start),
                order: self.order,
            })
    }

    /// Position of the first page inside its huge frame.
    pub(crate) const fn page_in_huge(self) -> u32 {
        (self.start.get() & (HUGE_FRAMES as u64 - 1)) as u32
    }
}
