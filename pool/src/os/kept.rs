//! Files of the kernel that are opened once and read whenever their figures are wanted.
//!
//! Any process may have a lock on a file that it can read, and then each close of that file waits for the process that
//! reads `/proc/locks`. A descriptor that is kept is neither opened nor closed again, and reading takes no such lock.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Most files of figures are shorter.
const FIRST_BYTES: usize = 16 << 10;

/// A file that stays open.
///
/// ```
/// use firstlight_pool::os::kept::KeptFile;
/// let file = KeptFile::open("/proc/uptime".as_ref())?;
/// let first = file.read()?;
/// std::thread::sleep(std::time::Duration::from_millis(20));
/// assert_ne!(file.read()?, first, "what the kernel says now");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct KeptFile {
    path: PathBuf,
    file: OwnedFd,
}

impl KeptFile {
    /// Opens it, for as long as the value lives.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// [`Self::open`] where there is such a file; `None` where there is none.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn open_if_there(path: &Path) -> io::Result<Option<Self>> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// What it says now, from its beginning.
    ///
    /// # Errors
    /// The operating system's refusal; it is no text.
    pub fn read(&self) -> io::Result<String> {
        let mut text = vec![0; FIRST_BYTES];
        let mut length = 0;
        loop {
            let room = text.get_mut(length..).unwrap_or_default();
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::pread(&self.file, &mut *room, length as u64)
            })?;
            if read == 0 {
                text.truncate(length);
                let wrong = |_| self.wrong("it is no text");
                return String::from_utf8(text).map_err(wrong);
            }
            length += read;
            if length == text.len() {
                text.resize(length * 2, 0);
            }
        }
    }

    /// The number that it says now.
    ///
    /// # Errors
    /// As [`KeptFile::read`]; it says something else.
    pub fn number(&self) -> io::Result<u64> {
        let text = self.read()?;
        let text = text.trim();
        let wrong = |_| self.wrong(&format!("{text:?} is no number"));
        text.parse().map_err(wrong)
    }

    /// Its descriptor, to be closed by a thread that may wait.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.file
    }

    /// That it says something that it should not.
    pub(super) fn wrong(&self, what: &str) -> io::Error {
        let text = format!("{}: {what}", self.path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_it_says_now_however_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures");
        assert!(KeptFile::open_if_there(&path).unwrap().is_none());
        fs::write(&path, "7\n").unwrap();
        let file = KeptFile::open_if_there(&path).unwrap().unwrap();
        assert_eq!(file.number().unwrap(), 7);
        for bytes in [0, FIRST_BYTES - 1, FIRST_BYTES, 5 * FIRST_BYTES] {
            let text = "x".repeat(bytes);
            fs::write(&path, &text).unwrap();
            assert_eq!(file.read().unwrap(), text);
        }
        fs::write(&path, "many").unwrap();
        let error = file.number().unwrap_err().to_string();
        assert!(error.ends_with("figures: \"many\" is no number"), "{error}");
        fs::write(&path, b"\xff").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.ends_with("it is no text"), "{error}");
    }

    #[test]
    fn long_files_of_the_kernel_are_whole() {
        let file = KeptFile::open(Path::new("/proc/self/smaps")).unwrap();
        let whole = |text: String| text.ends_with('\n') && text.contains("[stack]");
        assert!(whole(file.read().unwrap()) && whole(file.read().unwrap()));
    }
}
