//! The descriptors of one zone segment: [`DescriptorRange`].
//!
//! A segment is frames in a row, of one node and one zone, so all descriptors
//! of one of its sections are alike, a frame's descriptor is found by
//! arithmetic, and holes have none. Where a segment begins or ends inside a
//! section, the range has a part of that section, with a state of its own.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::descriptor::{self, Descriptor};
use super::space::Space;
use super::states::{SectionState, States};
use super::{MemmapPolicy, SectionPlace};
use crate::addr::{Frame, FrameRange};
use crate::layout::{SECTION_FRAMES, ZoneSegment};

/// A zone segment and its descriptors.
#[derive(Debug)]
pub(super) struct DescriptorRange<'m, T> {
    pub(super) segment: ZoneSegment,
    space: Space<T>,
    states: States<'m>,
    /// First frame that is left to the deferred workers in mode `early`.
    deferred_from: Frame,
    memory: PhantomData<&'m [T]>,
}

// SAFETY: to threads a range is a shared slice of `T`; its
// parts are written through the states' claims, one thread each.
unsafe impl<T: Send + Sync> Sync for DescriptorRange<'_, T> {}
// SAFETY: as above; it owns nothing that is tied to a thread.
unsafe impl<T: Send + Sync> Send for DescriptorRange<'_, T> {}

/// What was written of descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// Those that were zero.
    pub(super) zero_bytes: u64,
}

/// Sections that hold some of `frames`.
pub(super) const fn sections_of(frames: FrameRange) -> u64 {
    frames.end().get().div_ceil(SECTION_FRAMES) - frames.start().get() / SECTION_FRAMES
}

impl<T> DescriptorRange<'_, T> {
    /// Whether its memory is `space`, and counts as zero only if that does.
    pub(super) fn is_in(&self, space: &Space<T>) -> bool {
        self.space.first == space.first && (space.is_zero || !self.space.is_zero)
    }

    /// Makes all sections untouched. While no other call knows of the range.
    pub(super) fn forget(&self) {
        self.states.clear();
    }
}

impl<'m, T: Descriptor> DescriptorRange<'m, T> {
    /// A range whose descriptors are not written.
    pub(super) fn new(segment: ZoneSegment, states: States<'m>, deferred_from: Frame) -> Self {
        Self {
            segment,
            space: Space::NONE,
            states,
            deferred_from,
            memory: PhantomData,
        }
    }

    /// Gives the range its memory.
    ///
    /// # Safety
    /// For all of `'m` there is memory for the descriptors of all frames of the
    /// segment from `space.first` on, aligned for `T` and as [`descriptor::write`]
    /// needs it, which no other code uses; its bytes are zero if `space` says so.
    pub(super) unsafe fn set_space(&mut self, space: Space<T>) {
        self.space = space;
    }

