//! Descriptors in an array at a fixed address: [`Memmap::linear`].
//!
//! Some kernels keep an array of all descriptors in address space of its own, so that a frame
//! number is an index (Linux calls it vmemmap). All of it may be mapped at the start: a section
//! of it is written at the first touch, like everywhere else.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::descriptor::{Descriptor, bytes_for, divides_line};
use super::directory::{self, Counts};
use super::list::Ranges;
use super::space::Space;
use super::{Memmap, MemmapError, MemmapPolicy, Tally};
use crate::addr::FrameRange;
use crate::carver::Carver;
use crate::layout::ZoneSegment;
use crate::node::{NodeId, ZoneKind};

/// The descriptor of the first of `frames` in the array at `base`.
fn first_of<T>(base: *mut T, frames: FrameRange) -> Result<NonNull<T>, MemmapError> {
    let too_large = MemmapError::TooLarge {
        frames: frames.count(),
    };
    let bytes = bytes_for::<T>(frames.count()).and_then(|bytes| isize::try_from(bytes).ok());
    let bytes = bytes.ok_or(too_large)?.unsigned_abs();
    let start = usize::try_from(frames.start().get()).map_err(|_| too_large)?;
    // Where descriptors fill lines evenly, each begins on a multiple of its size.
    let align = if divides_line::<T>() {
        size_of::<T>()
    } else {
        align_of::<T>()
    };
    let first = base.wrapping_add(start);
    match NonNull::new(first) {
        Some(first) if first.addr().get().is_multiple_of(align) => {
            let end = first.addr().get().checked_add(bytes);
            end.map(|_| first).ok_or(too_large)
        }
        _ => Err(MemmapError::Misplaced {
            address: first.addr() as u64,
            align: align as u64,
        }),
    }
}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Bytes of directory that [`Self::linear`] needs for `frames`: 2 bits a section of
    /// 128 MiB, and some 100. `usize::MAX` where they exceed the address space.
    pub const fn directory_bytes(frames: FrameRange) -> usize {
        let words = directory::words_for(frames);
        #[expect(clippy::cast_possible_truncation, reason = "compared before")]
        match directory::bytes_for::<T>(1, words, 0) {
            Some(bytes) if bytes <= usize::MAX as u64 => bytes as usize,
            _ => usize::MAX,
        }
    }

    /// Descriptors in an array at a fixed address: that of frame `f` is `base.add(f)`, for all of
    /// `frames`, holes among them. Nothing of the array is written before a section is touched.
    ///
    /// `base` is where the descriptor of frame 0 is, or would be if `frames` begins later. All
    /// frames count as memory of node 0 and zone Normal, and as deferred.
    ///
    /// A kernel that indexes the array itself has [`Self::prepare`] called for every block that
    /// is allocated; for other frames it calls [`Self::of`], or [`Self::is_ready`] first.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    /// use firstlight_frames::addr::{Frame, FrameRange};
    /// use firstlight_memmap::memmap::{Memmap, MemmapPolicy, PageDescriptor};
    ///
    /// const FRAMES: FrameRange = FrameRange::new(0, 10_000).unwrap();
    /// const BYTES: usize = Memmap::<PageDescriptor>::directory_bytes(FRAMES);
    /// let mut memory = Vec::<PageDescriptor>::with_capacity(10_000);
    /// let array = memory.as_mut_ptr();
    /// let mut directory = [MaybeUninit::uninit(); BYTES];
    /// let policy = MemmapPolicy::default();
    /// // SAFETY: the array has space for them all, and no other code uses it.
    /// let memmap = unsafe { Memmap::linear(array, FRAMES, &mut directory, policy)? };
    /// let frame = Frame::new(4711);
    /// assert!(!memmap.is_ready(frame));
    /// memmap.prepare(&[frame], firstlight_frames::addr::Order::PAGE);
    /// assert!(memmap.is_ready(frame));
    /// assert!(std::ptr::eq(memmap.of(frame).unwrap(), array.wrapping_add(4711)));
    /// # Ok::<(), firstlight_memmap::memmap::MemmapError>(())
    /// ```
    ///
    /// # Safety
    /// For all of `'m`, the descriptors of `frames` at `base` are memory that can be read and
    /// written through `base` from every CPU, and that no other code uses before it is ready or
    /// writes but through shared references to ready descriptors. Its content does not matter.
    ///
    /// # Errors
    /// [`MemmapError`]: no frames or more than there are, an array that is not aligned or does not
    /// fit into the address space, a directory that is too small.
    pub unsafe fn linear(
        base: *mut T,
        frames: FrameRange,
        directory: &'m mut [MaybeUninit<u8>],
        policy: MemmapPolicy,
    ) -> Result<Self, MemmapError> {
        let segment = ZoneSegment {
            frames,
            node: NodeId(0),
            zone: ZoneKind::Normal,
        };
        let counts = Counts::of::<T>(core::iter::once(segment), 0)?;
        let first = first_of(base, frames)?;
        let too_little = MemmapError::TooLittleStorage {
            purpose: "the directory of descriptors",
            bytes: directory.len(),
            needed_bytes: counts.bytes,
        };
        let len = directory.len();
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut lists = unsafe { Carver::new(NonNull::from(directory).cast(), len) };
        let mut deferred = core::iter::once((segment, frames.start()));
        let ranges = counts.write::<T>(&mut lists, &mut deferred);
        let ranges = ranges.ok_or(too_little)?;
        for range in ranges.iter_mut() {
            let is_zero = false;
            // SAFETY: the caller's promise; the place was checked.
            unsafe { range.set_space(Space { first, is_zero }) };
        }
        Ok(Self {
            ranges: Ranges::new(ranges),
            policy,
            tally: Tally::default(),
            reserved_bytes: bytes_for::<T>(frames.count()).unwrap_or_default(),
            directory_bytes: counts.bytes,
        })
    }
}
