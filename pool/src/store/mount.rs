//! A mount of the daemon's own: hugetlbfs for reserved huge pages, tmpfs with
//! `huge=always` for transparent ones.
//!
//! It lies in the daemon's folder, which nobody else may enter. One that is
//! there already, left by a daemon that was killed, is taken over with its files.

use super::error::StoreError;
use crate::protocol::PageSize;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatFs};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The kernel's numbers for the two file systems.
const HUGETLBFS: u64 = 0x9584_58f6;
const TMPFS: u64 = 0x0102_1994;

/// Bytes a mount may hold: more than any machine has, so that the kernel keeps
/// count of pages without ever refusing one.
const SIZE: &str = "size=1024T";

/// A folder of memory files.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    folder: OwnedFd,
    page: PageSize,
}

impl Mount {
    /// The mount for `page` in `directory`, made where it is missing.
    ///
    /// # Errors
    /// Not allowed, no such page size, or something else lies there.
    pub fn open_or_make(directory: &Path, page: PageSize) -> Result<Self, StoreError> {
        let path = directory.join(page.word());
        let failed = |what: &'static str| {
            let path = path.clone();
            move |error: io::Error| StoreError::Mount { what, path, error }
        };
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => done.map_err(failed("make the folder"))?,
        }
        if !is_mount(&path, page).map_err(failed("look at"))? {
            make(&path, page).map_err(failed("mount huge pages at"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(io::Error::from)
            .map_err(failed("open"))?;
        let mount = Self { path, folder, page };
        mount.is_private()?;
        Ok(mount)
    }

    /// Whether an earlier daemon left one.
    pub(super) fn is_left(directory: &Path, page: PageSize) -> bool {
        is_mount(&directory.join(page.word()), page).unwrap_or(false)
    }

    /// Nobody else may enter it: names in it are trusted.
    fn is_private(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::Mount {
            what: "look at",
            path: self.path.clone(),
            error,
        };
        let stat = rustix::fs::fstat(&self.folder).map_err(|error| failed(error.into()))?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && stat.st_mode & 0o077 == 0 {
            return Ok(());
        }
        let text = "others may enter it; unmount it, the daemon makes its own";
        Err(failed(io::Error::other(text)))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What backs its files.
    #[must_use]
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// A new file.
    pub(super) fn create(&self, name: &str, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::openat(&self.folder, name, flags, mode)?)
    }

    /// A file that is there.
    pub(super) fn open(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.folder,
            name,
            flags,
            Mode::empty(),
        )?)
    }

    /// Takes a name away; a name that is gone already is none to complain of.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// All names in it.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Bytes of pages its files hold, those pinned by somebody after their file
    /// was emptied among them; `None` where the kernel keeps no count.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn used_bytes(&self) -> io::Result<Option<u64>> {
        let stat: StatFs = rustix::fs::fstatfs(&self.folder)?;
        let used = stat.f_blocks.checked_sub(stat.f_bfree);
        let block = u64::try_from(stat.f_bsize).unwrap_or(0);
        Ok(used
            .filter(|_| stat.f_blocks > 0)
            .map(|used| used.saturating_mul(block)))
    }

    /// Takes the mount away; files that somebody still holds live on without it.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn unmount(&self) -> io::Result<()> {
        Ok(rustix::mount::unmount(&self.path, UnmountFlags::DETACH)?)
    }
}

/// Whether `path` is a mount with such pages.
fn is_mount(path: &Path, page: PageSize) -> io::Result<bool> {
    let (here, above) = (
        rustix::fs::statfs(path)?,
        rustix::fs::stat(path.join(".."))?,
    );
    if rustix::fs::stat(path)?.st_dev == above.st_dev {
        return Ok(false);
    }
    let kind = match page {
        PageSize::Huge | PageSize::Giant => HUGETLBFS,
        PageSize::Transparent => TMPFS,
    };
    let same_pages = page == PageSize::Transparent
        || u64::try_from(here.f_bsize).is_ok_and(|bytes| bytes == page.bytes());
    if u64::try_from(here.f_type).is_ok_and(|seen| seen == kind) && same_pages {
        return Ok(true);
    }
    Err(io::Error::other(
        "another file system is mounted there; unmount it",
    ))
}

fn make(path: &Path, page: PageSize) -> io::Result<()> {
    let (kind, options) = match page {
        PageSize::Huge => ("hugetlbfs", "pagesize=2M,"),
        PageSize::Giant => ("hugetlbfs", "pagesize=1G,"),
        PageSize::Transparent => ("tmpfs", "huge=always,"),
    };
    let options = CString::new(format!("{options}{SIZE},mode=0700"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount(
        "firstlight",
        path,
        kind,
        flags,
        options.as_c_str(),
    )?)
}
