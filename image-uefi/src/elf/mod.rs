//! The image's file: an ELF program of fixed addresses, with a PVH note, and the relocations
//! that the linker kept (`--emit-relocs`), by which it can be placed elsewhere.
//!
//! [`Image::parse`] trusts nothing of the file; what it returns fits the memory it names.
//!
//! | file | concept |
//! |---|---|
//! | `mod` | segments and entry |
//! | `relocate` | the image elsewhere than where it is linked |
//! | `read` | numbers and tables of the file |
//! | `error` | [`ElfError`] |

mod error;
mod read;
mod relocate;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

pub use error::ElfError;
use firstlight_wire::handover;
use read::{field, notes, number, part, rows, short};

/// The end of addresses that the image's first instructions reach.
const END: u64 = 4 << 30;
/// One page table describes the image.
const MOST_BYTES: u64 = 2 << 20;
const PAGE_BYTES: u64 = 4096;
/// Most segments; the image has four.
const MOST_SEGMENTS: u64 = 64;

const PROGRAM: u64 = 2;
const X86_64: u64 = 62;
const LOAD: u64 = 1;
const NOTE: u64 = 4;
/// Xen's number of the note with the 32-bit entry.
const PVH_NOTE: u64 = 18;
/// Name and number of [`handover::NOTE`].
const HANDOVER_NAME: &[u8] = b"Firstlight\0";
const HANDOVER_NOTE: u64 = 1;

/// The image.
#[derive(Clone, Debug)]
pub struct Image<'f> {
    file: &'f [u8],
    /// Address and bytes of each segment.
    segments: Vec<(u64, &'f [u8])>,
    /// Where it is linked, whole pages.
    pub range: Range<u64>,
    /// The entry, as linked.
    pub entry: u64,
    /// The version of the hand-over that it says to read.
    handover: Option<u64>,
}

impl<'f> Image<'f> {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn parse(file: &'f [u8]) -> Result<Self, ElfError> {
        let head = file.first_chunk::<64>().ok_or(ElfError::Format)?;
        let word = |at| number::<2>(head, at).unwrap_or_default();
        // 64 bits, little-endian, version 1.
        if !head.starts_with(b"\x7fELF\x02\x01\x01") || (word(16), word(18)) != (PROGRAM, X86_64) {
            return Err(ElfError::Format);
        }
        let table = [field(head, 32), word(54), word(56), MOST_SEGMENTS];
        let headers = rows::<56>(file, "segments", table)?;
        let mut segments = Vec::new();
        let (mut start, mut end) = (u64::MAX, 0);
        let (mut entry, mut handover) = (None, None);
        for row in headers {
            let (kind, offset) = (short(row, 0), field(row, 8));
            let (at, bytes, memory) = (field(row, 24), field(row, 32), field(row, 40));
            if kind == NOTE {
                for (name, kind, content) in notes(part(file, "note", offset, bytes)?) {
                    match (name, kind) {
                        (b"Xen\0", PVH_NOTE) => entry = entry.or(number::<8>(content, 0)),
                        (HANDOVER_NAME, HANDOVER_NOTE) => handover = number::<4>(content, 0),
                        _ => {}
                    }
                }
            }
            if kind != LOAD || memory == 0 {
                continue;
            }
            let stop = at.saturating_add(memory);
            let pages = stop.saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1);
            (start, end) = (start.min(at & !(PAGE_BYTES - 1)), end.max(pages));
            if bytes > memory || at < 1 << 20 || stop > END {
                return Err(ElfError::Range {
                    start: at,
                    end: stop,
                });
            }
            segments.push((at, part(file, "segment", offset, bytes)?));
        }
        if start >= end || end - start > MOST_BYTES - start % MOST_BYTES {
            return Err(ElfError::Range { start, end });
        }
        let range = start..end;
        let entry = entry
            .filter(|entry| range.contains(entry))
            .ok_or(ElfError::Entry(entry))?;
        Ok(Self {
            file,
            segments,
            range,
            entry,
            handover,
        })
    }

    /// Whether it reads what this loader hands over.
    ///
    /// # Errors
    /// [`ElfError::Handover`].
    pub fn check_handover(&self) -> Result<(), ElfError> {
        match self.handover == Some(handover::VERSION.into()) {
            true => Ok(()),
            false => Err(ElfError::Handover(self.handover)),
        }
    }

    /// Writes the image as it is when its first byte is at `place`, which differs from its own
    /// by whole 2 MiB; `memory` is as long as [`range`](Self::range), and all of it is written.
    ///
    /// # Errors
    /// [`ElfError`], if it is to be elsewhere and cannot.
    pub fn write(&self, place: u64, memory: &mut [u8]) -> Result<(), ElfError> {
        memory.fill(0);
        for (at, bytes) in &self.segments {
            let start = usize::try_from(at - self.range.start).unwrap_or(usize::MAX);
            // In the range, by `parse`; a caller with less memory gets less of the image.
            if let Some(slot) = memory
                .get_mut(start..)
                .and_then(|rest| rest.get_mut(..bytes.len()))
            {
                slot.copy_from_slice(bytes);
            }
        }
        match place.wrapping_sub(self.range.start) {
            0 => Ok(()),
            delta => self.relocate(delta, memory),
        }
    }
}
