//! What a device says of its region and sizes: [`Config`].

use core::fmt;

/// The configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of a block, which is plugged and unplugged as a whole.
    pub block_bytes: u64,
    /// The node, in firmware's numbers, if the device knows it.
    pub domain: Option<u32>,
    /// First byte of the region.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of it, from its beginning, of which blocks may be plugged now.
    pub usable_bytes: u64,
    /// Bytes of all blocks that are plugged.
    pub plugged_bytes: u64,
    /// Bytes that the host wants to be plugged.
    pub requested_bytes: u64,
}

/// Smallest block: a page.
const LEAST_BLOCK: u64 = 4096;

impl Config {
    /// Offsets of the words.
    pub(super) const WORDS: [u32; 13] = [0, 4, 8, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52];

    /// Of the words at these offsets.
    pub(super) fn of(words: [u32; 13], has_node: bool) -> Self {
        let [
            block0,
            block1,
            node,
            start0,
            start1,
            bytes0,
            bytes1,
            usable0,
            usable1,
            plugged0,
            plugged1,
            requested0,
            requested1,
        ] = words;
        let wide = |low, high| u64::from(high) << 32 | u64::from(low);
        Self {
            block_bytes: wide(block0, block1),
            domain: has_node.then_some(node & 0xffff),
            start: wide(start0, start1),
            bytes: wide(bytes0, bytes1),
            usable_bytes: wide(usable0, usable1),
            plugged_bytes: wide(plugged0, plugged1),
            requested_bytes: wide(requested0, requested1),
        }
    }

    /// Checks that its parts fit each other.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        let block_bytes = self.block_bytes;
        if !block_bytes.is_power_of_two() || block_bytes < LEAST_BLOCK {
            return Err(ConfigFault::Block { block_bytes });
        }
        let is_whole = |bytes: u64| bytes.is_multiple_of(block_bytes);
        let (start, bytes) = (self.start, self.bytes);
        let ends = start.checked_add(bytes).is_some();
        if bytes == 0 || !ends || !is_whole(start) || !is_whole(bytes) {
            return Err(ConfigFault::Region {
                start,
                bytes,
                block_bytes,
            });
        }
        for (what, seen, limit) in [
            ("usable", self.usable_bytes, bytes),
            ("plugged", self.plugged_bytes, bytes),
            ("requested", self.requested_bytes, self.usable_bytes),
        ] {
            if !is_whole(seen) || seen > limit {
                return Err(ConfigFault::Size {
                    what,
                    seen,
                    limit,
                    block_bytes,
                });
            }
        }
        Ok(())
    }

    /// Checks that it is of the region that `first` was of.
    pub(super) fn check_same(&self, first: &Self) -> Result<(), ConfigFault> {
        let region = |config: &Self| (config.start, config.bytes, config.block_bytes);
        if region(self) == region(first) {
            return Ok(());
        }
        Err(ConfigFault::Moved {
            from: first.start,
            to: self.start,
        })
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigFault {
    /// Blocks of a size that there can't be.
    Block {
        /// Their size.
        block_bytes: u64,
    },
    /// A region that there can't be.
    Region {
        /// First byte.
        start: u64,
        /// Bytes.
        bytes: u64,
        /// Bytes of a block.
        block_bytes: u64,
    },
    /// A size that is not of whole blocks, or too large.
    Size {
        /// Its name.
        what: &'static str,
        /// The size.
        seen: u64,
        /// The largest that it can be.
        limit: u64,
        /// Bytes of a block.
        block_bytes: u64,
    },
    /// The region or the size of its blocks changed.
    Moved {
        /// Where it began.
        from: u64,
        /// Where it begins.
        to: u64,
    },
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Block { block_bytes } => write!(
                f,
                "its blocks have {block_bytes:#x} bytes; expected a power of two from 4 KiB on"
            ),
            Self::Region {
                start,
                bytes,
                block_bytes,
            } => write!(
                f,
                "its region has {bytes:#x} bytes from {start:#x} on; expected one or more whole blocks \
                 of {block_bytes:#x} bytes"
            ),
            Self::Size {
                what,
                seen,
                limit,
                block_bytes,
            } => write!(
                f,
                "its {what} size is {seen:#x}; expected whole blocks of {block_bytes:#x} bytes, at most \
                 {limit:#x}"
            ),
            Self::Moved { from, to } => write!(
                f,
                "its region, from {from:#x} on, became another, from {to:#x} on; expected the first for as \
                 long as the machine runs"
            ),
        }
    }
}
