//! What the kernel may choose about a layout: [`LayoutPolicy`].
//!
//! The defaults are x86-64's zones with no movable memory. The command line
//! ([`crate::cmdline`]) fills in the rest; `movable` and `zones` act on it.

use crate::addr::{Frame, PAGE_SHIFT};

/// log2 of the bytes in a memory section: 128 MiB, as on x86-64.
pub const SECTION_SHIFT: u32 = 27;
/// Frames in a memory section.
pub const SECTION_FRAMES: u64 = 1 << (SECTION_SHIFT - PAGE_SHIFT);
/// Movable zones start at a multiple of this many frames: 4 MiB, the largest
/// block of a classic buddy allocator.
pub const MOVABLE_ALIGN_FRAMES: u64 = 1024;

/// An amount of memory on the command line: `kernelcore=2G` or `kernelcore=50%`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreSize {
    /// So many frames.
    Frames(u64),
    /// So many hundredths of all present memory.
    Percent(u32),
}

impl CoreSize {
    /// The amount in frames on a machine with `total_frames` present.
    ///
    /// ```
    /// use firstlight::layout::CoreSize;
    /// assert_eq!(CoreSize::Percent(50).frames(4_194_174), 2_097_087);
    /// assert_eq!(CoreSize::Frames(7).frames(4_194_174), 7);
    /// ```
    pub const fn frames(self, total_frames: u64) -> u64 {
        match self {
            Self::Frames(frames) => frames,
            Self::Percent(percent) => {
                // Frame counts stay below 2^52 and a percentage below 2^32, so
                // quotient and remainder are scaled apart to stay in 64 bits.
                let percent = percent as u64;
                let whole = (total_frames / 100).saturating_mul(percent);
                whole.saturating_add(total_frames % 100 * percent / 100)
            }
        }
    }
}

/// Knobs of [`super::Layout::build`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutPolicy {
    /// First frame past the DMA zone; frame 0 for a kernel without that zone.
    pub dma_end: Frame,
    /// First frame past the DMA32 zone.
    pub dma32_end: Frame,
    /// Memory that must stay usable for the kernel, spread over all nodes (`kernelcore=`).
    pub kernelcore: Option<CoreSize>,
    /// Memory that must be movable, spread over all nodes (`movablecore=`).
    pub movablecore: Option<CoreSize>,
    /// The kernel lives in mirrored memory only (`kernelcore=mirror`).
    pub kernelcore_mirror: bool,
    /// What `kernelcore=mirror` means on a machine without mirrored memory:
    /// nothing (true; Linux from 6.6 on), or that everything from 4 GiB up is
    /// movable (false; Linux before).
    pub mirror_must_exist: bool,
    /// Hot-pluggable memory is movable (`movable_node`).
    pub movable_node: bool,
    /// Frames of a node's last zone that are described before the deferred
    /// workers run, at least; rounded up to the next section boundary.
    pub eager_frames: u64,
}

impl LayoutPolicy {
    /// x86-64's zones, nothing movable, one section of each last zone eager.
    pub const DEFAULT: Self = Self {
        dma_end: Frame::new(16 << 20 >> PAGE_SHIFT),
        dma32_end: Frame::new(4 << 30 >> PAGE_SHIFT),
        kernelcore: None,
        movablecore: None,
        kernelcore_mirror: false,
        mirror_must_exist: true,
        movable_node: false,
        eager_frames: SECTION_FRAMES,
    };
}

impl Default for LayoutPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}
