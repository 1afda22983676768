//! What is known of what free memory holds: [`Content`]; of a block that is being taken:
//! [`Known`].

use core::cell::Cell;
use core::fmt;

use super::geometry::{Block, HUGE_ORDER, HUGES};
use crate::addr::FrameRange;

/// Whether anything is ever known of what free memory holds: without the feature the compiler
/// leaves out all that keeps it.
pub(crate) const IS_KEPT: bool = cfg!(feature = "content");

/// What is known of what free memory holds.
///
/// It is known of huge frames (2 MiB): kept when a larger block is split or merges, lost when pages are
/// taken of one, or when it is handed out. So losing it is always safe.
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

/// What is known of a block, noted by the calls that take it: of each of its huge frames, or of all
/// of a smaller one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// By place in the giant frame; of a block up to a huge frame, the first.
    zero: [Cell<u64>; WORDS],
    reported: [Cell<u64>; WORDS],
    /// Reported memory counts as zero.
    reported_is_zero: bool,
}

/// 64 huge frames each.
const WORDS: usize = HUGES.div_ceil(64) as usize;

impl Known {
    /// Nothing.
    pub(crate) fn new(reported_is_zero: bool) -> Self {
        Self {
            zero: [const { Cell::new(0) }; WORDS],
            reported: [const { Cell::new(0) }; WORDS],
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

    /// Huge frame `unit` has this content.
    pub(crate) fn note(&self, unit: usize, content: Content) {
        let all = [
            (&self.zero, Content::Zero),
            (&self.reported, Content::Reported),
        ];
        for (of_content, its) in all {
            if IS_KEPT && let Some(word) = of_content.get(unit / 64) {
                let (bit, others) = (1 << (unit % 64), word.get() & !(1 << (unit % 64)));
                word.set(if its == content { others | bit } else { others });
            }
        }
    }

    /// All of the block has this content.
    pub(crate) fn note_all(&self, content: Content) {
        (0..HUGES as usize).for_each(|unit| self.note(unit, content));
    }

    /// What is known of huge frame `unit`, or of all of a smaller block.
    pub(crate) fn content(&self, unit: usize) -> Content {
        let has = |of: &[Cell<u64>; WORDS]| {
            of.get(unit / 64)
                .is_some_and(|word| word.get() >> (unit % 64) & 1 != 0)
        };
        match (has(&self.zero), has(&self.reported)) {
            (true, _) => Content::Zero,
            (false, true) => Content::Reported,
            (false, false) => Content::Unknown,
        }
    }

    /// Frames of a unit of a block, and the first unit.
    const fn units_of(block: Block) -> (u64, usize) {
        if block.order > HUGE_ORDER {
            (
                1 << HUGE_ORDER,
                (block.page_in_giant() >> HUGE_ORDER) as usize,
            )
        } else {
            (block.frames(), 0)
        }
    }

    /// The parts of `block` by their content, as few as there can be.
    pub(crate) fn parts(&self, block: Block) -> impl Iterator<Item = (FrameRange, Content)> + '_ {
        let (frames, first) = Self::units_of(block);
        let (start, end) = (block.start.get(), block.start.get() + block.frames());
        let (mut at, mut unit) = (start, first);
        core::iter::from_fn(move || {
            let (from, content) = (at, self.content(unit));
            while at < end && self.content(unit) == content {
                (at, unit) = (at + frames, unit + 1);
            }
            let part = FrameRange::new(from, at)?;
            (!part.is_empty()).then_some((part, content))
        })
    }

    /// A part of `block` has this content now.
    pub(crate) fn set(&self, block: Block, part: FrameRange, content: Content) {
        let (frames, first) = Self::units_of(block);
        let units = (first..).zip((block.start.get()..).step_by(1 << frames.ilog2()));
        let inside = units.take_while(|(_, at)| *at < part.end().get());
        let mine = inside.filter(|(_, at)| *at >= part.start().get());
        mine.for_each(|(unit, _)| self.note(unit, content));
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

#[cfg(all(test, not(firstlight_loom), feature = "content"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::addr::Frame;
    use crate::frames::word::geometry::GIANT_ORDER;
    use std::vec::Vec;

    const ZERO: Content = Content::Zero;
    const REPORTED: Content = Content::Reported;
    const UNKNOWN: Content = Content::Unknown;

    fn parts(known: &Known, start: u64, order: u8) -> Vec<(u64, u64, Content)> {
        let start = Frame::new(start);
        let parts = known.parts(Block { start, order });
        parts
            .map(|(range, content)| (range.start().get(), range.end().get(), content))
            .collect()
    }

    #[test]
    fn a_block_falls_into_parts_by_their_content() {
        let known = Known::new(false);
        let (start, end, huge) = (7 << GIANT_ORDER, 8 << GIANT_ORDER, 1 << HUGE_ORDER);
        let last = HUGES - 12;
        known.note(3, ZERO);
        known.note(last as usize, REPORTED);
        let of_giant = parts(&known, start, GIANT_ORDER);
        assert_eq!(of_giant.len(), 5);
        assert_eq!(of_giant[0], (start, start + 3 * huge, UNKNOWN));
        assert_eq!(of_giant[1], (start + 3 * huge, start + 4 * huge, ZERO));
        assert_eq!(of_giant[4].1, end);
        // What is noted last counts.
        let block = Block {
            start: Frame::new(start),
            order: GIANT_ORDER,
        };
        let huges = |from, to| FrameRange::new(start + from * huge, start + to * huge).unwrap();
        known.set(block, huges(3, u64::from(last) + 1), UNKNOWN);
        assert_eq!(parts(&known, start, GIANT_ORDER), [(start, end, UNKNOWN)]);
        known.note_all(ZERO);
        assert_eq!(parts(&known, start, GIANT_ORDER), [(start, end, ZERO)]);
        let pair = (start + 2 * huge, start + 4 * huge);
        assert_eq!(
            parts(&known, pair.0, HUGE_ORDER + 1),
            [(pair.0, pair.1, ZERO)]
        );
    }

    #[test]
    fn a_block_up_to_a_huge_frame_is_alike() {
        for order in [0, 5, HUGE_ORDER] {
            let known = Known::new(false);
            let (start, end) = (5 << HUGE_ORDER, (5 << HUGE_ORDER) + (1 << order));
            assert_eq!(parts(&known, start, order), [(start, end, UNKNOWN)]);
            known.note_all(ZERO);
            assert_eq!(parts(&known, start, order), [(start, end, ZERO)]);
            let block = Block {
                start: Frame::new(start),
                order,
            };
            known.set(block, block.range(), REPORTED);
            assert_eq!(parts(&known, start, order), [(start, end, REPORTED)]);
        }
    }

    #[test]
    fn reported_memory_is_zero_if_the_device_promises_it() {
        for promised in [false, true] {
            let known = Known::new(promised);
            assert_eq!(
                [ZERO, REPORTED, UNKNOWN].map(|one| known.is_zero(one)),
                [true, promised, false]
            );
        }
    }
}
