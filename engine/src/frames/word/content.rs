//! What is known of what free memory holds: [`Content`]; of a block that is being taken:
//! [`Known`].

use core::cell::Cell;
use core::fmt;

use super::geometry::{BITMAP_WORDS, Block, HUGE_FRAMES, HUGE_ORDER, HUGES};
use crate::addr::FrameRange;

/// Whether anything is ever known of what free memory holds: without the feature the compiler
/// leaves out all that keeps it.
pub(crate) const IS_KEPT: bool = cfg!(feature = "content");

/// What is known of what free memory holds.
///
/// It is kept when a block is split, and when blocks merge as far as all of them have it. Memory
/// that is handed out loses it. So losing it is always safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// Anything.
    #[default]
    Unknown = 0,
    /// Zeros.
    Zero = 1,
    /// The host has it: it comes back as the device promises, see
    /// [`Frames::set_reported_is_zero`](crate::frames::Frames::set_reported_is_zero).
    Reported = 2,
}

impl Content {
    /// That of two bits of a word.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        match bits & 3 {
            1 if IS_KEPT => Self::Zero,
            2 if IS_KEPT => Self::Reported,
            _ => Self::Unknown,
        }
    }

    /// Whether anything is known.
    pub(crate) const fn is_known(self) -> bool {
        IS_KEPT && !matches!(self, Self::Unknown)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Zero => "zero",
            Self::Reported => "reported",
        })
    }
}

/// Which parts of a block hold zeros, noted by the calls that take it: pages of a block up to a
/// huge frame, huge frames of a larger one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// By their place in the huge frame, or in the giant frame.
    zero: [Cell<u64>; BITMAP_WORDS],
    /// Reported memory counts as zero.
    reported_is_zero: bool,
}

impl Known {
    /// Nothing.
    pub(crate) fn new(reported_is_zero: bool) -> Self {
        Self {
            zero: [const { Cell::new(0) }; BITMAP_WORDS],
            reported_is_zero,
        }
    }

    /// Whether memory with this content counts as zero.
    pub(crate) fn is_zero(&self, content: Content) -> bool {
        match content {
            Content::Unknown => false,
            Content::Zero => true,
            Content::Reported => self.reported_is_zero,
        }
    }

    /// Units of a word's bits have this content.
    pub(crate) fn note_bits(&self, word: usize, bits: u64, content: Content) {
        if IS_KEPT
            && self.is_zero(content)
            && let Some(zero) = self.zero.get(word)
        {
            zero.set(zero.get() | bits);
        }
    }

    /// A unit has this content.
    pub(crate) fn note(&self, unit: usize, content: Content) {
        self.note_bits(unit / 64, 1 << (unit % 64), content);
    }

    /// All of a block that is one huge or giant frame has this content.
    pub(crate) fn note_all(&self, content: Content) {
        (0..BITMAP_WORDS).for_each(|word| self.note_bits(word, !0, content));
    }

    /// Whether all of `block` holds zeros.
    fn is_all(&self, block: Block) -> bool {
        let unit_order = if block.order > HUGE_ORDER {
            HUGE_ORDER
        } else {
            0
        };
        let first = block.start.get() >> unit_order & u64::from(HUGE_FRAMES - 1);
        let count = 1u64 << (block.order - unit_order);
        let word = |at: u64| {
            let word = usize::try_from(at).ok().and_then(|at| self.zero.get(at));
            word.map_or(0, Cell::get)
        };
        if count < 64 {
            let mask = (1 << count) - 1;
            return word(first / 64) >> (first % 64) & mask == mask;
        }
        (first / 64..(first + count) / 64).all(|at| word(at) == u64::MAX)
    }

    /// The parts of `block` that do not hold zeros, as few ranges as there can be.
    pub(crate) fn rest(&self, block: Block) -> impl Iterator<Item = FrameRange> + '_ {
        let (unit, units) = if block.order > HUGE_ORDER {
            (u64::from(HUGE_FRAMES), u64::from(HUGES))
        } else {
            (1, u64::from(HUGE_FRAMES))
        };
        let start = block.start.get();
        let is_zero = move |frame: u64| {
            let at = frame / unit % units;
            let word = usize::try_from(at / 64)
                .ok()
                .and_then(|at| self.zero.get(at));
            word.is_some_and(|word| word.get() >> (at % 64) & 1 != 0)
        };
        let end = start + block.frames();
        // Most blocks are zero as a whole, or looked at for long.
        let mut at = if self.is_all(block) { end } else { start };
        core::iter::from_fn(move || {
            while at < end && is_zero(at) {
                at += unit;
            }
            let from = at;
            while at < end && !is_zero(at) {
                at += unit;
            }
            FrameRange::new(from, at).filter(|range| !range.is_empty())
        })
    }
}

/// What frames are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purpose<'k> {
    /// What their content will be.
    pub(crate) mobility: super::Mobility,
    /// Where to note what they hold, for a request for zeros.
    pub(crate) known: Option<&'k Known>,
}

impl From<super::Mobility> for Purpose<'_> {
    fn from(mobility: super::Mobility) -> Self {
        let known = None;
        Self { mobility, known }
    }
}

#[cfg(all(test, not(loom), feature = "content"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::addr::Frame;
    use std::vec::Vec;

    fn rest(known: &Known, start: u64, order: u8) -> Vec<(u64, u64)> {
        let start = Frame::new(start);
        let rest = known.rest(Block { start, order });
        rest.map(|range| (range.start().get(), range.end().get()))
            .collect()
    }

    #[test]
    fn what_is_not_known_to_be_zero_is_left() {
        let known = Known::new(false);
        assert_eq!(rest(&known, 512, 9), [(512, 1024)]);
        known.note(3, Content::Zero);
        known.note_bits(1, !0, Content::Zero);
        known.note(200, Content::Reported);
        assert_eq!(rest(&known, 512, 9), [(512, 515), (516, 576), (640, 1024)]);
        assert_eq!(rest(&known, 512 + 2, 1), [(514, 515)]);
        assert_eq!(rest(&known, 512 + 64, 6), []);
        // In units of huge frames.
        let (start, huge) = (7 << 18, 512);
        let of_giant = rest(&known, start, 18);
        assert_eq!(of_giant[0], (start, start + 3 * huge));
        assert_eq!(of_giant.len(), 3);
        known.note_all(Content::Zero);
        assert_eq!(rest(&known, start, 18), []);
        assert_eq!(rest(&known, start + 2 * huge, 10), []);
        assert_eq!(rest(&known, start + 64, 6), []);
    }

    #[test]
    fn reported_memory_is_zero_if_the_device_promises_it() {
        let known = Known::new(true);
        known.note(0, Content::Reported);
        known.note(1, Content::Unknown);
        assert_eq!(rest(&known, 0, 1), [(1, 2)]);
    }
}
