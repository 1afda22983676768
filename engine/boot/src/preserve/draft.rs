//! A table that is being written: [`Draft`].
#![deny(unsafe_code)]

use super::error::{PreserveError, RangeFault};
use super::format::{
    CRC_32C, Entry, HEADER_BYTES, Header, MAGIC, PreservedRange, RANGE_BYTES, VERSION,
};
use super::table::{pages, ranges};
use core::num::NonZeroU64;

use crate::addr::{PhysAddr, PhysRange};
use crate::store::Full;

/// A table under way, at its place; it counts once it is [finished](Self::finish).
///
/// Ranges come in any order. Those that touch and are alike become one.
#[derive(Debug)]
pub struct Draft<'t> {
    place: &'t mut [u8],
    at: PhysAddr,
    nonce: NonZeroU64,
    ranges: usize,
}

impl<'t> Draft<'t> {
    /// A table without ranges in `place`, which lies at the physical address `at`. What was
    /// there is no table any more. The next kernel takes it only if it is told the same `nonce`, in a
    /// register or on its command line: a number that no other restart of this machine had.
    ///
    /// # Errors
    /// [`PreserveError::TooShort`].
    pub fn new(
        place: &'t mut [u8],
        at: PhysAddr,
        nonce: NonZeroU64,
    ) -> Result<Self, PreserveError> {
        let bytes = place.len();
        let header = place.first_chunk_mut::<HEADER_BYTES>();
        *header.ok_or(PreserveError::TooShort { bytes })? = [0; HEADER_BYTES];
        Ok(Self {
            place,
            at,
            nonce,
            ranges: 0,
        })
    }

    /// Ranges so far, ascending.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = PreservedRange> + Clone + '_ {
        ranges(self.entries())
    }

    /// Adds a range.
    ///
    /// # Errors
    /// [`PreserveError::Range`] if it is empty, no whole pages, beyond the last physical
    /// address, or shares bytes with another; [`PreserveError::Full`]. The draft is as before.
    pub fn add(&mut self, new: PreservedRange) -> Result<(), PreserveError> {
        let (start, bytes) = (new.range.start().get(), new.range.bytes());
        let mut index = self.position(start);
        let refused = |fault| PreserveError::Range {
            index,
            start,
            bytes,
            fault,
        };
        let range = pages(start, bytes).map_err(refused)?;
        let below = index.checked_sub(1).and_then(|at| self.get(at));
        let above = self.get(index);
        for other in [below, above].into_iter().flatten() {
            if other.range.overlaps(range) {
                return Err(refused(RangeFault::Overlap(other.range)));
            }
        }
        let joins = |low: PhysRange, high: PhysRange| low.end() == high.start();
        let below = below.filter(|other| other.alike(&new) && joins(other.range, range));
        let above = above.filter(|other| other.alike(&new) && joins(range, other.range));
        match (below.is_some(), above.is_some()) {
            (false, false) => self.insert(index)?,
            (true, true) => {
                self.remove(index);
                index -= 1;
            }
            (true, false) => index -= 1,
            (false, true) => {}
        }
        let start = below.unwrap_or(new).range.start().get();
        let end = above.unwrap_or(new).range.end().get();
        let range = PhysRange::new(start, end).unwrap_or_default();
        self.put(index, &PreservedRange { range, ..new });
        Ok(())
    }

    /// Makes it a table; its bytes.
    pub fn finish(self) -> usize {
        self.seal(0)
    }

    /// As [`Self::finish`], with a checksum of what each range holds, by the function that the next kernel
    /// passes to [`Preserved::check_content`](super::Preserved::check_content). Nothing writes to the ranges any more.
    pub fn finish_with(self, mut content: impl FnMut(PhysRange) -> u64) -> usize {
        let end = offset(self.ranges);
        let (entries, _) = self.place[HEADER_BYTES..end].as_chunks_mut::<RANGE_BYTES>();
        for bytes in entries {
            let mut entry = Entry::decode(bytes);
            let range = PhysRange::with_size(entry.start, entry.bytes);
            entry.content = content(range.unwrap_or_default());
            *bytes = entry.encode();
        }
        self.seal(Header::CONTENT)
    }

    fn seal(self, flags: u64) -> usize {
        let length = HEADER_BYTES + self.ranges * RANGE_BYTES;
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            algorithm: CRC_32C,
            checksum: 0,
            length: number(length),
            ranges: number(self.ranges),
            at: self.at.get(),
            nonce: self.nonce.get(),
            flags,
        };
        let header = Header {
            checksum: header.checksum_with(self.entries()),
            ..header
        };
        self.place[..HEADER_BYTES].copy_from_slice(&header.encode());
        length
    }

    fn entries(&self) -> &[u8] {
        &self.place[HEADER_BYTES..HEADER_BYTES + self.ranges * RANGE_BYTES]
    }

    fn get(&self, index: usize) -> Option<PreservedRange> {
        self.ranges().nth(index)
    }

    /// Position of the first range that begins above `start`.
    fn position(&self, start: u64) -> usize {
        let (entries, _) = self.entries().as_chunks::<RANGE_BYTES>();
        entries.partition_point(|entry| Entry::decode(entry).start <= start)
    }

    /// Makes space for a range at `index`.
    fn insert(&mut self, index: usize) -> Result<(), PreserveError> {
        let space = self.place.len().min(u32::MAX as usize);
        let capacity = (space - HEADER_BYTES) / RANGE_BYTES;
        if self.ranges == capacity {
            return Err(PreserveError::Full(Full {
                capacity,
                needed: capacity + 1,
            }));
        }
        let (from, end) = (offset(index), offset(self.ranges));
        self.place.copy_within(from..end, from + RANGE_BYTES);
        self.ranges += 1;
        Ok(())
    }

    fn remove(&mut self, index: usize) {
        let (from, end) = (offset(index + 1), offset(self.ranges));
        self.place.copy_within(from..end, offset(index));
        self.ranges -= 1;
    }

    fn put(&mut self, index: usize, range: &PreservedRange) {
        let from = offset(index);
        let bytes = Entry::of(range).encode();
        self.place[from..from + RANGE_BYTES].copy_from_slice(&bytes);
    }
}

/// A length or a number of ranges; `insert` keeps both below 4 GiB.
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Where the range at `index` stands.
const fn offset(index: usize) -> usize {
    HEADER_BYTES + index * RANGE_BYTES
}
