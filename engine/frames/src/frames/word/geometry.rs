//! What follows from the sizes of the three levels, which `firstlight-memory` has (`levels.rs`).
//!
//! The model checker explores every interleaving, so it gets a machine whose
//! giant frame has 4 huge frames and whose huge frame has 128 pages; the code
//! is the same.

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use core::num::NonZeroU64;

use crate::addr::{Frame, FrameRange};

/// Order of a bitmap word: 64 pages.
pub(crate) const WORD_ORDER: u8 = 6;
#[cfg(not(firstlight_loom))]
pub(crate) use crate::levels::{GIANT_ORDER, HUGE_ORDER};
#[cfg(firstlight_loom)]
pub(crate) const HUGE_ORDER: u8 = 7;
#[cfg(firstlight_loom)]
pub(crate) const GIANT_ORDER: u8 = 9;

/// Page frames in a huge frame.
pub(crate) const HUGE_FRAMES: u32 = 1 << HUGE_ORDER;
/// Page frames in a giant frame.
pub(crate) const GIANT_FRAMES: u64 = 1 << GIANT_ORDER;
/// Huge frames in a giant frame.
pub(crate) const HUGES: u32 = 1 << (GIANT_ORDER - HUGE_ORDER);
/// Order of the largest block of pages: half a huge frame.
pub(crate) const LARGEST_PAGES: u8 = HUGE_ORDER - 1;
/// 64-bit words in the bitmap of a huge frame.
pub(crate) const BITMAP_WORDS: usize = (HUGE_FRAMES / 64) as usize;

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
    #[inline]
    pub(crate) const fn range(self) -> FrameRange {
        FrameRange::of(self.start, self.frames())
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

    /// Position of the first page inside its giant frame.
    pub(crate) const fn page_in_giant(self) -> u32 {
        (self.start.get() & (GIANT_FRAMES - 1)) as u32
    }
}

/// Pages in a row of one huge frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Position of the first in its huge frame.
    pub(crate) at: u32,
    pub(crate) count: u32,
}

impl Pages {
    /// All of a huge frame.
    pub(crate) const ALL: Self = Self {
        at: 0,
        count: HUGE_FRAMES,
    };

    /// Those of `frames`, which lie in one huge frame.
    #[inline]
    pub(crate) const fn of(frames: FrameRange) -> Self {
        Self {
            at: (frames.start().get() & (HUGE_FRAMES as u64 - 1)) as u32,
            count: frames.count() as u32,
        }
    }

    /// Whether they lie in one word of a bitmap.
    #[inline]
    pub(crate) const fn is_in_one_word(self) -> bool {
        self.at % 64 + self.count <= 64
    }
}

/// Whether not empty `frames` lie in one huge frame.
#[inline]
pub(crate) const fn is_in_one_huge(frames: FrameRange) -> bool {
    frames.start().get() >> HUGE_ORDER == (frames.end().get() - 1) >> HUGE_ORDER
}

/// The largest aligned blocks that `range` is made of, ascending.
pub(crate) fn blocks(range: FrameRange) -> impl Iterator<Item = Block> + Clone {
    let end = range.end().get();
    let mut at = range.start().get();
    core::iter::from_fn(move || {
        let order = largest_order(at, end - at)?;
        let start = Frame::new(at);
        at += 1 << order;
        Some(Block { start, order })
    })
}

/// The largest aligned blocks of `at..end`, the end part of an aligned block of at most a giant frame: ascending
/// sizes.
#[inline]
pub(crate) fn blocks_up_to(mut at: u64, end: u64) -> impl Iterator<Item = Block> {
    core::iter::from_fn(move || {
        let start = at;
        if start >= end {
            return None;
        }
        let frames = start & start.wrapping_neg();
        at += frames;
        let order = NonZeroU64::new(frames)?.trailing_zeros() as u8;
        let start = Frame::new(start);
        Some(Block { start, order })
    })
}

/// Order of the largest block that begins at frame `at` and has `left` frames at most.
#[inline]
pub(crate) fn largest_order(at: u64, left: u64) -> Option<u8> {
    let fits = NonZeroU64::new(left)?.ilog2();
    // No more than a giant frame.
    let aligned = (at | GIANT_FRAMES).trailing_zeros();
    Some(fits.min(aligned) as u8)
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_range_is_made_of_the_largest_aligned_blocks() {
        const LARGEST: u8 = GIANT_ORDER;
        let of = |start, end| {
            blocks(FrameRange::new(start, end).unwrap())
                .map(|block| (block.start.get(), block.order))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(5, 5), []);
        assert_eq!(of(0, 7), [(0, 2), (4, 1), (6, 0)]);
        assert_eq!(of(3, 13), [(3, 0), (4, 2), (8, 2), (12, 0)]);
        assert_eq!(
            of(0, 3 << LARGEST),
            [
                (0, LARGEST),
                (1 << LARGEST, LARGEST),
                (2 << LARGEST, LARGEST)
            ]
        );
        assert_eq!(of(u64::MAX - 1, u64::MAX), [(u64::MAX - 1, 0)]);
        let rest = FrameRange::new(11, 32).unwrap();
        assert!(blocks_up_to(11, 32).eq(blocks(rest)));
        assert_eq!(blocks_up_to(32, 32).next(), None);
        let most = blocks(FrameRange::new(1, (3 << LARGEST) - 1).unwrap()).count();
        assert_eq!(most, 2 * usize::from(LARGEST) + 1);
    }
}
