//! All descriptor ranges of a memory map: those of the start, ascending, and those
//! of memory that was added, newest first.
//!
//! Entries are only ever added, by one atomic step, and live as long as the memory
//! map: a reader needs no lock, and one that misses the newest finds no descriptor. What is
//! removed keeps its entry, which readers skip, and has it again when the same memory comes back.

use core::ptr;

use super::range::DescriptorRange;
use super::space::Space;
use crate::addr::{Frame, FrameRange};
use crate::layout::ZoneSegment;
use crate::sync::{AtomicBool, AtomicPtr, Ordering};

/// The range of memory that was added, and those added before.
#[derive(Debug)]
pub(super) struct Added<'m, T> {
    pub(super) range: DescriptorRange<'m, T>,
    /// Bytes of its directory and descriptors.
    pub(super) directory_bytes: u64,
    pub(super) reserved_bytes: u64,
    /// Removed. Released when it comes back.
    removed: AtomicBool,
    before: Option<&'m Added<'m, T>>,
}

impl<'m, T> Added<'m, T> {
    /// `range`, not yet in a list.
    pub(super) fn new(
        range: DescriptorRange<'m, T>,
        directory_bytes: u64,
        reserved_bytes: u64,
    ) -> Self {
        Self {
            range,
            directory_bytes,
            reserved_bytes,
            removed: AtomicBool::new(false),
            before: None,
        }
    }
}

/// The ranges.
#[derive(Debug)]
pub(super) struct Ranges<'m, T> {
    /// Those of the start, by ascending address.
    first: &'m [DescriptorRange<'m, T>],
    /// The one of them with most frames, which is looked at first.
    largest: Option<&'m DescriptorRange<'m, T>>,
    /// The newest of the others; null without any. Released by `push`.
    newest: AtomicPtr<Added<'m, T>>,
}

impl<'m, T> Ranges<'m, T> {
    /// Ranges by ascending address.
    pub(super) fn new(first: &'m [DescriptorRange<'m, T>]) -> Self {
        let frames = |range: &&DescriptorRange<'_, T>| range.segment.frames.count();
        Self {
            first,
            largest: first.iter().max_by_key(frames),
            newest: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn newest(&self) -> Option<&'m Added<'m, T>> {
        // Acquire: pairs with the Release in `push`.
        let newest = self.newest.load(Ordering::Acquire);
        // SAFETY: null, or what `push` got: borrowed for 'm and never changed since.
        unsafe { newest.as_ref() }
    }

    /// Those of memory that was added, newest first; a snapshot.
    pub(super) fn added(&self) -> impl Iterator<Item = &'m Added<'m, T>> + Clone + use<'m, T> {
        // Acquire: pairs with `bring_back`.
        self.entries()
            .filter(|added| !added.removed.load(Ordering::Acquire))
    }

    /// All that were added, with those that are gone.
    fn entries(&self) -> impl Iterator<Item = &'m Added<'m, T>> + Clone + use<'m, T> {
        core::iter::successors(self.newest(), |added| added.before)
    }

    /// Removes the entry of exactly these frames of memory that was added; whether there is one.
    pub(super) fn remove(&self, frames: FrameRange) -> bool {
        let mut added = self.added();
        let found = added.find(|added| added.range.segment.frames == frames);
        found.is_some_and(|added| !added.removed.swap(true, Ordering::Relaxed))
    }

    /// The entries of this memory that were removed.
    fn removed_of(&self, segment: ZoneSegment) -> impl Iterator<Item = &'m Added<'m, T>> {
        self.entries().filter(move |added| {
            added.range.segment == segment && added.removed.load(Ordering::Relaxed)
        })
    }

    /// Whether there are some.
    pub(super) fn has_gone(&self, segment: ZoneSegment) -> bool {
        self.removed_of(segment).next().is_some()
    }

    /// Brings the entry back that memory had which was removed, if its descriptors are to lie where
    /// they lay, in `space`.
    pub(super) fn bring_back(&self, segment: ZoneSegment, space: &Space<T>) -> bool {
        let is_it = |added: &&Added<'m, T>| added.range.is_in(space);
        let Some(added) = self.removed_of(segment).find(is_it) else {
            return false;
        };
        added.range.forget();
        // Release: pairs with `added`.
        added.removed.store(false, Ordering::Release);
        true
    }

    /// All of them; a snapshot.
    pub(super) fn iter(
        &self,
    ) -> impl Iterator<Item = &'m DescriptorRange<'m, T>> + Clone + use<'m, T> {
        let added = self.added().map(|added| &added.range);
        self.first.iter().chain(added)
    }

    /// Those with some of `frames`.
    pub(super) fn meeting(
        &self,
        frames: FrameRange,
    ) -> impl Iterator<Item = &'m DescriptorRange<'m, T>> + use<'m, T> {
        let ends_before = |range: &DescriptorRange<'_, T>| {
            let own = range.segment.frames;
            own.end() <= frames.start()
        };
        let after = self.first.partition_point(ends_before);
        let first = self.first.get(after..).unwrap_or_default().iter();
        let first = first.take_while(move |range| range.segment.frames.start() < frames.end());
        let added = self.added().map(|added| &added.range);
        let meets = move |range: &&DescriptorRange<'_, T>| {
            !range.segment.frames.intersect(frames).is_empty()
        };
        first.chain(added.filter(meets))
    }

    /// The one that has `frame`.
    pub(super) fn find(&self, frame: Frame) -> Option<&'m DescriptorRange<'m, T>> {
        self.find_first(frame).or_else(|| self.find_added(frame))
    }

    /// The one of the start that has `frame`.
    #[inline]
    pub(super) fn find_first(&self, frame: Frame) -> Option<&'m DescriptorRange<'m, T>> {
        let has = |range: &&DescriptorRange<'_, T>| range.segment.frames.contains(frame);
        if let Some(largest) = self.largest.filter(has) {
            return Some(largest);
        }
        let starts = |range: &DescriptorRange<'_, T>| range.segment.frames.start() <= frame;
        let after = self.first.partition_point(starts);
        self.first.get(after.checked_sub(1)?).filter(has)
    }

    /// The one of memory added later that has `frame`.
    fn find_added(&self, frame: Frame) -> Option<&'m DescriptorRange<'m, T>> {
        let mut added = self.added();
        added
            .find(|added| added.range.segment.frames.contains(frame))
            .map(|added| &added.range)
    }

    /// Adds a range, unless some of its frames have one already.
    pub(super) fn push(&self, added: &'m mut Added<'m, T>) -> Result<(), FrameRange> {
        let frames = added.range.segment.frames;
        loop {
            // Looked at anew after each loss: another CPU added something.
            let newest = self.newest();
            if let Some(range) = self.meeting(frames).next() {
                return Err(range.segment.frames);
            }
            added.before = newest;
            let seen = newest.map_or(ptr::null_mut(), |newest| ptr::from_ref(newest).cast_mut());
            let own = ptr::from_mut(added);
            // Release: pairs with the Acquire in `newest`.
            let pushed =
                (self.newest).compare_exchange(seen, own, Ordering::Release, Ordering::Relaxed);
            if pushed.is_ok() {
                return Ok(());
            }
        }
    }
}
