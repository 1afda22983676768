//! What the kernel may choose about a layout: [`LayoutPolicy`].
//!
//! Zones are those of Linux on [x86-64](LayoutPolicy::X86_64), [arm64](LayoutPolicy::arm64) or
//! [riscv64](LayoutPolicy::riscv64), with no movable memory. The command line
//! (`cmdline`) fills in the rest; `movable` and `zones` act on it.

use super::section::{SECTION_FRAMES, SectionSize};
use crate::addr::{Frame, PAGE_SHIFT, PHYS_END};

/// What Movable zones start at a multiple of, the largest block of a classic buddy allocator: 4 MiB
/// with pages of 4 KiB, 32 MiB with 16, 512 MiB with 64.
pub const MOVABLE_ALIGN_FRAMES: u64 = match PAGE_SHIFT {
    12 => 1 << 10,
    14 => 1 << 11,
    _ => 1 << 13,
};

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
    /// use firstlight_memory::layout::CoreSize;
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
    /// Movable zones start at a multiple of this many frames: the largest block of a buddy allocator.
    pub movable_align_frames: u64,
    /// How large a section is: holes that share one with memory count as
    /// [unavailable](super::Layout::unavailable), deferral starts at the border of one.
    pub section: SectionSize,
}

/// First frame past what 32 bits address.
const FRAMES_4G: Frame = Frame::new(4 << 30 >> PAGE_SHIFT);

impl LayoutPolicy {
    /// x86-64's zones, nothing movable, one section of each last zone eager.
    pub const DEFAULT: Self = Self::X86_64;

    /// x86-64's zones: DMA below 16 MiB, DMA32 below 4 GiB. Nothing movable, one section of each
    /// last zone eager.
    pub const X86_64: Self = Self::with_zones(Frame::new(16 << 20 >> PAGE_SHIFT), FRAMES_4G);

    /// arm64's zones, on a machine whose memory begins at `first_byte` and whose devices all
    /// reach `dma_bits` bits of addresses: 32, unless a `dma-ranges` of the device tree or ACPI's
    /// IORT says that a device reaches less.
    ///
    /// DMA is what all devices reach, DMA32 the rest below 4 GiB. Where memory begins above
    /// what they reach, DMA goes to 4 GiB; where it begins above that, all of it is DMA.
    ///
    /// ```
    /// use firstlight_memory::addr::Frame;
    /// use firstlight_memory::layout::LayoutPolicy;
    /// let ends = |first_byte, dma_bits| {
    ///     let policy = LayoutPolicy::arm64(first_byte, dma_bits);
    ///     (policy.dma_end.addr().get(), policy.dma32_end.addr().get())
    /// };
    /// assert_eq!(ends(0x4000_0000, 32), (4 << 30, 4 << 30)); // DMA32 is empty
    /// assert_eq!(ends(0, 30), (1 << 30, 4 << 30));
    /// assert_eq!(ends(0x4000_0000, 30), (4 << 30, 4 << 30));
    /// ```
    pub const fn arm64(first_byte: u64, dma_bits: u32) -> Self {
        let narrowest = if dma_bits < 32 { dma_bits } else { 32 };
        Self::with_zones(
            first_unreached(first_byte, narrowest),
            first_unreached(first_byte, 32),
        )
    }

    /// riscv64's zones: no DMA, DMA32 below 4 GiB.
    ///
    /// ```
    /// use firstlight_memory::layout::LayoutPolicy;
    /// assert_eq!(LayoutPolicy::riscv64().dma_end.get(), 0);
    /// ```
    pub const fn riscv64() -> Self {
        Self::with_zones(Frame::new(0), FRAMES_4G)
    }

    const fn with_zones(dma_end: Frame, dma32_end: Frame) -> Self {
        Self {
            dma_end,
            dma32_end,
            kernelcore: None,
            movablecore: None,
            kernelcore_mirror: false,
            mirror_must_exist: true,
            movable_node: false,
            eager_frames: SECTION_FRAMES,
            movable_align_frames: MOVABLE_ALIGN_FRAMES,
            section: SectionSize::SMALLEST,
        }
    }
}

/// First frame that `bits`, at most 32, do not address, where memory begins at `first_byte`.
const fn first_unreached(first_byte: u64, bits: u32) -> Frame {
    if first_byte >> 32 != 0 {
        Frame::new(PHYS_END >> PAGE_SHIFT)
    } else if first_byte >> bits != 0 {
        FRAMES_4G
    } else {
        Frame::new((1 << bits) >> PAGE_SHIFT)
    }
}

impl Default for LayoutPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}
