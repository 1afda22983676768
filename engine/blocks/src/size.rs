//! How large blocks are, and which frames each has: [`BlockSize`], [`BlockId`].

use core::fmt;

use crate::addr::{Frame, FrameRange, PAGE_SHIFT, PHYS_END};
use crate::layout::SECTION_SHIFT;

/// The number of a block: its first frame over the frames of a block. Linux's `phys_index`, there in
/// hexadecimal, and the number in the name of its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct BlockId(pub u64);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// The size of all memory blocks: a power of two, at least a section.
///
/// ```
/// use firstlight_frames::addr::Frame;
/// use firstlight_blocks::{BlockId, BlockSize};
/// let size = BlockSize::new(1 << 30)?;
/// assert_eq!(size.block_of(Frame::new((5 << 18) + 7)), BlockId(5));
/// assert_eq!(size.frames_of(BlockId(5)).map(|frames| frames.count()), Some(1 << 18));
/// assert!(BlockSize::new(64 << 20).is_err());
/// # Ok::<(), firstlight_blocks::BlockSizeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSize {
    /// log2 of its frames.
    shift: u32,
}

/// No size of memory blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizeError {
    /// What was given.
    pub bytes: u64,
}

impl fmt::Display for BlockSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory blocks of {} bytes: expected a power of two from {} MiB, one section, to {} TiB",
            self.bytes,
            BlockSize::SMALLEST.bytes() >> 20,
            PHYS_END >> 41,
        )
    }
}

impl core::error::Error for BlockSizeError {}

impl BlockSize {
    /// One section: 128 MiB.
    pub const SMALLEST: Self = Self {
        shift: SECTION_SHIFT - PAGE_SHIFT,
    };
    /// The largest that is chosen without being given: 2 GiB.
    pub const LARGEST_CHOSEN: Self = Self {
        shift: 31 - PAGE_SHIFT,
    };

    /// Blocks of `bytes`.
    ///
    /// # Errors
    /// [`BlockSizeError`]: no power of two, less than a section, or more than half of all addresses.
    pub const fn new(bytes: u64) -> Result<Self, BlockSizeError> {
        if !bytes.is_power_of_two() || bytes < Self::SMALLEST.bytes() || bytes > PHYS_END / 2 {
            return Err(BlockSizeError { bytes });
        }
        Ok(Self {
            shift: bytes.trailing_zeros() - PAGE_SHIFT,
        })
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> u64 {
        1 << (self.shift + PAGE_SHIFT)
    }

    /// Frames of a block.
    pub const fn frames(self) -> u64 {
        1 << self.shift
    }

    /// The block `frame` lies in.
    pub const fn block_of(self, frame: Frame) -> BlockId {
        BlockId(frame.get() >> self.shift)
    }

    /// The frames of block `id`, memory or not; `None` past the last address.
    pub const fn frames_of(self, id: BlockId) -> Option<FrameRange> {
        let last = FrameRange::ALL.end().get() >> self.shift;
        if id.0 >= last {
            return None;
        }
        FrameRange::new(id.0 << self.shift, (id.0 + 1) << self.shift)
    }

    /// Half of it, down to a section.
    pub(super) const fn half(self) -> Option<Self> {
        if self.shift > Self::SMALLEST.shift {
            Some(Self {
                shift: self.shift - 1,
            })
        } else {
            None
        }
    }
}

/// In the largest unit that leaves no rest: `128 MiB`.
impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bytes(self.bytes()))
    }
}

/// Bytes in the largest unit that leaves no rest.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let whole = |(shift, _): &(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match units.into_iter().find(whole) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}
