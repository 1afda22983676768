//! How large a section is, 128 MiB as a rule: the unit in which kernels describe memory.

use crate::addr::{PAGE_SHIFT, PHYS_END};

/// log2 of the bytes in the smallest memory section: 128 MiB, as on x86-64, riscv64, and arm64 with
/// pages of 4 KiB. Descriptors become ready by so many bytes, however large sections are.
pub const SECTION_SHIFT: u32 = 27;
/// Frames in the smallest memory section.
pub const SECTION_FRAMES: u64 = 1 << (SECTION_SHIFT - PAGE_SHIFT);

/// How large a section is: a power of two from 128 MiB on.
///
/// ```
/// use firstlight_memory::layout::SectionSize;
/// assert_eq!(SectionSize::new(1 << 30).unwrap().frames(), 1 << 18);
/// assert_eq!(SectionSize::new(64 << 20), None);
/// assert_eq!(SectionSize::new(3 << 27), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SectionSize {
    shift: u32,
}

impl SectionSize {
    /// 128 MiB.
    pub const SMALLEST: Self = Self {
        shift: SECTION_SHIFT - PAGE_SHIFT,
    };

    /// Sections of `bytes`; `None` if that is no power of two, less than 128 MiB or more than
    /// there are addresses.
    pub const fn new(bytes: u64) -> Option<Self> {
        if !bytes.is_power_of_two() || bytes >> SECTION_SHIFT == 0 || bytes > PHYS_END {
            return None;
        }
        Some(Self {
            shift: bytes.trailing_zeros() - PAGE_SHIFT,
        })
    }

    /// Frames of a section.
    pub const fn frames(self) -> u64 {
        1 << self.shift
    }
}
