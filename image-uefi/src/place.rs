//! Where the image can be placed: at its own address, else at another one that differs by whole
//! 2 MiB, because one page table describes the image.

use core::ops::Range;

/// The image is moved by multiples of this.
pub const STEP_BYTES: u64 = 2 << 20;
/// Devices of a PC below 1 MiB, and what loaders of the first MiB use.
const LEAST: u64 = STEP_BYTES;

/// Places for an image that is linked at `own`: the starts of all 2 MiB in `free`, ascending
/// memory ranges in any order, where the same offset within 2 MiB fits. Its own place, where
/// it is free, comes first; then from the highest below `reach` down, far from what else wants
/// low memory.
pub fn places(
    own: &Range<u64>,
    free: impl Iterator<Item = Range<u64>> + Clone,
    reach: u64,
) -> impl Iterator<Item = u64> {
    let (bytes, offset) = (own.end - own.start, own.start % STEP_BYTES);
    let (start, end) = (own.start, own.end);
    let is_free = free
        .clone()
        .any(|range| range.start <= start && end <= range.end);
    let mut below = reach;
    let others = core::iter::from_fn(move || {
        // The highest start below the last one.
        let highest = |range: Range<u64>| {
            let most = range.end.min(reach).checked_sub(bytes)?.min(below - 1);
            let start = (most.checked_sub(offset)? / STEP_BYTES) * STEP_BYTES + offset;
            (start >= range.start.max(LEAST)).then_some(start)
        };
        below = free.clone().filter_map(highest).max()?;
        Some(below)
    });
    is_free
        .then_some(start)
        .into_iter()
        .chain(others.filter(move |place| *place != start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MIB: u64 = 1 << 20;
    const NONE: [u64; 0] = [];

    fn one(range: Range<u64>) -> Vec<u64> {
        all(core::slice::from_ref(&range))
    }

    fn all(free: &[Range<u64>]) -> Vec<u64> {
        below(4096 * MIB, free)
    }

    fn below(reach: u64, free: &[Range<u64>]) -> Vec<u64> {
        let own = 2 * MIB..2 * MIB + 0x18_e000;
        let places = places(&own, free.iter().cloned(), reach);
        places.map(|place| place / MIB).take(1000).collect()
    }

    #[test]
    fn its_own_place_comes_first_then_the_highest() {
        assert_eq!(one(MIB..9 * MIB), [2, 6, 4]);
        assert_eq!(all(&[MIB..9 * MIB, 20 * MIB..22 * MIB]), [2, 20, 6, 4]);
        assert_eq!(one(2 * MIB + 4096..7 * MIB), [4]);
        assert_eq!(all(&[3 * MIB..9 * MIB, 0..MIB]), [6, 4]);
    }

    #[test]
    fn nothing_above_its_reach_is_a_place_but_its_own() {
        let free = [6 * MIB..12 * MIB, 2040 * MIB..3000 * MIB];
        assert_eq!(all(&free)[..2], [2998, 2996]);
        assert_eq!(below(2048 * MIB, &free), [2046, 2044, 2042, 2040, 10, 8, 6]);
        assert_eq!(below(8 * MIB, &free), [6]);
        assert_eq!(below(7 * MIB, &free), NONE);
        let low = 0..3000 * MIB;
        assert_eq!(below(0, core::slice::from_ref(&low)), [2]);
    }

    #[test]
    fn nothing_low_high_or_too_small_is_a_place() {
        let gib = 1 << 30;
        assert_eq!(one(0..2 * MIB), NONE);
        assert_eq!(one(3 * MIB..5 * MIB), NONE);
        assert_eq!(one(4 * gib..5 * gib), NONE);
        assert_eq!(one(4 * gib - 4 * MIB..5 * gib), [4094, 4092]);
        assert_eq!(all(&[u64::MAX - MIB..u64::MAX, 5..5]), NONE);
        assert_eq!(all(&[]), NONE);
    }
}
