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

/// What is known of the parts of a block, noted by the calls that take it: of pages of a block up
/// to a huge frame, of huge frames of a larger one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// By their place in the huge frame, or in the giant frame.
    zero: [Cell<u64>; BITMAP_WORDS],
    reported: [Cell<u64>; BITMAP_WORDS],
    /// Reported memory counts as zero.
    reported_is_zero: bool,
}

impl Known {
    /// Nothing.
    pub(crate) fn new(reported_is_zero: bool) -> Self {
        Self {
            zero: [const { Cell::new(0) }; BITMAP_WORDS],
            reported: [const { Cell::new(0) }; BITMAP_WORDS],
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
        let all = [
            (&self.zero, Content::Zero),
            (&self.reported, Content::Reported),
        ];
        for (of_content, its) in all {
            if IS_KEPT && let Some(of_word) = of_content.get(word) {
                let others = of_word.get() & !bits;
                of_word.set(if its == content {
                    others | bits
                } else {
                    others
                });
            }
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

    /// Of a word of units: which have this content.
    fn bits(&self, word: usize, content: Content) -> u64 {
        let of = |bits: &[Cell<u64>; BITMAP_WORDS]| bits.get(word).map_or(0, Cell::get);
        match content {
            Content::Zero => of(&self.zero),
            Content::Reported => of(&self.reported),
            Content::Unknown => !(of(&self.zero) | of(&self.reported)),
        }
    }

    /// Frames of a unit, and units of a note, for a block.
    const fn units_of(block: Block) -> (u64, u64) {
        if block.order > HUGE_ORDER {
            (HUGE_FRAMES as u64, HUGES as u64)
        } else {
            (1, HUGE_FRAMES as u64)
        }
    }

    /// The parts of `block` by their content, as few as there can be.
    pub(crate) fn parts(&self, block: Block) -> impl Iterator<Item = (FrameRange, Content)> + '_ {
        let (unit, units) = Self::units_of(block);
        let count = block.frames() / unit;
        let first = block.start.get() / unit % units;
        let mut done = 0;
        core::iter::from_fn(move || {
            let from = done;
            let place = |done: u64| {
                let at = first + done;
                (usize::try_from(at / 64).unwrap_or(0), at % 64)
            };
            let (word, bit) = place(done);
            let contents = [Content::Zero, Content::Reported];
            let is_of = |content: &Content| self.bits(word, *content) >> bit & 1 != 0;
            let content = contents.into_iter().find(is_of).unwrap_or_default();
            // A word at a time: most blocks are alike as a whole.
            while done < count {
                let (word, bit) = place(done);
                let alike = (self.bits(word, content) >> bit).trailing_ones();
                done = count.min(done + u64::from(alike));
                if u64::from(alike) + bit < 64 {
                    break;
                }
            }
            let start = block.start.get();
            let part = FrameRange::new(start + from * unit, start + done * unit)?;
            (!part.is_empty()).then_some((part, content))
        })
    }

    /// A part of `block` has this content now.
    pub(crate) fn set(&self, block: Block, part: FrameRange, content: Content) {
        let (unit, units) = Self::units_of(block);
        for at in part.start().get() / unit..part.end().get() / unit {
            self.note(usize::try_from(at % units).unwrap_or(0), content);
        }
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
        assert_eq!(parts(&known, 512, 9), [(512, 1024, UNKNOWN)]);
        known.note(3, ZERO);
        known.note_bits(1, !0, ZERO);
        known.note(200, REPORTED);
        let all = [
            (512, 515, UNKNOWN),
            (515, 516, ZERO),
            (516, 576, UNKNOWN),
            (576, 640, ZERO),
            (640, 712, UNKNOWN),
            (712, 713, REPORTED),
            (713, 1024, UNKNOWN),
        ];
        assert_eq!(parts(&known, 512, 9), all);
        assert_eq!(
            parts(&known, 512 + 2, 1),
            [(514, 515, UNKNOWN), (515, 516, ZERO)]
        );
        assert_eq!(parts(&known, 512 + 64, 6), [(576, 640, ZERO)]);
        assert_eq!(parts(&known, 512 + 200, 0), [(712, 713, REPORTED)]);
        // What is noted last counts.
        let block = Block {
            start: Frame::new(512),
            order: 9,
        };
        let part = |start, end| FrameRange::new(start, end).unwrap();
        known.set(block, part(513, 714), UNKNOWN);
        assert_eq!(parts(&known, 512, 9), [(512, 1024, UNKNOWN)]);
        known.set(block, part(600, 1024), REPORTED);
        known.set(block, part(1023, 1024), ZERO);
        assert_eq!(
            parts(&known, 512, 9),
            [
                (512, 600, UNKNOWN),
                (600, 1023, REPORTED),
                (1023, 1024, ZERO)
            ]
        );
    }

    #[test]
    fn parts_of_large_blocks_are_huge_frames() {
        let known = Known::new(false);
        let (start, huge) = (7 << 18, 512);
        known.note(3, ZERO);
        known.note(200, REPORTED);
        let of_giant = parts(&known, start, 18);
        assert_eq!(of_giant.len(), 5);
        assert_eq!(of_giant[0], (start, start + 3 * huge, UNKNOWN));
        assert_eq!(of_giant[1], (start + 3 * huge, start + 4 * huge, ZERO));
        assert_eq!(of_giant[4].1, start + (1 << 18));
        known.note_all(ZERO);
        assert_eq!(parts(&known, start, 18), [(start, start + (1 << 18), ZERO)]);
        assert_eq!(
            parts(&known, start + 2 * huge, 10),
            [(start + 2 * huge, start + 4 * huge, ZERO)]
        );
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
