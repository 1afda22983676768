//! The image's file for aarch64: a flat one, that begins with the header of Linux's Image and moves itself to where it is
//! loaded.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 16 | 8 | bytes that it needs, of which the file has the first |
//! | 32 | 8 | the version of the hand-over that it reads, as a hand-over begins |
//! | 40 | 8 | the address at which nothing has to be moved |
//! | 56 | 4 | `ARM` and 0x64 |

use core::fmt;
use core::ops::Range;

use firstlight_wire::handover::{MAGIC, VERSION};

use crate::place::STEP_BYTES;

/// The end of addresses that its first page tables reach.
const END: u64 = 4 << 30;
const PAGE_BYTES: u64 = 4096;
/// Where the UEFI loader enters: the second instruction.
const ENTRY: u64 = 4;

/// Why a file is not the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlatError {
    /// It does not begin with the header of Linux's Image for arm64.
    Format,
    /// It needs less than it has, more than 2 MiB, or is linked at no multiple of 2 MiB.
    Range {
        /// Where it is linked.
        start: u64,
        /// Bytes that it needs.
        bytes: u64,
    },
    /// It reads another version of the hand-over, or says none.
    Handover(Option<u8>),
}

impl fmt::Display for FlatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Format => f.write_str("it does not begin as Linux's Image for arm64 does"),
            Self::Range { start, bytes } => write!(
                f,
                "it needs {bytes} bytes at {start:#x}, expected no less than it has, 2 MiB at most, at a multiple of 2 MiB below 4 GiB"
            ),
            Self::Handover(None) => write!(
                f,
                "it does not say which hand-over it reads, expected version {VERSION}"
            ),
            Self::Handover(Some(seen)) => write!(
                f,
                "it reads a hand-over of version {seen}, this loader writes {VERSION}: they are of different releases"
            ),
        }
    }
}

impl core::error::Error for FlatError {}

/// The image.
#[derive(Clone, Debug)]
pub struct Image<'f> {
    file: &'f [u8],
    /// Where it is linked, whole pages.
    pub range: Range<u64>,
    /// The entry, as linked.
    pub entry: u64,
    handover: Option<u8>,
}

impl<'f> Image<'f> {
    /// Reads the file.
    ///
    /// # Errors
    /// [`FlatError`].
    pub fn parse(file: &'f [u8]) -> Result<Self, FlatError> {
        let head = file.first_chunk::<64>().ok_or(FlatError::Format)?;
        let words = head.as_chunks::<8>().0;
        let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if !head[56..].starts_with(b"ARM\x64") {
            return Err(FlatError::Format);
        }
        let (bytes, start) = (word(2), word(5));
        let wrong = FlatError::Range { start, bytes };
        let needs = bytes.min(STEP_BYTES).next_multiple_of(PAGE_BYTES);
        if bytes > STEP_BYTES
            || bytes < file.len() as u64
            || start % STEP_BYTES != 0
            || start > END - STEP_BYTES
        {
            return Err(wrong);
        }
        Ok(Self {
            file,
            range: start..start + needs,
            entry: start + ENTRY,
            handover: head[32..]
                .strip_prefix(&MAGIC)
                .and_then(|rest| rest.first().copied()),
        })
    }

    /// Whether it reads what this loader hands over.
    ///
    /// # Errors
    /// [`FlatError::Handover`].
    pub fn check_handover(&self) -> Result<(), FlatError> {
        match self.handover == Some(VERSION) {
            true => Ok(()),
            false => Err(FlatError::Handover(self.handover)),
        }
    }

    /// The end of the memory that its first page tables map: there is no place for it above.
    #[must_use]
    pub fn reach(&self) -> u64 {
        END
    }

    /// Writes the image as it is loaded at any place; `memory` is as long as [`range`](Self::range), and all of it is
    /// written.
    ///
    /// # Errors
    /// None: it moves itself.
    pub fn write(&self, _: u64, memory: &mut [u8]) -> Result<(), FlatError> {
        memory.fill(0);
        // In the range, by `parse`; a caller with less memory gets less of the image.
        for (slot, byte) in memory.iter_mut().zip(self.file) {
            *slot = *byte;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const START: u64 = 0x4020_0000;

    fn file(bytes: u64, start: u64) -> Vec<u8> {
        let mut file = vec![7; 0x5000];
        file[16..24].copy_from_slice(&bytes.to_le_bytes());
        file[32..39].copy_from_slice(&MAGIC);
        file[39] = VERSION;
        file[40..48].copy_from_slice(&start.to_le_bytes());
        file[56..60].copy_from_slice(b"ARM\x64");
        file
    }

    #[test]
    fn an_image_is_written_and_the_rest_is_zero() {
        let file = file(0x6001, START);
        let image = Image::parse(&file).unwrap();
        assert_eq!(
            (image.range.clone(), image.entry),
            (START..START + 0x7000, START + 4)
        );
        assert_eq!(image.check_handover(), Ok(()));
        let mut memory = vec![1; 0x7000];
        image.write(0, &mut memory).unwrap();
        assert_eq!(memory[..0x5000], file);
        assert!(memory[0x5000..].iter().all(|byte| *byte == 0));
        let mut less = [1; 100];
        image.write(0, &mut less).unwrap();
        assert_eq!(less, file[..100]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (bytes, start) in [
            (0x4fff, START),
            (0, START),
            ((2 << 20) + 1, START),
            (u64::MAX, START),
            (0x6000, START + 4096),
            (0x6000, 4 << 30),
            (0x6000, !(STEP_BYTES - 1)),
        ] {
            let refused = Image::parse(&file(bytes, start)).unwrap_err();
            assert_eq!(refused, FlatError::Range { start, bytes });
        }
        assert!(Image::parse(&file(2 << 20, (4 << 30) - (2 << 20))).is_ok());
        let good = file(0x6000, START);
        for length in 0..64 {
            assert_eq!(
                Image::parse(&good[..length]).unwrap_err(),
                FlatError::Format
            );
        }
        let mut other = good.clone();
        other[57] = 0;
        assert_eq!(Image::parse(&other).unwrap_err(), FlatError::Format);
    }

    #[test]
    fn an_image_of_another_release_is_refused() {
        let mut file = file(0x6000, START);
        file[39] = VERSION + 1;
        let refused = Image::parse(&file).unwrap().check_handover();
        assert_eq!(refused, Err(FlatError::Handover(Some(VERSION + 1))));
        file[32] = 0;
        let refused = Image::parse(&file).unwrap().check_handover();
        assert_eq!(refused, Err(FlatError::Handover(None)));
    }
}
