//! The descriptors of one extent: [`Bank`].
//!
//! An extent is frames in a row, of one node and one zone, so all descriptors
//! of one of its sections are alike, a frame's descriptor is found by
//! arithmetic, and holes have none. Where an extent begins or ends inside a
//! section, the bank has a part of that section, with a state of its own.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::descriptor::{self, Descriptor, SectionPlace};
use super::states::{SectionState, States};
use super::{MemmapError, MemmapPolicy};
use crate::addr::{Frame, FrameRange};
use crate::layout::{SECTION_FRAMES, ZoneSegment};

/// The memory that holds a bank's descriptors.
#[derive(Debug)]
pub(super) struct Room<T> {
    /// The descriptor of the extent's first frame; nothing there is initialised.
    pub(super) first: NonNull<T>,
    /// All its bytes are zero.
    pub(super) is_zero: bool,
}

impl<T> Room<T> {
    /// No room yet.
    pub(super) const NONE: Self = Self {
        first: NonNull::dangling(),
        is_zero: false,
    };
}

/// An extent and its descriptors.
#[derive(Debug)]
pub(super) struct Bank<'m, T> {
    pub(super) extent: ZoneSegment,
    room: Room<T>,
    states: States<'m>,
    /// First frame that is left to the deferred workers in mode `early`.
    deferred_from: Frame,
    memory: PhantomData<&'m [T]>,
}

// SAFETY: a bank is a shared slice of `T` as far as threads are concerned; its
// parts are written through the states' claims, one thread each.
unsafe impl<T: Send + Sync> Sync for Bank<'_, T> {}
// SAFETY: as above; it owns nothing that is tied to a thread.
unsafe impl<T: Send + Sync> Send for Bank<'_, T> {}

/// Sections that hold some of `frames`.
pub(super) fn sections_of(frames: FrameRange) -> u64 {
    frames.end().get().div_ceil(SECTION_FRAMES) - frames.start().get() / SECTION_FRAMES
}

/// The place of a frame of `extent`.
pub(super) fn place_of(extent: &ZoneSegment, frame: Frame) -> SectionPlace {
    SectionPlace {
        node: extent.node,
        zone: extent.zone,
        section: frame.get() / SECTION_FRAMES,
    }
}

impl<'m, T: Descriptor> Bank<'m, T> {
    /// A bank whose descriptors are not written.
    pub(super) fn new(extent: ZoneSegment, states: States<'m>, deferred_from: Frame) -> Self {
        Self {
            extent,
            room: Room::NONE,
            states,
            deferred_from,
            memory: PhantomData,
        }
    }

    /// Gives the bank its memory.
    ///
    /// # Safety
    /// For all of `'m` there is memory for the descriptors of all frames of the
    /// extent from `room.first` on, aligned for `T` and as [`descriptor::write`]
    /// wants it, which nobody else uses; its bytes are zero if `room` says so.
    pub(super) unsafe fn settle(&mut self, room: Room<T>) {
        self.room = room;
    }

    /// Which of the bank's sections `frame`, one of the extent's, lies in.
    #[inline]
    fn index_of(&self, frame: Frame) -> usize {
        let section = frame.get() / SECTION_FRAMES;
        let first = self.extent.frames.start().get() / SECTION_FRAMES;
        // Fits: their descriptors are in memory.
        #[expect(clippy::cast_possible_truncation, reason = "below the bank's sections")]
        let index = (section - first) as usize;
        index
    }

    /// The bank's frames in its section `index`.
    fn part(&self, index: usize) -> FrameRange {
        let first = self.extent.frames.start().get() / SECTION_FRAMES;
        let start = (first + index as u64) * SECTION_FRAMES;
        FrameRange::new(start, start + SECTION_FRAMES)
            .unwrap_or_default()
            .intersect(self.extent.frames)
    }

    /// The place of a frame of the extent.
    pub(super) fn place(&self, frame: Frame) -> SectionPlace {
        place_of(&self.extent, frame)
    }

    /// The state of the section `frame`, one of the extent's, lies in.
    pub(super) fn state(&self, frame: Frame) -> SectionState {
        self.states.get(self.index_of(frame))
    }

    /// Whether the descriptor of `frame`, one of the extent's, may be read.
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
        let frames = self.extent.frames;
        let cut = self.deferred_from.clamp(frames.start(), frames.end()).get();
        (
            FrameRange::new(frames.start().get(), cut).unwrap_or_default(),
            FrameRange::new(cut, frames.end().get()).unwrap_or_default(),
        )
    }

    /// Makes the section of `frame`, one of the extent's, ready. Returns the
    /// bytes this call wrote; `None` if another one had made it ready.
    pub(super) fn make_ready(&self, frame: Frame, policy: &MemmapPolicy) -> Option<u64> {
        let index = self.index_of(frame);
        let mut written_bytes = 0;
        let made = self.states.make_ready(index, || {
            written_bytes = self.write(self.part(index), policy);
        });
        made.then_some(written_bytes)
    }

    /// Writes the descriptors of a part, which is this call's alone.
    fn write(&self, part: FrameRange, policy: &MemmapPolicy) -> u64 {
        let content = match descriptor::first_content::<T>(self.place(part.start())) {
            Ok(content) => content,
            Err(error) => broken_rule(&error),
        };
        if content.is_none() && self.room.is_zero && !policy.always_write {
            return 0;
        }
        // Fits: the descriptors are in memory.
        #[expect(clippy::cast_possible_truncation, reason = "they are in memory")]
        let count = part.count() as usize;
        // SAFETY: the part lies in the extent, and its descriptors, which its
        // state's claim makes this CPU's alone, in the room `settle` was
        // promised; its first is as much on a multiple of the size as the
        // bank's first is.
        unsafe { descriptor::write(self.at(part.start()), count, content, policy.writer) };
        part.count() * size_of::<T>() as u64
    }

    /// Fills all descriptors with `filler`, and forgets that they were written.
    ///
    /// # Safety
    /// No reference to a descriptor is in use, and no call is in flight.
    pub(super) unsafe fn spoil(&self, filler: u64, policy: &MemmapPolicy) {
        self.states.clear();
        let frames = self.extent.frames;
        #[expect(clippy::cast_possible_truncation, reason = "descriptors are in memory")]
        let words = frames.count() as usize * (size_of::<T>() / 8);
        let first = self.at(frames.start()).as_ptr().cast();
        // SAFETY: the bank's own memory, which nobody looks at (the caller's promise).
        unsafe { policy.writer.fill_raw(first, words, &[filler; 8]) };
    }

    /// Where the descriptor of `frame`, one of the extent's, lies.
    #[inline]
    fn at(&self, frame: Frame) -> NonNull<T> {
        #[expect(clippy::cast_possible_truncation, reason = "descriptors are in memory")]
        let index = (frame.get() - self.extent.frames.start().get()) as usize;
        debug_assert!(self.extent.frames.contains(frame));
        // SAFETY: the frame is one of the extent's, so its descriptor lies in the room.
        unsafe { self.room.first.add(index) }
    }

    /// The descriptor of `frame`.
    ///
    /// # Safety
    /// The frame is one of the extent's and [`Self::is_ready`] was seen.
    #[inline]
    pub(super) unsafe fn get(&self, frame: Frame) -> &'m T {
        // SAFETY: written, or zero where zero is valid, before it was said to
        // be ready; nobody writes it again but through the reference.
        unsafe { self.at(frame).as_ref() }
    }
}

#[cold]
fn broken_rule(error: &MemmapError) -> ! {
    panic!("{error}")
}
