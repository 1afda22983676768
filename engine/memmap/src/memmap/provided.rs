//! Descriptors in memory the caller provides: [`Memmap::in_memory`].

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::descriptor::{Descriptor, bytes_for};
use super::directory::Counts;
use super::list::Ranges;
use super::space::Space;
use super::{Memmap, MemmapError, MemmapPolicy, Tally};
use crate::addr::FrameRange;
use crate::carver::Carver;
use crate::layout::ZoneSegment;

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Bytes [`Self::in_memory`] needs for its directory and for descriptors;
    /// `None` where they exceed the address space.
    ///
    /// # Errors
    /// [`MemmapError`]: no segments, or segments that do not ascend.
    pub fn bytes_for(segments: &[ZoneSegment]) -> Result<(u64, u64), MemmapError> {
        let counts = Counts::of::<T>(segments.iter().copied(), 0)?;
        let frames = segments.iter().map(|segment| segment.frames);
        let all = frames.clone().map(FrameRange::count).sum();
        let bytes = frames
            .map(Space::<T>::bytes_for)
            .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?));
        let bytes = bytes.ok_or(MemmapError::TooLarge { frames: all })?;
        Ok((counts.bytes, bytes))
    }

    /// Descriptors of `segments` in memory the caller provides, which may hold anything.
    ///
    /// All of them count as deferred.
    ///
    /// # Errors
    /// [`MemmapError`], as for [`Self::bytes_for`], or [`MemmapError::TooLittleStorage`].
    pub fn in_memory(
        segments: &[ZoneSegment],
        directory: &'m mut [MaybeUninit<u8>],
        memory: &'m mut [MaybeUninit<u8>],
        policy: MemmapPolicy,
    ) -> Result<Self, MemmapError> {
        let counts = Counts::of::<T>(segments.iter().copied(), 0)?;
        let (directory_bytes, needed_bytes) = Self::bytes_for(segments)?;
        let too_little = |purpose, bytes, needed_bytes| MemmapError::TooLittleStorage {
            purpose,
            bytes,
            needed_bytes,
        };
        let purpose = "the directory of descriptors";
        let no_directory = too_little(purpose, directory.len(), directory_bytes);
        let no_memory = too_little("descriptors", memory.len(), needed_bytes);
        let (directory_len, memory_len) = (directory.len(), memory.len());
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut lists = unsafe { Carver::new(NonNull::from(directory).cast(), directory_len) };
        // SAFETY: likewise.
        let mut carver = unsafe { Carver::new(NonNull::from(memory).cast(), memory_len) };
        let mut deferred = segments
            .iter()
            .map(|segment| (*segment, segment.frames.start()));
        let ranges = counts.write::<T>(&mut lists, &mut deferred);
        let ranges = ranges.ok_or(no_directory)?;
        let mut reserved_bytes = 0;
        for range in ranges.iter_mut() {
            let frames = range.segment.frames;
            let space = Space::carve(&mut carver, frames, false).ok_or(no_memory)?;
            reserved_bytes += bytes_for::<T>(frames.count()).unwrap_or_default();
            // SAFETY: the space was carved for the descriptors of this segment.
            unsafe { range.set_space(space) };
        }
        Ok(Self {
            ranges: Ranges::new(ranges),
            policy,
            tally: Tally::default(),
            reserved_bytes,
            directory_bytes,
        })
    }
}
