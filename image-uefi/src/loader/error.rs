//! Why the image cannot be started: [`StartError`].

use alloc::string::String;
use core::fmt;

use firstlight_image_uefi::MOST_WORDS_BYTES;
use firstlight_image_uefi::confidential::Confidential;
#[cfg(target_arch = "x86_64")]
use firstlight_image_uefi::elf::ElfError as ImageError;
#[cfg(target_arch = "aarch64")]
use firstlight_image_uefi::flat::FlatError as ImageError;
use uefi::Status;

use super::processor::IMAGE;
use super::stick::WORDS;

/// Why the image cannot be started.
#[derive(Debug)]
pub(super) enum StartError {
    /// The volume that the loader came from cannot be opened.
    NoStick(Status),
    /// A file cannot be read.
    File {
        name: &'static str,
        why: String,
    },
    /// The command line is too long.
    Words {
        bytes: usize,
    },
    Image(ImageError),
    Confidential(Confidential),
    /// No 2 MiB below the end of its reach are free.
    NoPlace {
        bytes: usize,
        reach: u64,
    },
    /// Firmware refuses memory.
    Memory {
        what: &'static str,
        bytes: usize,
        status: Status,
    },
}

impl From<ImageError> for StartError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStick(status) => write!(
                f,
                "the volume that this program came from cannot be opened ({status}); start it from the stick"
            ),
            Self::File { name, why } => {
                write!(f, "{name} cannot be read: {why}; write the stick again")
            }
            Self::Words { bytes } => write!(
                f,
                "{WORDS} has words of {bytes} bytes, expected at most {MOST_WORDS_BYTES}"
            ),
            Self::Image(error) => write!(f, "{IMAGE}: {error}; write the stick again"),
            Self::Confidential(kind) => write!(
                f,
                "this is a confidential guest ({kind}): its memory cannot be used before it is \
                 accepted or marked as encrypted, which the image does not do; start an ordinary guest"
            ),
            Self::NoPlace { bytes, reach } => write!(
                f,
                "no free memory for the image: expected {bytes} bytes from a multiple of 2 MiB on, below {} GiB",
                reach >> 30
            ),
            Self::Memory {
                what,
                bytes,
                status,
            } => write!(
                f,
                "firmware has no memory for {what}, {bytes} bytes ({status})"
            ),
        }
    }
}
