//! The lists that a memory map writes when it is made: its ranges and their states.

use super::MemmapError;
use super::descriptor::{self, Descriptor};
use super::range::{DescriptorRange, sections_of};
use super::states::States;
use crate::addr::{Frame, FrameRange, PAGE_BYTES, PHYS_END};
use crate::carver::Carver;
use crate::layout::ZoneSegment;
use crate::sync::AtomicU64;

/// No memory ends after this frame.
const LAST_END: Frame = Frame::new(PHYS_END / PAGE_BYTES);

/// What a directory holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    ranges: usize,
    /// Words of states.
    words: usize,
    /// Bytes of all of it.
    pub(super) bytes: u64,
}

/// The space of one node's descriptors, while they are placed.
pub(super) struct NodeSpace<'m> {
    /// How much is needed.
    pub(super) bytes: u64,
    /// Where it is, and whether it is zero; `None` where it is not in one piece.
    pub(super) carver: Option<(Carver<'m>, bool)>,
}

impl NodeSpace<'_> {
    /// Nothing needed yet.
    pub(super) const EMPTY: Self = Self {
        bytes: 0,
        carver: None,
    };
}

/// Words for the states of a segment's sections.
pub(super) const fn words_for(frames: FrameRange) -> u64 {
    States::words_for(sections_of(frames))
}

/// Bytes of a directory with so many ranges, words of states and node spaces.
pub(super) const fn bytes_for<T>(ranges: u64, words: u64, nodes: u64) -> Option<u64> {
    let words = Carver::bytes_for::<AtomicU64>(words);
    let ranges = Carver::bytes_for::<DescriptorRange<'_, T>>(ranges);
    let nodes = Carver::bytes_for::<NodeSpace<'_>>(nodes);
    let (Some(words), Some(ranges), Some(nodes)) = (words, ranges, nodes) else {
        return None;
    };
    let Some(lists) = words.checked_add(ranges) else {
        return None;
    };
    lists.checked_add(nodes)
}

impl Counts {
    /// Counts the directory of `segments` and `nodes` node spaces; refuses segments
    /// that can have no descriptors.
    pub(super) fn of<T: Descriptor>(
        segments: impl Iterator<Item = ZoneSegment>,
        nodes: usize,
    ) -> Result<Self, MemmapError> {
        const { descriptor::check::<T>() };
        let (mut ranges, mut words, mut all_frames) = (0, 0u64, 0u64);
        let mut end = Frame::new(0);
        for segment in segments {
            let frames = segment.frames;
            if frames.is_empty() || frames.start() < end {
                return Err(MemmapError::Unordered { frames });
            }
            end = frames.end();
            if end > LAST_END {
                return Err(MemmapError::NoSuchMemory { frames });
            }
            all_frames = all_frames.saturating_add(frames.count());
            // No overflow: there are fewer than 2^40 frames.
            words += words_for(frames);
            ranges += 1;
        }
        if ranges == 0 {
            return Err(MemmapError::NoMemory);
        }
        let too_large = MemmapError::TooLarge { frames: all_frames };
        let bytes = bytes_for::<T>(ranges as u64, words, nodes as u64).ok_or(too_large)?;
        let words = usize::try_from(words).map_err(|_| too_large)?;
        Ok(Self {
            ranges,
            words,
            bytes,
        })
    }

    /// Writes ranges over `segments`, each with the first frame left to the deferred
    /// workers, without space for descriptors.
    pub(super) fn write<'m, T: Descriptor>(
        &self,
        directory: &mut Carver<'m>,
        segments: &mut dyn Iterator<Item = (ZoneSegment, Frame)>,
    ) -> Option<&'m mut [DescriptorRange<'m, T>]> {
        let words = directory.slice(self.words, |_| Some(AtomicU64::new(0)))?;
        let mut words: &'m [AtomicU64] = words;
        directory.slice(self.ranges, |_| {
            let (segment, deferred_from) = segments.next()?;
            let own_words = usize::try_from(words_for(segment.frames)).ok()?;
            let (own, rest) = words.split_at_checked(own_words)?;
            words = rest;
            Some(DescriptorRange::new(
                segment,
                States::new(own),
                deferred_from,
            ))
        })
    }
}
