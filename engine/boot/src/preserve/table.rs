//! What a table says by itself, without a look at the machine's memory: [`read`].
#![deny(unsafe_code)]

use super::error::{PreserveError, RangeFault};
use super::format::{
    CRC_32C, Entry, HEADER_BYTES, Header, MAGIC, PreservedRange, RANGE_BYTES, VERSION,
};
use crate::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use core::num::NonZeroU64;

/// A table whose checksum and ranges are right; by [`read`].
#[derive(Clone, Copy, Debug)]
pub struct Table<'t> {
    entries: &'t [u8],
    has_content: bool,
}

impl Table<'_> {
    /// Its ranges, ascending and disjoint.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = PreservedRange> + Clone + '_ {
        ranges(self.entries)
    }

    /// Whether each range has a checksum of its content.
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// Bytes of all ranges.
    pub fn preserved_bytes(&self) -> u64 {
        self.ranges().map(|range| range.range.bytes()).sum()
    }
}

/// Reads the table at the start of `place`, which lies at the physical address `at`. It may be
/// hostile. `nonce` is what the previous kernel handed over outside of memory; a kernel without one was
/// started cold, and takes no table.
///
/// ```
/// use core::num::NonZeroU64;
/// use firstlight_frames::addr::{PhysAddr, PhysRange};
/// use firstlight_boot::preserve::{self, Draft, PreserveError, PreservedRange};
///
/// let at = PhysAddr::new(0x100_0000);
/// let mut place = [0; 4096];
/// let nonce = NonZeroU64::new(0x5eed);
/// assert!(preserve::read(&place, at, nonce).unwrap_err().is_absent());
///
/// let guest = PreservedRange {
///     range: PhysRange::new(0x4000_0000, 0x8000_0000).unwrap(),
///     owner: 1,
///     tag: 7,
///     node: None,
/// };
/// let mut draft = Draft::new(&mut place, at, nonce.unwrap())?;
/// draft.add(guest)?;
/// draft.finish();
/// assert!(preserve::read(&place, at, nonce)?.ranges().eq([guest]));
/// assert!(preserve::read(&place, at, None).is_err()); // after a cold start
///
/// place[50] ^= 1;
/// let error = preserve::read(&place, at, nonce).unwrap_err();
/// assert!(matches!(error, PreserveError::Checksum { .. }), "{error}");
/// # Ok::<(), PreserveError>(())
/// ```
///
/// # Errors
/// All of [`PreserveError`] but [`Full`](PreserveError::Full), [`Early`](PreserveError::Early) and those of
/// [`Preserved::check_nodes`](super::Preserved::check_nodes) and
/// [`Preserved::check_content`](super::Preserved::check_content).
pub fn read(
    place: &[u8],
    at: PhysAddr,
    nonce: Option<NonZeroU64>,
) -> Result<Table<'_>, PreserveError> {
    let bytes = place.len();
    let (header, rest) = place
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(PreserveError::TooShort { bytes })?;
    let header = Header::decode(header);
    let Header {
        magic,
        version,
        algorithm,
        checksum: seen,
        length,
        ranges,
        ..
    } = header;
    match magic {
        MAGIC => {}
        [0, 0, 0, 0, 0, 0, 0, 0] => return Err(PreserveError::Absent),
        seen => return Err(PreserveError::Foreign { seen }),
    }
    if version != VERSION {
        return Err(PreserveError::Version { seen: version });
    }
    if algorithm != CRC_32C {
        return Err(PreserveError::Algorithm { seen: algorithm });
    }
    let needed = HEADER_BYTES as u64 + u64::from(ranges) * RANGE_BYTES as u64;
    if u64::from(length) != needed {
        return Err(PreserveError::Length {
            seen: length,
            ranges,
        });
    }
    let entries = (length as usize)
        .checked_sub(HEADER_BYTES)
        .and_then(|end| rest.get(..end))
        .ok_or(PreserveError::Truncated { length, bytes })?;
    let expected = header.checksum_with(entries);
    if seen != expected {
        return Err(PreserveError::Checksum { seen, expected });
    }
    if header.at != at.get() {
        return Err(PreserveError::Moved {
            seen: header.at,
            at,
        });
    }
    if nonce.is_none_or(|nonce| nonce.get() != header.nonce) {
        return Err(PreserveError::Stale {
            seen: header.nonce,
            expected: nonce,
        });
    }
    if header.flags & !Header::CONTENT != 0 {
        return Err(PreserveError::Flags { seen: header.flags });
    }
    let mut before = PhysRange::EMPTY;
    for (index, entry) in decoded(entries).enumerate() {
        before = check(&entry, before).map_err(|fault| PreserveError::Range {
            index,
            start: entry.start,
            bytes: entry.bytes,
            fault,
        })?;
    }
    Ok(Table {
        entries,
        has_content: header.flags & Header::CONTENT != 0,
    })
}

/// The range of an entry that stands behind `before`.
fn check(entry: &Entry, before: PhysRange) -> Result<PhysRange, RangeFault> {
    let range = pages(entry.start, entry.bytes)?;
    if range.start() < before.end() {
        return Err(RangeFault::Overlap(before));
    }
    match entry.taken {
        0 => Ok(range),
        seen => Err(RangeFault::Unknown(seen)),
    }
}

/// `bytes` bytes from `start`, if these are whole pages of physical memory.
pub(super) fn pages(start: u64, bytes: u64) -> Result<PhysRange, RangeFault> {
    if bytes == 0 {
        return Err(RangeFault::Empty);
    }
    if !start.is_multiple_of(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(RangeFault::Unaligned);
    }
    PhysRange::with_size(start, bytes)
        .filter(|range| range.end().get() <= PHYS_END)
        .ok_or(RangeFault::Overflow)
}

/// The entries of a table.
pub(super) fn decoded(entries: &[u8]) -> impl ExactSizeIterator<Item = Entry> + Clone + '_ {
    let (entries, _) = entries.as_chunks::<RANGE_BYTES>();
    entries.iter().map(Entry::decode)
}

/// The ranges of entries that were checked.
pub(super) fn ranges(entries: &[u8]) -> impl ExactSizeIterator<Item = PreservedRange> + Clone + '_ {
    decoded(entries).map(|entry| {
        entry.ranged(PhysRange::with_size(entry.start, entry.bytes).unwrap_or_default())
    })
}
