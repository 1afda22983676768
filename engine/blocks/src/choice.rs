//! How large memory blocks are, and why: [`SizePolicy`].
//!
//! *Large blocks are cheap to list, small blocks leave one by one.* Below 64 GiB the number of
//! blocks costs nothing, so they are as small as can be. Above, bare metal has blocks of 2 GiB; a
//! virtual machine, whose memory may come and go in any size, the largest that divides the end of its memory.
//! Firmware's advice and announced DIMMs lower that.

use core::fmt;

use super::size::{BlockSize, Bytes};
use crate::addr::{PHYS_END, PhysRange};
use crate::layout::Layout;

/// Memory that ends below has the smallest blocks.
const LARGE_MEMORY: u64 = 64 << 30;

/// What the size of memory blocks depends on.
///
/// ```
/// use firstlight_blocks::SizePolicy;
/// let machine = SizePolicy { end_bytes: 65 << 30, is_virtual: true, ..SizePolicy::default() };
/// let choice = machine.choose();
/// assert_eq!(choice.size.bytes(), 1 << 30);
/// assert_eq!(choice.to_string(), "1 GiB, the largest up to 2 GiB that divides the end of memory, 65 GiB, in a virtual machine");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizePolicy {
    /// First byte past the memory there is at boot.
    pub end_bytes: u64,
    /// The processor says that there is a hypervisor.
    pub is_virtual: bool,
    /// A size that was requested; it wins.
    pub explicit: Option<BlockSize>,
    /// Firmware's advice: the alignment that its windows for memory have in common
    /// (`Cedt::advised_bytes` of `firstlight-boot`).
    pub advised_bytes: Option<u64>,
    /// The smallest DIMM, or range for DIMMs, that is announced. A block is never larger, whatever
    /// else says so: it could not leave alone.
    pub dimm_bytes: Option<u64>,
}

/// Why blocks are as large as they are, before a [`Cap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeReason {
    /// The size was given.
    Explicit,
    /// Memory ends below 64 GiB.
    SmallMemory,
    /// There is no hypervisor.
    BareMetal,
    /// It divides the end of memory.
    Divides,
    /// No larger one divides the end of memory.
    NoLarger,
}

/// What lowered the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cap {
    /// Firmware advises at most so many bytes.
    Advice(u64),
    /// An announced DIMM has so many bytes.
    Dimm(u64),
}

/// A size with its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeChoice {
    /// The size.
    pub size: BlockSize,
    /// The rule that led there.
    pub reason: SizeReason,
    /// What lowered it, or where the search for it started.
    pub cap: Option<Cap>,
    /// Where memory ends.
    pub end_bytes: u64,
}

impl SizePolicy {
    /// For the memory of `layout`, whose hot-pluggable ranges announce DIMMs.
    pub fn of(layout: &Layout<'_>, is_virtual: bool) -> Self {
        let rows = layout.topology().ranges().iter();
        let announced = rows.filter(|row| row.hotplug).map(|row| row.range);
        Self {
            end_bytes: layout.end().addr().get(),
            is_virtual,
            dimm_bytes: common_alignment(announced),
            ..Self::default()
        }
    }

    /// The size, and why.
    pub fn choose(&self) -> SizeChoice {
        let (mut size, reason, mut cap) = self.uncapped();
        if let Some(dimm) = self.dimm_bytes.filter(|dimm| *dimm < size.bytes()) {
            size = at_most(size, dimm);
            cap = Some(Cap::Dimm(dimm));
        }
        SizeChoice {
            size,
            reason,
            cap,
            end_bytes: self.end_bytes,
        }
    }

    fn uncapped(&self) -> (BlockSize, SizeReason, Option<Cap>) {
        if let Some(size) = self.explicit {
            return (size, SizeReason::Explicit, None);
        }
        if self.end_bytes < LARGE_MEMORY {
            return (BlockSize::SMALLEST, SizeReason::SmallMemory, None);
        }
        let largest = BlockSize::LARGEST_CHOSEN;
        let advice = self
            .advised_bytes
            .filter(|advice| *advice < largest.bytes());
        let cap = advice.map(Cap::Advice);
        let most = advice.map_or(largest, |advice| at_most(largest, advice));
        if !self.is_virtual {
            return (most, SizeReason::BareMetal, cap);
        }
        let mut size = most;
        while !self.end_bytes.is_multiple_of(size.bytes()) {
            match size.half() {
                Some(half) => size = half,
                None => return (size, SizeReason::NoLarger, cap),
            }
        }
        (size, SizeReason::Divides, cap)
    }
}

/// `size`, or the largest below that `bytes` allow; a section at least.
fn at_most(mut size: BlockSize, bytes: u64) -> BlockSize {
    while size.bytes() > bytes {
        match size.half() {
            Some(half) => size = half,
            None => break,
        }
    }
    size
}

