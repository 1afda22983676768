//! How many buckets a table has: [`TableSpec`].
//!
//! *A bucket for so many bytes of memory, a power of two of them.* Above 64 GiB a table grows with
//! the square root of memory: twice the buckets for four times the memory. Linux does that in
//! steps, and not where a table has a limit of its own.
#![deny(unsafe_code)]

use core::fmt;

use crate::addr::{PAGE_BYTES, PAGE_SHIFT};

/// Memory counts in multiples of this many frames, 1 MiB.
const ROUND_FRAMES: u64 = 256;
/// Frames in 64 GiB, from which on tables grow more slowly.
const SLOW_FRAMES: u64 = 1 << (36 - PAGE_SHIFT);
/// log2 of the part of memory a table may take: a sixteenth.
const MOST_SHIFT: u32 = 4;

/// How a table grows above 64 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// With the square root of memory, limits or not.
    #[default]
    SquareRoot,
    /// As in Linux: half as many buckets a byte from 64 GiB on, half of that from 256 GiB on, and so
    /// forth; at the full rate where a table has a limit.
    Stepped,
}

/// A table whose size depends on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSpec {
    /// What it is for.
    pub name: &'static str,
    /// Bytes of a bucket.
    pub bucket_bytes: u64,
    /// log2 of the bytes of memory for each bucket; from 12 on.
    pub scale: u32,
    /// Fewest buckets.
    pub least: u64,
    /// Most buckets; else what fits into a sixteenth of memory.
    pub most: Option<u64>,
}

/// A size: a power of two of buckets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TableSize {
    /// Buckets, a power of two.
    pub buckets: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl TableSize {
    /// log2 of its pages, rounded down, as kernels print it; 0 below a page.
    pub const fn order(self) -> u32 {
        match (self.bytes >> PAGE_SHIFT).checked_ilog2() {
            Some(order) => order,
            None => 0,
        }
    }
}

/// More buckets than a table may have, or than fit into a sixteenth of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// The table.
    pub name: &'static str,
    /// What was given.
    pub buckets: u64,
    /// The most it may have.
    pub most: TableSize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            buckets,
            most,
        } = self;
        write!(
            f,
            "table {name:?} of {buckets} buckets: expected at most {} ({} bytes)",
            most.buckets, most.bytes
        )
    }
}

impl core::error::Error for TooLarge {}

impl TableSpec {
    /// The size for `frames` of memory that a kernel can use.
    ///
    /// ```
    /// use firstlight_workers::tables::{Growth, TableSpec};
    /// let names = TableSpec { name: "names", bucket_bytes: 8, scale: 13, least: 1, most: None };
    /// let buckets = |gib: u64| names.size(gib << 18, Growth::SquareRoot).buckets;
    /// assert_eq!(buckets(16), 2 << 20); // one for 8 KiB
    /// assert_eq!((buckets(64), buckets(256), buckets(1024)), (8 << 20, 16 << 20, 32 << 20));
    /// ```
    pub fn size(&self, frames: u64, growth: Growth) -> TableSize {
        let frames = frames.min(u64::MAX >> PAGE_SHIFT);
        let frames = frames
            .checked_next_multiple_of(ROUND_FRAMES)
            .unwrap_or(frames);
        let shift = self.scale.saturating_sub(PAGE_SHIFT);
        let buckets = match growth {
            Growth::SquareRoot if frames > SLOW_FRAMES => {
                (frames.isqrt() * SLOW_FRAMES.isqrt()).checked_shr(shift)
            }
            Growth::Stepped if self.most.is_none() => frames.checked_shr(shift + steps(frames)),
            _ => frames.checked_shr(shift),
        };
        let page = PAGE_BYTES / self.bucket_bytes.clamp(1, PAGE_BYTES);
        self.bounded(buckets.unwrap_or(0).max(page), frames)
    }

    /// The size for a number of buckets that was given, rounded up to a power of two.
    ///
    /// # Errors
    /// [`TooLarge`]: more than the limit of the table, or than a sixteenth of memory.
    pub fn given(&self, buckets: u64, frames: u64) -> Result<TableSize, TooLarge> {
        let size = self.bounded(buckets, frames);
        if size.buckets < buckets {
            return Err(TooLarge {
                name: self.name,
                buckets,
                most: size,
            });
        }
        Ok(size)
    }

