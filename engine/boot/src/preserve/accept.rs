//! Ranges of a previous kernel in this one: [`Preserved`].
#![deny(unsafe_code)]

use core::num::NonZeroU64;

use super::error::PreserveError;
use super::format::{Entry, HEADER_BYTES, MAGIC, PreservedRange, RANGE_BYTES};
use super::table::{decoded, read};
use crate::addr::{PhysAddr, PhysRange};
use crate::early::EarlyMemory;
use crate::layout::Layout;

/// The owner of preserved ranges in the log of early memory.
const OWNER: &str = "preserved by the previous kernel";

/// What the previous kernel handed over: reserved, and untouched until an owner takes it.
///
/// ```
/// use core::num::NonZeroU64;
/// use firstlight_frames::addr::{PhysAddr, PhysRange};
/// use firstlight_frames::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
/// use firstlight_boot::preserve::{Draft, Preserved, PreservedRange};
///
/// let range = |start, end| PhysRange::new(start, end).unwrap();
/// let at = PhysAddr::new(0x10_0000);
/// let mut place = [0; 4096];
/// let nonce = NonZeroU64::new(0x5eed); // a register has it while kernels change
/// let mut draft = Draft::new(&mut place, at, nonce.unwrap())?;
/// for (owner, start) in [(1, 0x40_0000), (2, 0x60_0000)] {
///     let range = range(start, start + 0x10_0000);
///     draft.add(PreservedRange { range, owner, tag: 0, node: None })?;
/// }
/// draft.finish();
///
/// // The next kernel.
/// let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 16]);
/// let mut owners = [Allocation::EMPTY; 16];
/// let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
/// early.add(range(0x10_0000, 0x80_0000), EarlyFlags::NONE)?;
/// early.reserve(range(0x10_0000, 0x20_0000), "kernel")?;
/// let mut preserved = Preserved::accept(&mut place, at, nonce, &mut early)?;
/// assert!(early.is_reserved(range(0x40_0000, 0x50_0000)));
///
/// assert_eq!(preserved.take(1).count(), 1);
/// assert_eq!(preserved.take(1).count(), 0); // once
/// let mut freed = 0;
/// preserved.release(|range| freed += range.range.bytes());
/// assert_eq!(freed, 0x10_0000); // what owner 2 did not take
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Preserved<'t> {
    /// The table's ranges, at their place; `taken` says which are left.
    entries: &'t mut [u8],
    has_content: bool,
}

impl<'t> Preserved<'t> {
    /// Reads the table at the start of `place`, which lies at the physical address `at`, and
    /// reserves all of its ranges in `early`; erases its name, whatever the result.
    ///
    /// Called when everything in use is reserved (the place itself too) and nothing has been
    /// allocated. The frame allocator starts with the ranges allocated; they can be freed.
    ///
    /// # Errors
    /// Those of [`read`], and [`PreserveError::Early`] for a range that is not all memory, that
    /// this kernel, its loader or firmware uses, or that is one too many. Nothing is reserved
    /// then: memory comes up as after a cold start.
    pub fn accept(
        place: &'t mut [u8],
        at: PhysAddr,
        nonce: Option<NonZeroU64>,
        early: &mut EarlyMemory<'_>,
    ) -> Result<Self, PreserveError> {
        let (ranges, has_content, result) = match read(place, at, nonce) {
            Ok(table) => {
                let ranges = table.ranges().map(|range| range.range);
                (ranges.len(), table.has_content(), reserve(ranges, early))
            }
            Err(error) => (0, false, Err(error)),
        };
        let bytes = place.len();
        let named = place.split_first_chunk_mut::<HEADER_BYTES>();
        let (header, rest) = named.ok_or(PreserveError::TooShort { bytes })?;
        // What is no table of ours is not written to.
        if header.starts_with(&MAGIC) {
            *header = [0; HEADER_BYTES];
        }
        result?;
        Ok(Self {
            entries: &mut rest[..ranges * RANGE_BYTES],
            has_content,
        })
    }

