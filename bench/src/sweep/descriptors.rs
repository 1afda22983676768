//! Descriptors to measure with, in all [`SIZES`].

use super::{Options, Series, SweepError, measure};
use crate::machine::Machine;
use firstlight::memmap::{Descriptor, PageDescriptor, SectionPlace};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes of descriptors in bytes.
pub const SIZES: [u32; 4] = [8, 16, 32, 64];

/// A descriptor whose content can be checked.
pub(super) trait Checked: Descriptor {
    fn is_right(&self, place: SectionPlace) -> bool;
}

impl Checked for PageDescriptor {
    fn is_right(&self, place: SectionPlace) -> bool {
        let words = [&self.owner, &self.index, &self.private, &self.account];
        let counts = [&self.references, &self.maps];
        self.place() == place
            && self.flags() == 0
            && counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 0)
            && words
                .into_iter()
                .chain(&self.links)
                .all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

/// Words that all contain their place; never zero.
struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Words<N> {
    fn word(place: SectionPlace) -> u64 {
        1 << 63 | place.section << 24 | u64::from(place.node.0) << 8 | place.zone as u64
    }
}

// SAFETY: an array of atomic integers has no padding.
unsafe impl<const N: usize> Descriptor for Words<N> {
    fn template(place: SectionPlace) -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(Self::word(place))))
    }
}

impl<const N: usize> Checked for Words<N> {
    fn is_right(&self, place: SectionPlace) -> bool {
        let word = Self::word(place);
        self.0.iter().all(|own| own.load(Ordering::Relaxed) == word)
    }
}

/// Measures with descriptors of `bytes` bytes; `None` if there are none.
pub(super) fn dispatch(
    bytes: u32,
    machine: &Machine,
    options: &Options,
) -> Option<Result<Vec<Series>, SweepError>> {
    Some(match bytes {
        8 => measure::<Words<1>>(machine, options),
        16 => measure::<Words<2>>(machine, options),
        32 => measure::<Words<4>>(machine, options),
        64 => measure::<PageDescriptor>(machine, options),
        _ => return None,
    })
}