    /// `buckets` as a power of two within the limits.
    fn bounded(&self, buckets: u64, frames: u64) -> TableSize {
        let each = self.bucket_bytes.max(1);
        let memory = frames.saturating_mul(PAGE_BYTES);
        let most = self.most.unwrap_or((memory >> MOST_SHIFT) / each).max(1);
        let rounded = buckets.max(1).checked_next_power_of_two().unwrap_or(most);
        let bounded = rounded.max(self.least).min(most).min(u64::MAX / each);
        let buckets = 1 << bounded.ilog2();
        TableSize {
            buckets,
            bytes: buckets * each,
        }
    }
}

/// How often memory is more than four times the step before, the first of which is 64 GiB.
fn steps(frames: u64) -> u32 {
    let (mut steps, mut at) = (0, SLOW_FRAMES);
    while at < frames {
        steps += 1;
        at = at.saturating_mul(4);
    }
    steps
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    const NAMES: TableSpec = TableSpec {
        name: "names",
        bucket_bytes: 8,
        scale: 13,
        least: 1,
        most: None,
    };

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "Linux with pages of 4 KiB"
    )]
    fn linux_sizes_of_recorded_machines() {
        // Frames less descriptors of machines in testdata/golden, and what Linux printed.
        let rows = [
            (257_760, 131_072),
            (1_031_904, 524_288),
            (16_514_784, 8_388_608),
            (33_029_856, 8_388_608),
            (66_059_999, 16_777_216),
        ];
        for (frames, buckets) in rows {
            let size = NAMES.size(frames, Growth::Stepped);
            assert_eq!(size.buckets, buckets, "{frames}");
            assert_eq!(size.bytes, 8 * buckets);
        }
        let connections = TableSpec {
            scale: 17,
            most: Some(524_288),
            ..NAMES
        };
        assert_eq!(
            connections.size(66_059_999, Growth::Stepped).buckets,
            524_288
        );
        assert_eq!(connections.size(257_760, Growth::Stepped).buckets, 8192);
    }

    #[test]
    fn tables_never_shrink_as_memory_grows_and_never_exceed_a_sixteenth() {
        for growth in [Growth::SquareRoot, Growth::Stepped] {
            let mut before = 0;
            for shift in 0..44 {
                for frames in [1 << shift, (1 << shift) + (1 << shift) / 3] {
                    let size = NAMES.size(frames, growth);
                    assert!(size.buckets.is_power_of_two());
                    // Linux rounds up after the step, ours grows without steps.
                    assert!(size.buckets >= before, "{frames} {growth:?}");
                    before = size.buckets;
                    let all = frames.next_multiple_of(ROUND_FRAMES) * PAGE_BYTES;
                    assert!(size.bytes <= (all / 16).max(PAGE_BYTES));
                }
            }
        }
        let at = |gib: u64| {
            NAMES
                .size(gib << (30 - PAGE_SHIFT), Growth::SquareRoot)
                .buckets
        };
        assert_eq!(at(64 << 10), 32 * at(64));
    }

    #[test]
    fn a_given_size_is_taken_or_refused() {
        let frames = (4 << 30) / PAGE_BYTES;
        assert_eq!(NAMES.given(4096, frames).unwrap().bytes, 32_768);
        assert_eq!(NAMES.given(4097, frames).unwrap().buckets, 8192);
        let refused = NAMES.given(u64::MAX, frames).unwrap_err();
        assert_eq!(refused.most.bytes, (4 << 30) / 16);
        let limited = TableSpec {
            most: Some(1000),
            ..NAMES
        };
        assert_eq!(limited.given(512, frames).unwrap().buckets, 512);
        assert_eq!(limited.given(513, frames).unwrap_err().most.buckets, 512);
        assert_eq!(NAMES.size(0, Growth::Stepped).buckets, 1);
        let largest = NAMES.size(u64::MAX, Growth::SquareRoot);
        let bytes_log2 = match PAGE_SHIFT {
            12 => 40,
            14 => 39,
            _ => 37,
        };
        assert_eq!(largest.order(), bytes_log2 - PAGE_SHIFT);
        assert_eq!(largest.bytes, 1 << bytes_log2);
    }
}