    /// Which of the range's sections holds `frame`, one of the segment's.
    #[inline]
    fn index_of(&self, frame: Frame) -> usize {
        let section = frame.get() / SECTION_FRAMES;
        let first = self.segment.frames.start().get() / SECTION_FRAMES;
        // Fits: their descriptors are in memory.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the range's sections"
        )]
        let index = (section - first) as usize;
        index
    }

    /// The range's frames in its section `index`.
    fn part(&self, index: usize) -> FrameRange {
        let first = self.segment.frames.start().get() / SECTION_FRAMES;
        let start = (first + index as u64) * SECTION_FRAMES;
        FrameRange::new(start, start + SECTION_FRAMES)
            .unwrap_or_default()
            .intersect(self.segment.frames)
    }

    /// The range's frames in the section of `frame`, one of the segment's.
    pub(super) fn part_of(&self, frame: Frame) -> FrameRange {
        self.part(self.index_of(frame))
    }

    /// The place of a frame of the segment.
    pub(super) fn place(&self, frame: Frame) -> SectionPlace {
        SectionPlace {
            node: self.segment.node,
            zone: self.segment.zone,
            section: frame.get() / SECTION_FRAMES,
        }
    }

    /// The state of the section `frame`, one of the segment's, lies in.
    pub(super) fn state(&self, frame: Frame) -> SectionState {
        self.states.get(self.index_of(frame))
    }

    /// Whether the descriptor of `frame`, one of the segment's, may be read.
    #[inline]
    pub(super) fn is_ready(&self, frame: Frame) -> bool {
        self.states.is_ready(self.index_of(frame))
    }

    /// How many sections are ready.
    pub(super) fn count_ready(&self) -> u64 {
        self.states.count_ready()
    }

    /// The frames described before boot goes on in mode `early`, and the rest.
    pub(super) fn early_and_deferred(&self) -> (FrameRange, FrameRange) {
        let frames = self.segment.frames;
        let cut = self.deferred_from.clamp(frames.start(), frames.end()).get();
        (
            FrameRange::new(frames.start().get(), cut).unwrap_or_default(),
            FrameRange::new(cut, frames.end().get()).unwrap_or_default(),
        )
    }

    /// Makes the section of `frame`, one of the segment's, ready. Returns what
    /// this call wrote; `None` if another one had made it ready.
    pub(super) fn make_ready(&self, frame: Frame, policy: &MemmapPolicy) -> Option<Written> {
        let index = self.index_of(frame);
        let mut written = Written::default();
        let made = self.states.make_ready(index, || {
            written = self.write(self.part(index), policy);
        });
        made.then_some(written)
    }

    /// Writes the descriptors of a part, which is this call's alone.
    fn write(&self, part: FrameRange, policy: &MemmapPolicy) -> Written {
        let template = T::template(self.place(part.start()));
        let (all, zeros) = (size_of::<T>() as u64, descriptor::zero_bytes(&template));
        // Fits: the descriptors are in memory.
        #[expect(clippy::cast_possible_truncation, reason = "they are in memory")]
        let count = part.count() as usize;
        if self.space.is_zero && !policy.always_write && zeros > 0 {
            // SAFETY: as below; and the space is zero, written by no other code before.
            unsafe { descriptor::write_on_zeros(self.at(part.start()), count, &template) };
            return Written {
                bytes: part.count() * (all - zeros),
                zero_bytes: 0,
            };
        }
        // SAFETY: the part lies in the segment, so its descriptors, this CPU's alone by
        // the claim of its state, lie in the space of `set_space`; its first is on a
        // multiple of the size if the range's first is.
        unsafe { descriptor::write(self.at(part.start()), count, &template, policy.writer) };
        Written {
            bytes: part.count() * all,
            zero_bytes: part.count() * zeros,
        }
    }

    /// Fills all descriptors with `filler` and makes their sections untouched.
    ///
    /// # Safety
    /// No reference to a descriptor is in use, and no call is in flight.
    pub(super) unsafe fn poison(&self, filler: u64, policy: &MemmapPolicy) {
        self.states.clear();
        let frames = self.segment.frames;
        #[expect(clippy::cast_possible_truncation, reason = "descriptors are in memory")]
        let words = frames.count() as usize * (size_of::<T>() / 8);
        let first = self.at(frames.start()).as_ptr().cast();
        // SAFETY: the range's own memory, which no other code reads (the caller's promise).
        unsafe { policy.writer.fill_raw(first, words, &[filler; 8]) };
    }

    /// Where the descriptor of `frame`, one of the segment's, lies.
    #[inline]
    fn at(&self, frame: Frame) -> NonNull<T> {
        #[expect(clippy::cast_possible_truncation, reason = "descriptors are in memory")]
        let index = (frame.get() - self.segment.frames.start().get()) as usize;
        debug_assert!(self.segment.frames.contains(frame));
        // SAFETY: the frame is one of the segment's, so its descriptor lies in the space.
        unsafe { self.space.first.add(index) }
    }

    /// The descriptor of `frame`.
    ///
    /// # Safety
    /// The frame is one of the segment's and [`Self::is_ready`] was seen.
    #[inline]
    pub(super) unsafe fn get(&self, frame: Frame) -> &'m T {
        // SAFETY: written, or zero where its template is, before it became ready;
        // from then on written through shared references only.
        unsafe { self.at(frame).as_ref() }
    }
}
