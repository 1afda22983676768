//! Descriptors of memory that comes later: [`Memmap::add`].

use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;

use super::descriptor::{Descriptor, bytes_for, divides_line};
use super::directory::{self, Counts};
use super::list::Added;
use super::range::DescriptorRange;
use super::space::{Space, map};
use super::states::States;
use super::writer::LINE_BYTES;
use super::{Memmap, MemmapError};
use crate::addr::{FrameRange, PAGE_BYTES};
use crate::carver::Carver;
use crate::layout::ZoneSegment;
use crate::platform::Platform;
use crate::sync::AtomicU64;

/// The first frames of `frames`, which hold the descriptors of all of them: where the
/// descriptors begin in them, and how many bytes they are.
fn own_frames<T>(frames: FrameRange) -> Result<(FrameRange, u64, u64), MemmapError> {
    let too_large = MemmapError::TooLarge {
        frames: frames.count(),
    };
    let bytes = bytes_for::<T>(frames.count()).ok_or(too_large)?;
    // Memory that begins inside a section begins its descriptors inside a line.
    let start = frames.start().get();
    let phase = if divides_line::<T>() {
        start % LINE_BYTES as u64 * size_of::<T>() as u64 % LINE_BYTES as u64
    } else {
        0
    };
    let needed = bytes.checked_add(phase).ok_or(too_large)?;
    let needed_frames = needed.div_ceil(PAGE_BYTES);
    let own = FrameRange::new(start, start.saturating_add(needed_frames))
        .filter(|own| frames.covers(*own) && own.count() < frames.count())
        .ok_or(MemmapError::TooSmall {
            frames,
            needed_frames,
        })?;
    Ok((own, phase, bytes))
}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Bytes of directory that [`Self::add`] needs; `None` where they exceed the
    /// address space.
    pub fn bytes_to_add(frames: FrameRange) -> Option<u64> {
        let words = directory::words_for(frames);
        Carver::bytes_for::<AtomicU64>(words)?.checked_add(Carver::bytes_for::<Added<'_, T>>(1)?)
    }

    /// Adds memory that comes later; its descriptors lie in its own first frames,
    /// which are returned and stay reserved for ever. Only the directory, some bytes
    /// a section, lies elsewhere. Other CPUs go on: to them the memory has no
    /// descriptors until this call succeeds.
    ///
    /// ```
    /// # use std::mem::MaybeUninit;
    /// # use std::ptr::NonNull;
    /// # use firstlight_frames::addr::{Frame, FrameRange, PhysRange};
    /// # use firstlight_frames::layout::ZoneSegment;
    /// # use firstlight_memmap::memmap::{Memmap, MemmapPolicy, PageDescriptor};
    /// # use firstlight_frames::node::{NodeId, ZoneKind};
    /// # use firstlight_frames::platform::Platform;
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
    /// # let frames = FrameRange::new(1 << 20, (1 << 20) + 512).unwrap();
    /// # let first = [ZoneSegment { frames, node: NodeId(0), zone: ZoneKind::Normal }];
    /// # let (directory, bytes) = Memmap::<PageDescriptor>::bytes_for(&first)?;
    /// # let mut directory = vec![MaybeUninit::uninit(); directory as usize];
    /// # let mut memory = vec![MaybeUninit::uninit(); bytes as usize];
    /// # let memmap = Memmap::<PageDescriptor>::in_memory(
    /// #     &first, &mut directory, &mut memory, MemmapPolicy::default())?;
    /// // A DIMM of 128 MiB at 64 GiB: 2 MiB of it are its descriptors.
    /// let frames = FrameRange::new(64 << 18, (64 << 18) + 32_768).unwrap();
    /// let dimm = ZoneSegment { frames, node: NodeId(1), zone: ZoneKind::Movable };
    /// let bytes = Memmap::<PageDescriptor>::bytes_to_add(frames).unwrap() as usize;
    /// let directory = vec![MaybeUninit::uninit(); bytes].leak();
    /// assert!(memmap.of(frames.start()).is_none());
    /// // SAFETY: it was just plugged in.
    /// let own = unsafe { memmap.add(dimm, directory, &platform)? };
    /// assert_eq!((own.start(), own.count()), (frames.start(), 512));
    /// assert_eq!(memmap.of(own.end()).unwrap().place().node, NodeId(1));
    /// # Ok::<(), firstlight_memmap::memmap::MemmapError>(())
    /// ```
    ///
    /// Memory that was removed and comes back, with the same frames, has its directory still:
    /// `directory` may be empty then.
    ///
    /// # Safety
    /// The frames of `segment` are used by no other code, and no other memory map or
    /// layout holds them. No other call adds or removes some of them meanwhile.
    ///
    /// # Errors
    /// [`MemmapError`]: no directory, memory too small for its own descriptors, out of
    /// the platform's reach, or with descriptors already.
    pub unsafe fn add<P: Platform>(
        &self,
        segment: ZoneSegment,
        directory: &'m mut [MaybeUninit<u8>],
        platform: &'m P,
    ) -> Result<FrameRange, MemmapError> {
        let frames = segment.frames;
        Counts::of::<T>(core::iter::once(segment), 0)?;
        let (own, phase, bytes) = own_frames::<T>(frames)?;
        if let Some(range) = self.ranges.meeting(frames).next() {
            let known = range.segment.frames;
            return Err(MemmapError::Described { frames, known });
        }
        let count = frames.count();
        let too_large = MemmapError::TooLarge { frames: count };
        let needed_bytes = Self::bytes_to_add(frames).ok_or(too_large)?;
        let len = directory.len();
        let small = MemmapError::TooLittleStorage {
            purpose: "the directory of descriptors",
            bytes: len,
            needed_bytes,
        };
        let is_small = (len as u64) < needed_bytes;
        if is_small && !self.ranges.has_gone(segment) {
            return Err(small);
        }
        let (mut carver, is_zero) = map(platform, own.addrs())?;
        let (Ok(bytes), Ok(phase)) = (usize::try_from(bytes), usize::try_from(phase)) else {
            return Err(too_large);
        };
        let first = carver
            .aligned_space(bytes, LINE_BYTES, phase)
            .ok_or(too_large)?;
        let space = Space {
            first: first.cast(),
            is_zero,
        };
        // Its descriptors lay there before: it has its directory still.
        if self.ranges.bring_back(segment, &space) {
            return Ok(own);
        }
        if is_small {
            return Err(small);
        }
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut lists = unsafe { Carver::new(NonNull::from(directory).cast(), len) };
        let words = usize::try_from(directory::words_for(frames)).map_err(|_| too_large)?;
        let words = lists.slice(words, |_| Some(AtomicU64::new(0)));
        let states = States::new(words.ok_or(small)?);
        let mut range = DescriptorRange::new(segment, states, frames.start());
        // SAFETY: the space was carved for the descriptors of this segment.
        unsafe { range.set_space(space) };
        let reserved_bytes = own.addrs().bytes() + needed_bytes;
        let mut added = Some(Added::new(range, needed_bytes, reserved_bytes));
        let added = lists.slice(1, |_| added.take()).and_then(<[_]>::first_mut);
        let pushed = self.ranges.push(added.ok_or(small)?);
        pushed.map_err(|known| MemmapError::Described { frames, known })?;
        Ok(own)
    }
    /// Removes the descriptors of memory that was added and goes, `frames` as they were added;
    /// whether it had any. All of the memory may be used for something else afterwards.
    ///
    /// # Safety
    /// No reference to a descriptor of these frames is in use, and no other call that looks for
    /// one, or that adds or removes some of them, is in flight.
    pub unsafe fn remove(&self, frames: FrameRange) -> bool {
        self.ranges.remove(frames)
    }
}
