//! A log or a record in a file: [`read`] takes it whole, with a bound, and [unpacks](unpack) it.
//!
//! | begins with | unpacked by | because |
//! |---|---|---|
//! | `1f 8b` (gzip) | `flate2` with `miniz_oxide` | no C; what cargo itself uses |
//! | `fd 37 7a 58 5a 00` (xz) | `lzma-rust2` | no C, maintained, bounds the dictionary |
//! | `28 b5 2f fd` (zstd) | `ruzstd` | no C, bounds the window |

use firstlight_figures::advice::Advised;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// Largest file, as it is and unpacked.
pub const MOST_BYTES: u64 = 256 << 20;
/// Memory that unpacking xz may take, in KiB; `xz -9` needs half of it.
const MOST_XZ_KIB: u32 = 128 << 10;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says so.
    #[error("cannot read {path}: {why}", path = .0.display(), why = Advised(.1))]
    Io(PathBuf, io::Error),
    /// It is larger than [`MOST_BYTES`], as it is or unpacked.
    #[error("{0} is larger than {most} MiB (unpacked, where it is packed), too large for a log", most = MOST_BYTES >> 20)]
    TooLarge(PathBuf),
    /// It is packed, and damaged.
    #[error("cannot unpack {0}: it begins as {1} does, but {2}; expected a whole file")]
    Damaged(PathBuf, Form, io::Error),
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By gzip.
    Gzip,
    /// By xz.
    Xz,
    /// By zstd.
    Zstd,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        })
    }
}

impl Form {
    /// What `content` is packed as, by its first bytes.
    #[must_use]
    pub fn of(content: &[u8]) -> Option<Self> {
        match content {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// What is in the file at `path`, unpacked.
///
/// # Errors
/// [`FileError`].
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = File::open(path).map_err(|error| FileError::Io(path.to_owned(), error))?;
    read_from(file, path)
}

/// What `source` holds, unpacked; errors call it `name`.
///
/// # Errors
/// [`FileError`].
pub fn read_from(source: impl Read, name: &Path) -> Result<Vec<u8>, FileError> {
    let too_large = || FileError::TooLarge(name.to_owned());
    let content = bounded(source).map_err(|error| FileError::Io(name.to_owned(), error))?;
    let content = content.ok_or_else(too_large)?;
    let Some(form) = Form::of(&content) else {
        return Ok(content);
    };
    let unpacked = unpack(&content, form);
    let unpacked = unpacked.map_err(|error| FileError::Damaged(name.to_owned(), form, error))?;
    unpacked.ok_or_else(too_large)
}

/// What `content` is without its packing; `None` if that is more than [`MOST_BYTES`].
///
/// # Errors
/// It is damaged.
///
/// ```
/// use firstlight_lab::file::{Form, unpack};
/// let empty = b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00";
/// assert_eq!(unpack(empty, Form::Zstd).unwrap(), Some(Vec::new()));
/// assert!(unpack(&empty[..7], Form::Zstd).is_err());
/// ```
pub fn unpack(content: &[u8], form: Form) -> io::Result<Option<Vec<u8>>> {
    match form {
        Form::Gzip => bounded(flate2::read::MultiGzDecoder::new(content)),
        Form::Xz => bounded(lzma_rust2::XzReader::new_mem_limit(
            content,
            true,
            MOST_XZ_KIB,
        )),
        Form::Zstd => bounded(Zstd {
            rest: content,
            frame: None,
        }),
    }
}

/// All of `source`; `None` if that is more than [`MOST_BYTES`].
fn bounded(source: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    source.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= MOST_BYTES).then_some(content))
}

/// The frames of a zstd file, one after the other.
struct Zstd<'c> {
    rest: &'c [u8],
    frame: Option<StreamingDecoder<&'c [u8], ruzstd::decoding::FrameDecoder>>,
}

impl Read for Zstd<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.rest = frame.get_ref();
                self.frame = None;
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            match StreamingDecoder::new(self.rest) {
                Ok(frame) => self.frame = Some(frame),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    // Magic number and length stand before it.
                    let skipped = usize::try_from(length).ok().and_then(|n| n.checked_add(8));
                    let rest = skipped.and_then(|skipped| self.rest.get(skipped..));
                    self.rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}
