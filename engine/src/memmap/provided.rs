//! Descriptors outside early memory: in memory the caller provides, or in the very
//! memory they describe.

use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;

use super::descriptor::{Descriptor, bytes_for, divides_line};
use super::directory::Counts;
use super::space::{Space, map};
use super::writer::LINE_BYTES;
use super::{Memmap, MemmapError, MemmapPolicy, Tally};
use crate::addr::{FrameRange, PAGE_BYTES};
use crate::frames::table::Carver;
use crate::layout::ZoneSegment;
use crate::platform::Platform;

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Bytes [`Self::in_memory`] needs for its directory and for descriptors;
    /// `None` where they exceed the address space.
    ///
    /// # Errors
    /// [`MemmapError`]: no segments, segments that do not ascend, a type without
    /// a first content.
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
        let bytes = memory.len();
        let (_, needed_bytes) = Self::bytes_for(segments)?;
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut carver = unsafe { Carver::new(NonNull::from(memory).cast(), bytes) };
        let mut spaces = segments.iter().map(|segment| {
            Space::carve(&mut carver, segment.frames, false).ok_or(MemmapError::TooLittleStorage {
                purpose: "descriptors",
                bytes,
                needed_bytes,
            })
        });
        Self::with_spaces(segments, directory, policy, &mut spaces)
    }

    /// Descriptors of memory that was added, in its own first frames. Also returns
    /// the frames they take, which stay reserved for ever. Only the
    /// directory, some bytes a section, lies elsewhere.
    ///
    /// ```
    /// # use std::mem::MaybeUninit;
    /// # use std::ptr::NonNull;
    /// # use firstlight::addr::{Frame, FrameRange, PhysRange};
    /// # use firstlight::layout::ZoneSegment;
    /// # use firstlight::memmap::{Memmap, MemmapPolicy, PageDescriptor};
    /// # use firstlight::node::{NodeId, ZoneKind};
    /// # use firstlight::platform::Platform;
    /// # struct Dimm;
    /// # // SAFETY: memory of its own for every range, never freed.
    /// # unsafe impl Platform for Dimm {
    /// #     fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
    /// #         let memory = vec![0u64; range.bytes() as usize / 8 + 512].leak();
    /// #         let bytes = NonNull::from(memory).cast::<u8>();
    /// #         Some(unsafe { bytes.add(bytes.align_offset(4096)) })
    /// #     }
    /// # }
    /// # let platform = Dimm;
    /// // A DIMM of 128 MiB at 64 GiB: 2 MiB of it are its descriptors.
    /// let frames = FrameRange::new(64 << 18, (64 << 18) + 32_768).unwrap();
    /// let segment = ZoneSegment { frames, node: NodeId(1), zone: ZoneKind::Movable };
    /// let mut directory = [MaybeUninit::uninit(); 256];
    /// // SAFETY: the DIMM was just plugged in.
    /// let (memmap, own) = unsafe {
    ///     Memmap::<PageDescriptor>::self_hosted(
    ///         segment, &mut directory, &platform, MemmapPolicy::default())?
    /// };
    /// assert_eq!((own.start(), own.count()), (frames.start(), 512));
    /// assert_eq!(memmap.of(own.end()).unwrap().place().node, NodeId(1));
    /// # Ok::<(), firstlight::memmap::MemmapError>(())
    /// ```
    ///
    /// # Safety
    /// The frames of `segment` are used by no other code, and no other memory map or
    /// layout holds them.
    ///
    /// # Errors
    /// [`MemmapError`]: no directory, memory too small for its own
    /// descriptors, or out of the platform's reach.
    pub unsafe fn self_hosted<P: Platform>(
        segment: ZoneSegment,
        directory: &'m mut [MaybeUninit<u8>],
        platform: &'m P,
        policy: MemmapPolicy,
    ) -> Result<(Self, FrameRange), MemmapError> {
        let frames = segment.frames;
        let too_large = MemmapError::TooLarge {
            frames: frames.count(),
        };
        let bytes = bytes_for::<T>(frames.count()).ok_or(too_large)?;
        // Memory that begins inside a section begins its descriptors inside a line.
        let start = frames.start().get();
        let phase = start % LINE_BYTES as u64 * size_of::<T>() as u64 % LINE_BYTES as u64;
        let needed_frames = bytes
            .checked_add(phase)
            .ok_or(too_large)?
            .div_ceil(PAGE_BYTES);
        let own = FrameRange::new(start, start.saturating_add(needed_frames))
            .filter(|own| frames.covers(*own) && own.count() < frames.count())
            .ok_or(MemmapError::TooSmall {
                frames,
                needed_frames,
            })?;
        Counts::of::<T>(core::iter::once(segment), 0)?;
        let (mut carver, is_zero) = map(platform, own.bytes())?;
        let phase = if divides_line::<T>() { phase } else { 0 };
        let (bytes, phase) = (usize::try_from(bytes), usize::try_from(phase));
        let (Ok(bytes), Ok(phase)) = (bytes, phase) else {
            return Err(too_large);
        };
        let mut spaces = core::iter::once_with(|| {
            let first = carver.room(bytes, LINE_BYTES, phase).ok_or(too_large)?;
            Ok(Space {
                first: first.cast(),
                is_zero,
            })
        });
        let memmap = Self::with_spaces(&[segment], directory, policy, &mut spaces)?;
        Ok((memmap, own))
    }

    /// Ranges over `segments`, each with the next of `spaces`, which were carved for them.
    fn with_spaces(
        segments: &[ZoneSegment],
        directory: &'m mut [MaybeUninit<u8>],
        policy: MemmapPolicy,
        spaces: &mut dyn Iterator<Item = Result<Space<T>, MemmapError>>,
    ) -> Result<Self, MemmapError> {
        let counts = Counts::of::<T>(segments.iter().copied(), 0)?;
        let bytes = directory.len();
        let small = MemmapError::TooLittleStorage {
            purpose: "the directory of descriptors",
            bytes,
            needed_bytes: counts.bytes,
        };
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut carver = unsafe { Carver::new(NonNull::from(directory).cast(), bytes) };
        let mut deferred = segments
            .iter()
            .map(|segment| (*segment, segment.frames.start()));
        let ranges = counts.write::<T>(&mut carver, &mut deferred).ok_or(small)?;
        let mut reserved_bytes = 0;
        for range in ranges.iter_mut() {
            let space = spaces.next().ok_or(small)??;
            reserved_bytes += bytes_for::<T>(range.segment.frames.count()).unwrap_or_default();
            // SAFETY: the space was carved for the descriptors of this segment.
            unsafe { range.set_space(space) };
        }
        Ok(Self {
            ranges,
            policy,
            tally: Tally::default(),
            reserved_bytes,
            directory_bytes: counts.bytes,
        })
    }
}
