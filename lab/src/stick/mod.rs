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

/// Where firmware looks on a removable medium, by its processor.
const LOADER_PATH: &str = "EFI/BOOT/BOOTX64.EFI";
const AARCH64_LOADER_PATH: &str = "EFI/BOOT/BOOTAA64.EFI";
/// Where each loader looks.
const IMAGE_PATH: &str = "firstlight/image.elf";
const AARCH64_IMAGE_PATH: &str = "firstlight/image-aarch64";
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

/// Programs for machines with one kind of processor.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'s> {
    /// The UEFI loader, an EFI application.
    pub loader: &'s Path,
    /// The image.
    pub image: &'s Path,
}

/// What is on a stick. With programs for both it starts either machine.
#[derive(Clone, Copy, Debug)]
pub struct Stick<'s> {
    /// Programs for x86-64.
    pub x86_64: Option<Programs<'s>>,
    /// Programs for aarch64.
    pub aarch64: Option<Programs<'s>>,
    /// Words of the image's command line.
    pub words: &'s str,
}

impl Stick<'_> {
    /// Writes the stick's content to the file `path`: 64 MiB, most of them a hole.
    ///
    /// # Errors
    /// [`StickError`].
    pub fn write(&self, path: &Path) -> Result<(), StickError> {
        let words = format!("{}\r\n", self.words.trim());
        let mut programs = Vec::new();
        if let Some(Programs { loader, image }) = self.x86_64 {
            programs.push((LOADER_PATH, application(loader)?));
            let expected = "our image for x86_64, an ELF program";
            programs.push((IMAGE_PATH, program(image, expected, strip::stripped)?));
        }
        if let Some(Programs { loader, image }) = self.aarch64 {
            programs.push((AARCH64_LOADER_PATH, application(loader)?));
            let expected = "our image for aarch64, which begins with the header of Linux's Image";
            let whole = |file: &[u8]| is_aarch64(file).then(|| file.to_vec());
            programs.push((AARCH64_IMAGE_PATH, program(image, expected, whole)?));
        }
        let programs = programs.iter().map(|(path, file)| (*path, file.as_slice()));
        let files: Vec<_> = programs.chain([(WORDS_PATH, words.as_bytes())]).collect();
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

/// An EFI application.
fn application(path: &Path) -> Result<Vec<u8>, StickError> {
    let is_one = |file: &[u8]| file.starts_with(b"MZ").then(|| file.to_vec());
    program(path, "an EFI application", is_one)
}

/// What `kept` leaves of a file, if it is what was `expected`.
fn program(
    path: &Path,
    expected: &'static str,
    kept: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, StickError> {
    kept(&read(path)?).ok_or_else(|| StickError::Program {
        path: path.into(),
        expected,
    })
}

/// Whether a file is the flat one for aarch64.
fn is_aarch64(file: &[u8]) -> bool {
    file.get(56..)
        .is_some_and(|rest| rest.starts_with(b"ARM\x64"))
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