    /// That each range that names a node lies on it, once nodes are known. If not, the table is not of this
    /// machine as it is now: [release](Self::release) all of it.
    ///
    /// # Errors
    /// [`PreserveError::Node`], of the first that does not.
    pub fn check_nodes(&self, layout: &Layout<'_>) -> Result<(), PreserveError> {
        let mut ranges = self.left().enumerate();
        let wrong = ranges.find_map(|(index, range)| {
            let seen = range.node?;
            let frames = range.range.inner_frames();
            let touched = layout.ranges().iter().filter(|memory| {
                !memory.frames.intersect(frames).is_empty() && memory.node != seen
            });
            touched
                .map(|memory| memory.node)
                .next()
                .map(|expected| PreserveError::Node {
                    index,
                    range: range.range,
                    seen,
                    expected,
                })
        });
        wrong.map_or(Ok(()), Err)
    }

    /// That each range holds what it held when the table was [finished](super::Draft::finish_with), by the
    /// function that was used there. If not, [release](Self::release) what should not be trusted.
    ///
    /// # Errors
    /// [`PreserveError::Unverified`] for a table without such checksums, and [`PreserveError::Content`] of
    /// the first range that changed.
    pub fn check_content(
        &self,
        mut content: impl FnMut(PhysRange) -> u64,
    ) -> Result<(), PreserveError> {
        if !self.has_content {
            return Err(PreserveError::Unverified);
        }
        for (index, entry) in decoded(self.entries).enumerate() {
            let Some(range) = left(&entry).map(|range| range.range) else {
                continue;
            };
            let (seen, expected) = (content(range), entry.content);
            if seen != expected {
                return Err(PreserveError::Content {
                    index,
                    range,
                    seen,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// The ranges that no owner has taken, ascending.
    pub fn left(&self) -> impl Iterator<Item = PreservedRange> + '_ {
        decoded(self.entries).filter_map(|entry| left(&entry))
    }

    /// The ranges of `owner`, ascending, each once: it has them from then on, and may free them
    /// ([`Frames::free_frames`](crate::frames::Frames::free_frames)).
    pub fn take(&mut self, owner: u32) -> impl Iterator<Item = PreservedRange> + '_ {
        self.take_if(move |range| range.owner == owner)
    }

    /// As [`Self::take`], of the ranges that are `wanted`.
    pub fn take_if<'a>(
        &'a mut self,
        wanted: impl Fn(&PreservedRange) -> bool + 'a,
    ) -> impl Iterator<Item = PreservedRange> + 'a {
        let (entries, _) = self.entries.as_chunks_mut::<RANGE_BYTES>();
        entries.iter_mut().filter_map(move |bytes| {
            let mut entry = Entry::decode(bytes);
            let range = left(&entry).filter(&wanted)?;
            entry.taken = Entry::TAKEN;
            *bytes = entry.encode();
            Some(range)
        })
    }

    /// Takes what no owner has taken, and passes it to `free`.
    pub fn release(&mut self, free: impl FnMut(PreservedRange)) {
        self.take_if(|_| true).for_each(free);
    }
}

/// The range of an entry, unless it was taken.
fn left(entry: &Entry) -> Option<PreservedRange> {
    let range = PhysRange::with_size(entry.start, entry.bytes).filter(|_| entry.taken == 0)?;
    Some(entry.ranged(range))
}

/// Reserves all of them or none.
fn reserve(
    ranges: impl Iterator<Item = PhysRange> + Clone,
    early: &mut EarlyMemory<'_>,
) -> Result<(), PreserveError> {
    for (index, range) in ranges.clone().enumerate() {
        if let Err(error) = early.preserve(range, OWNER) {
            // Ascending, so that each only shortens what is left: that needs no slot.
            for range in ranges.take(index) {
                let _ = early.free(range);
            }
            return Err(PreserveError::Early { index, error });
        }
    }
    Ok(())
}
