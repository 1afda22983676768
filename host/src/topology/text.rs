//! Readers of small text and binary files whose content is not trusted.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{error, fmt};

/// Largest file read from sysfs or procfs; `/proc/iomem` of a machine with
/// thousands of devices stays well below.
pub(super) const MOST_BYTES: u64 = 16 << 20;
/// Most members a CPU or node list may have; Linux knows at most 8,192 CPUs.
pub(super) const MOST_MEMBERS: usize = 1 << 16;
/// Characters of a bad line an error quotes.
const QUOTED: usize = 80;

/// Why a source could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// The file or directory could not be read.
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The kernel shows the file to this user, but with every address zero.
    Hidden {
        /// Which one.
        path: PathBuf,
    },
    /// The file holds more than is sensible to read.
    TooLarge {
        /// Which one.
        path: PathBuf,
        /// Bytes, or entries, that would still have been read.
        limit: u64,
    },
    /// The content of the file is malformed.
    Malformed {
        /// Which one.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Its text, shortened.
        seen: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The source exists and has no content of use.
    Empty {
        /// Which one.
        path: PathBuf,
        /// The missing content.
        expected: &'static str,
    },
}

impl SourceError {
    pub(super) fn malformed(path: &Path, line: usize, seen: &str, expected: &'static str) -> Self {
        let mut quoted: String = seen.chars().take(QUOTED).collect();
        if quoted.len() < seen.len() {
            quoted.push('…');
        }
        Self::Malformed {
            path: path.into(),
            line,
            seen: quoted,
            expected,
        }
    }

    pub(super) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self::Unreadable {
            path: path.into(),
            error,
        }
    }

    /// Whether the file simply is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether root could read it and this user cannot.
    #[must_use]
    pub fn needs_root(&self) -> bool {
        match self {
            Self::Unreadable { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            Self::Hidden { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Hidden { path } => {
                write!(f, "{} hides addresses from ordinary users", path.display())
            }
            Self::TooLarge { path, limit } => {
                write!(
                    f,
                    "{} holds more than {limit}, too much to read",
                    path.display()
                )
            }
            Self::Malformed {
                path,
                line,
                seen,
                expected,
            } => {
                write!(
                    f,
                    "{}, line {line}: saw {seen:?}, expected {expected}",
                    path.display()
                )
            }
            Self::Empty { path, expected } => write!(f, "{} has no {expected}", path.display()),
        }
    }
}

impl error::Error for SourceError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The whole file, if it has at most `limit` bytes.
pub(super) fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, SourceError> {
    let file = File::open(path).map_err(|error| SourceError::unreadable(path, error))?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| SourceError::unreadable(path, error))?;
    if bytes.len() as u64 > limit {
        return Err(SourceError::TooLarge {
            path: path.into(),
            limit,
        });
    }
    Ok(bytes)
}

/// The whole file as text; bytes that are not UTF-8 become replacement characters.
pub(super) fn read_text(path: &Path) -> Result<String, SourceError> {
    Ok(String::from_utf8_lossy(&read_bytes(path, MOST_BYTES)?).into_owned())
}

/// A number in hexadecimal, with or without `0x`; `None` if it is none or has
/// more than 64 bits.
pub(super) fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` accepts a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Reads a file that holds one hexadecimal number.
pub(super) fn read_hexadecimal(path: &Path) -> Result<u64, SourceError> {
    let text = read_text(path)?;
    hexadecimal(text.trim()).ok_or_else(|| {
        SourceError::malformed(
            path,
            1,
            text.trim(),
            "a hexadecimal number of at most 64 bits",
        )
    })
}

/// Reads a list such as `0-3,8,10-11`, ascending as the kernel writes it.
pub(super) fn read_list(path: &Path) -> Result<Vec<u32>, SourceError> {
    let text = read_text(path)?;
    list(text.trim()).ok_or_else(|| {
        SourceError::malformed(
            path,
            1,
            text.trim(),
            "an ascending list such as 0-3,8 of at most 65536 numbers",
        )
    })
}

/// The members of a list such as `0-3,8`; `None` if it is not ascending or too long.
pub(super) fn list(text: &str) -> Option<Vec<u32>> {
    let mut members = Vec::new();
    if text.is_empty() {
        return Some(members);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (decimal(first)?, decimal(last)?);
        let count = usize::try_from(last.checked_sub(first)?)
            .ok()?
            .checked_add(1)?;
        let follows = members.last().is_none_or(|last| *last < first);
        if !follows || members.len().checked_add(count)? > MOST_MEMBERS {
            return None;
        }
        members.extend(first..=last);
    }
    Some(members)
}

fn decimal(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        let table: [(&str, Option<&[u32]>); 11] = [
            ("", Some(&[])),
            ("0", Some(&[0])),
            ("0-3,8,10-11", Some(&[0, 1, 2, 3, 8, 10, 11])),
            ("4294967295", Some(&[u32::MAX])),
            ("3-0", None),
            ("0-4294967295", None),
            ("1,1", None),
            ("0-3,2", None),
            ("+1", None),
            ("1,", None),
            ("4294967296", None),
        ];
        for (text, expected) in table {
            assert_eq!(list(text).as_deref(), expected, "{text:?}");
        }
        // As many as there may be, in one part and in two, and one more.
        for text in ["0-65535", "0-9,20-65545"] {
            assert_eq!(list(text).unwrap().len(), MOST_MEMBERS, "{text:?}");
        }
        for text in ["0-65536", "0-9,20-65546"] {
            assert_eq!(list(text), None, "{text:?}");
        }
    }

    #[test]
    fn hexadecimal_has_no_sign_and_at_most_64_bits() {
        assert_eq!(hexadecimal("0x9fbff"), Some(0x9_fbff));
        assert_eq!(hexadecimal("ffffffffffffffff"), Some(u64::MAX));
        for bad in ["", "0x", "-1", "+1", "0x10000000000000000", "12 "] {
            assert_eq!(hexadecimal(bad), None, "{bad:?}");
        }
    }
}
