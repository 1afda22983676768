//! A slab's mount: hugetlbfs for reserved huge pages, tmpfs with `huge=always` for transparent ones.
//!
//! Each slab has one of its own, since the kernel counts the pages of a mount, not whose they are: what it counts
//! besides those in the file is pinned of this slab, and what one client makes it count is on no other's account.
//!
//! It is in no folder: no other process sees it among its mounts (libvirt makes
//! a folder of its own in each hugetlbfs it sees), or can enter it. It lives as long as the
//! daemon, a client of its file, or the service manager has it open; the manager
//! hands a clean slab's to the next daemon, with its file.

use super::error::StoreError;
use crate::os::hugepages::HUGETLBFS;
use crate::protocol::PageSize;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The kernel's number for the other file system.
const TMPFS: u64 = 0x0102_1994;

/// A folder for the file of a slab.
#[derive(Debug)]
pub struct Mount {
    folder: Arc<OwnedFd>,
    page: PageSize,
}

impl Mount {
    /// A new one that holds at most `bytes`.
    ///
    /// # Errors
    /// Not allowed, or no such page size.
    pub(crate) fn new(page: PageSize, bytes: u64) -> Result<Self, StoreError> {
        let failed = |error| StoreError::mount(page, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = make(page, bytes)
            .and_then(|mount| rustix::fs::openat(mount, ".", flags, Mode::empty()));
        let folder = folder.map_err(|error| failed(error.into()))?;
        Ok(Self {
            folder: Arc::new(folder),
            page,
        })
    }

    /// One of an earlier daemon.
    ///
    /// # Errors
    /// It is not what it should be.
    pub(super) fn adopt(folder: OwnedFd) -> io::Result<Self> {
        let page = pages_of(&folder)?;
        let mount = Self {
            folder: Arc::new(folder),
            page,
        };
        mount.is_private()?;
        Ok(mount)
    }

    /// For the service manager to keep.
    pub(super) fn folder(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.folder)
    }

    /// No other user may enter it: names in it are trusted.
    fn is_private(&self) -> io::Result<()> {
        let stat = rustix::fs::fstat(&self.folder)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if ours && stat.st_mode & 0o077 == 0 {
            return Ok(());
        }
        Err(io::Error::other("other users may enter it"))
    }

    /// What backs its files.
    #[must_use]
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// A new file.
    pub(crate) fn create(&self, name: &str, mode: u32) -> io::Result<OwnedFd> {
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
}

/// What backs the files of a mount.
fn pages_of(folder: &OwnedFd) -> io::Result<PageSize> {
    let stat = rustix::fs::fstatfs(folder)?;
    let [kind, block] =
        [stat.f_type, stat.f_bsize].map(|number| u64::try_from(number).unwrap_or(0));
    let is_reserved = |page: &PageSize| kind == HUGETLBFS && block == page.bytes();
    let reserved = [PageSize::Huge, PageSize::Giant]
        .into_iter()
        .find(is_reserved);
    let page = reserved.or((kind == TMPFS).then_some(PageSize::Transparent));
    page.ok_or_else(|| io::Error::other("it is another file system"))
}

/// Bytes that the mount of a file counts as used: pages in the file, pages that a process pinned before the file was
/// emptied, pages that are reserved. `None` for a file in no such mount.
///
/// # Errors
/// The operating system's refusal.
pub(super) fn used_bytes(file: &OwnedFd) -> io::Result<Option<u64>> {
    let stat = rustix::fs::fstatfs(file)?;
    let used = stat.f_blocks.checked_sub(stat.f_bfree);
    let block = u64::try_from(stat.f_bsize).unwrap_or(0);
    let used = used.filter(|_| stat.f_blocks > 0);
    Ok(used.map(|used| used.saturating_mul(block)))
}

/// A mount in no folder.
fn make(page: PageSize, bytes: u64) -> rustix::io::Result<OwnedFd> {
    let (kind, option, value) = match page {
        PageSize::Huge => ("hugetlbfs", "pagesize", "2M"),
        PageSize::Giant => ("hugetlbfs", "pagesize", "1G"),
        PageSize::Transparent => ("tmpfs", "huge", "always"),
    };
    let system = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |name, value: &str| rustix::mount::fsconfig_set_string(&system, name, value);
    set("source", "firstlight")?;
    set(option, value)?;
    set("size", &bytes.to_string())?;
    set("mode", "0700")?;
    if page == PageSize::Transparent {
        // Zeroed memory on a swap device would be read back while a guest starts. Linux
        // before 6.4 has no such option, and takes the memory for what it is.
        let _ = rustix::mount::fsconfig_set_flag(&system, "noswap");
        // Attributes that clients set on a file count as inodes: no limit that they could use up.
        set("nr_inodes", "0")?;
    }
    rustix::mount::fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::StatVfsMountFlags;

    #[test]
    fn no_other_process_sees_it_and_nothing_in_it_can_be_run() {
        let pages = [PageSize::Transparent, PageSize::Huge];
        for page in pages {
            let mount = match Mount::new(page, 4 << 20) {
                Ok(mount) => mount,
                Err(error) if !rustix::process::geteuid().is_root() => {
                    crate::os::need::skip("root", error);
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains("firstlight"), "{mounts}");
            let flags = rustix::fs::fstatvfs(&mount.folder).unwrap().f_flag;
            let expected =
                StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV | StatVfsMountFlags::NOEXEC;
            assert!(flags.contains(expected), "{flags:?}");
            let stat = rustix::fs::fstatfs(&mount.folder).unwrap();
            assert_eq!(
                stat.f_blocks * u64::try_from(stat.f_bsize).unwrap(),
                4 << 20
            );
            let again = Mount::adopt(mount.folder.try_clone().unwrap()).unwrap();
            assert_eq!(again.page(), page);
            assert_eq!(again.names().unwrap(), Vec::<String>::new());
            let seen = attached(make(page, 4 << 20).unwrap());
            assert!(seen.contains("nosuid,nodev,noexec"), "{seen}");
            // Linux 6.4 and later.
            let probe = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            let has_it = rustix::mount::fsconfig_set_flag(&probe, "noswap").is_ok();
            let is_expected = has_it && page == PageSize::Transparent;
            assert_eq!(seen.contains(",noswap"), is_expected, "{seen}");
            let has_no_limit = seen.contains(",nr_inodes=0");
            assert_eq!(has_no_limit, page == PageSize::Transparent, "{seen}");
        }
    }

    /// What the kernel says of a mount while it is in a folder.
    fn attached(mount: OwnedFd) -> String {
        let place = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        let here = rustix::fs::CWD;
        rustix::mount::move_mount(mount, "", here, place.path(), flags).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(place.path(), flags).unwrap();
        let name = format!(" {} ", place.path().display());
        let mut lines = mounts.lines().filter(|line| line.contains(&name));
        lines.next().unwrap().into()
    }

    #[test]
    fn what_is_no_such_mount_is_not_taken_over() {
        let other = std::fs::File::open("/proc").unwrap();
        let error = Mount::adopt(other.into()).unwrap_err();
        assert!(error.to_string().contains("another file system"), "{error}");
        let Ok(mount) = Mount::new(PageSize::Transparent, 1 << 20) else {
            crate::os::need::skip("root", "only root may mount");
            return;
        };
        rustix::fs::fchmod(&mount.folder, Mode::from_raw_mode(0o755)).unwrap();
        let error = Mount::adopt(mount.folder.try_clone().unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("other users may enter"),
            "{error}"
        );
    }
}