/// The largest power of two that divides start and length of all `ranges`: blocks of that size
/// come and go with each of them. `None` without ranges.
///
/// ```
/// use firstlight_frames::addr::PhysRange;
/// use firstlight_blocks::common_alignment;
/// let dimm = PhysRange::with_size(5 << 30, 384 << 20);
/// assert_eq!(common_alignment(dimm), Some(128 << 20));
/// assert_eq!(common_alignment([]), None);
/// ```
pub fn common_alignment(ranges: impl IntoIterator<Item = PhysRange>) -> Option<u64> {
    let used = ranges.into_iter().filter(|range| !range.is_empty());
    let bits = used.map(|range| range.start().get() | range.bytes());
    let bits = bits.reduce(|all, one| all | one)?;
    Some(1 << bits.trailing_zeros().min(PHYS_END.trailing_zeros()))
}

impl fmt::Display for SizeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (end, most) = (Bytes(self.end_bytes), BlockSize::LARGEST_CHOSEN);
        write!(f, "{}, ", self.size)?;
        match self.reason {
            SizeReason::Explicit => f.write_str("as was given")?,
            SizeReason::SmallMemory => write!(
                f,
                "the smallest: memory ends at {end}, below {}",
                Bytes(LARGE_MEMORY)
            )?,
            SizeReason::BareMetal => f.write_str("the most on a machine without hypervisor")?,
            SizeReason::Divides => write!(
                f,
                "the largest up to {most} that divides the end of memory, {end}, in a virtual machine"
            )?,
            SizeReason::NoLarger => write!(
                f,
                "the smallest: none larger divides the end of memory, {end}, in a virtual machine"
            )?,
        }
        match self.cap {
            None => Ok(()),
            Some(Cap::Advice(bytes)) => {
                write!(f, "; firmware's windows advise at most {}", Bytes(bytes))
            }
            Some(Cap::Dimm(bytes)) => write!(
                f,
                "; lowered, because memory that may come or go is announced in multiples of {}",
                Bytes(bytes)
            ),
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn policy(end_bytes: u64, is_virtual: bool) -> SizePolicy {
        SizePolicy {
            end_bytes,
            is_virtual,
            ..SizePolicy::default()
        }
    }

    #[test]
    fn each_rule_has_its_size_and_its_reason() {
        use SizeReason::{BareMetal, Divides, NoLarger, SmallMemory};
        let rows = [
            (64 * GIB - 1, false, 128 * MIB, SmallMemory),
            (64 * GIB, false, 2 * GIB, BareMetal),
            (64 * GIB, true, 2 * GIB, Divides),
            (65 * GIB, true, GIB, Divides),
            (65 * GIB + 512 * MIB, true, 512 * MIB, Divides),
            (65 * GIB + 256 * MIB, true, 256 * MIB, Divides),
            (65 * GIB + 128 * MIB, true, 128 * MIB, Divides),
            (65 * GIB + 64 * MIB, true, 128 * MIB, NoLarger),
            (65 * GIB + 64 * MIB, false, 2 * GIB, BareMetal),
        ];
        for (end, is_virtual, bytes, reason) in rows {
            let choice = policy(end, is_virtual).choose();
            assert_eq!(
                (choice.size.bytes(), choice.reason),
                (bytes, reason),
                "{end:#x}"
            );
            assert_eq!(choice.cap, None);
        }
    }

    #[test]
    fn start_and_length_of_every_range_count() {
        let of = |ranges: &[(u64, u64)]| {
            let range = |(start, bytes): &(u64, u64)| PhysRange::with_size(*start, *bytes).unwrap();
            common_alignment(ranges.iter().map(range))
        };
        assert_eq!(of(&[(4 * GIB, 3 * GIB)]), Some(GIB));
        assert_eq!(of(&[(4 * GIB + 256 * MIB, GIB)]), Some(256 * MIB));
        assert_eq!(of(&[(4 * GIB, GIB), (8 * GIB, 512 * MIB)]), Some(512 * MIB));
        assert_eq!(of(&[(5 * MIB, 0), (8 * GIB, 2 * GIB)]), Some(2 * GIB));
    }

    #[test]
    fn advice_and_dimms_lower_it() {
        let advised = |bytes, is_virtual| SizePolicy {
            advised_bytes: Some(bytes),
            ..policy(66 * GIB, is_virtual)
        };
        for is_virtual in [false, true] {
            let choice = advised(256 * MIB, is_virtual).choose();
            assert_eq!(choice.size.bytes(), 256 * MIB);
            assert_eq!(choice.cap, Some(Cap::Advice(256 * MIB)));
            // Advice that is no limit says nothing.
            let choice = advised(4 * GIB, is_virtual).choose();
            assert_eq!((choice.size.bytes(), choice.cap), (2 * GIB, None));
            // Never below a section.
            assert_eq!(advised(MIB, is_virtual).choose().size, BlockSize::SMALLEST);
        }
        let explicit = SizePolicy {
            explicit: Some(BlockSize::new(8 * GIB).unwrap()),
            ..advised(256 * MIB, true)
        };
        assert_eq!(explicit.choose().size.bytes(), 8 * GIB);
        let choice = SizePolicy {
            dimm_bytes: Some(384 * MIB),
            ..explicit
        }
        .choose();
        assert_eq!(choice.size.bytes(), 256 * MIB);
        assert!(choice.to_string().contains("lowered"), "{choice}");
    }
}
