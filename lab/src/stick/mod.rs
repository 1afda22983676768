//! A stick that starts our image on a machine whose firmware is UEFI: [`Stick`] writes the file
//! that is copied onto one, [`result`] reads what a run left there.
//!
//! | file | concept |
//! |---|---|
//! | `disk` | partition table and FAT32, without root and without mounting |
//! | `volume` | what FAT32 that a guest may have rewritten must keep to before it is read |
//! | `strip` | the image without what only debuggers read |

mod disk;
mod strip;
mod volume;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where firmware looks on a removable medium.
const LOADER_PATH: &str = "EFI/BOOT/BOOTX64.EFI";
const IMAGE_PATH: &str = "firstlight/image.elf";
const WORDS_PATH: &str = "firstlight/cmdline.txt";
const RESULT_PATH: &str = "firstlight/result.jsonl";

/// Why a stick cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StickError {
    /// A file of the host.
    #[error("cannot {what} {path}: {error}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The loader, or the image, is none.
    #[error("{path}: expected {expected}")]
    Program {
        /// Which file.
        path: PathBuf,
        /// What was expected of it.
        expected: &'static str,
    },
    /// The file system of the stick.
    #[error(
        "{path}: expected a partition with FAT on it, as `firstlight stick` writes it: {error}"
    )]
    FileSystem {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// What is on a stick.
#[derive(Clone, Copy, Debug)]
pub struct Stick<'s> {
    /// The UEFI loader, an EFI application.
    pub loader: &'s Path,
    /// The image.
    pub image: &'s Path,
    /// Words of the image's command line.
    pub words: &'s str,
}

impl Stick<'_> {
    /// Writes the stick's content to the file `path`: 64 MiB, most of them a hole.
    ///
    /// # Errors
    /// [`StickError`].
    pub fn write(&self, path: &Path) -> Result<(), StickError> {
        let loader = read(self.loader)?;
        if !loader.starts_with(b"MZ") {
            return Err(StickError::Program {
                path: self.loader.into(),
                expected: "an EFI application",
            });
        }
        let image = read(self.image)?;
        let image = strip::stripped(&image).ok_or_else(|| StickError::Program {
            path: self.image.into(),
            expected: "our image for x86_64, an ELF program",
        })?;
        let words = format!("{}\r\n", self.words.trim());
        let files = [
            (LOADER_PATH, loader.as_slice()),
            (IMAGE_PATH, &image),
            (WORDS_PATH, words.as_bytes()),
        ];
        let disk = disk::made(&files).map_err(|error| StickError::FileSystem {
            path: path.into(),
            error,
        })?;
        disk::save(&disk, path).map_err(|error| StickError::Host {
            what: "write",
            path: path.into(),
            error,
        })
    }
}

/// The result that a run left on the stick whose content is in the file `path`, if there is one.
///
/// # Errors
/// [`StickError`] if the file is no stick.
pub fn result(path: &Path) -> Result<Option<Vec<u8>>, StickError> {
    let disk = read(path)?;
    disk::file(disk, RESULT_PATH).map_err(|error| StickError::FileSystem {
        path: path.into(),
        error,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, StickError> {
    let whole = || {
        let file = File::open(path)?;
        let most = disk::DISK_BYTES as u64 + disk::MOST_READ_BYTES;
        if !file.metadata()?.is_file() || file.metadata()?.len() > most {
            let why = "it is no regular file, or too large to be one of ours";
            return Err(io::Error::other(why));
        }
        std::fs::read(path)
    };
    whole().map_err(|error| StickError::Host {
        what: "read",
        path: path.into(),
        error,
    })
}
