//! Huge pages the kernel sets aside: how many there are, and more for a while.
//!
//! [`counts`] reads what the kernel says of one page size, on the machine or on
//! one node. [`SetAside`] raises the number for a test or a measurement and
//! puts the old number back when dropped; a file lock keeps two of them, in
//! whichever process, from undoing each other's work.

use super::kept::KeptFile;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where the kernel shows its folders.
pub const SYS: &str = "/sys";

/// The kernel's number for their file system.
pub(crate) const HUGETLBFS: u64 = 0x9584_58f6;

/// Huge pages of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Set aside, used or not.
    pub total_pages: u64,
    /// Of these, free ones.
    pub free_pages: u64,
    /// Of the free ones, promised to a mapping or a mount; zero for a node,
    /// where the kernel does not say.
    pub promised_pages: u64,
}

impl Counts {
    /// Free pages that are promised to no one.
    #[must_use]
    pub fn available_pages(&self) -> u64 {
        self.free_pages.saturating_sub(self.promised_pages)
    }
}

fn folder(sys: &Path, page_bytes: u64, node: Option<u32>) -> PathBuf {
    let size = format!("hugepages-{}kB", page_bytes >> 10);
    match node {
        None => sys.join("kernel/mm/hugepages").join(size),
        Some(node) => {
            let node = format!("devices/system/node/node{node}/hugepages");
            sys.join(node).join(size)
        }
    }
}

/// The file whose number sets such pages aside.
#[must_use]
pub fn setting(sys: &Path, page_bytes: u64, node: Option<u32>) -> PathBuf {
    folder(sys, page_bytes, node).join("nr_hugepages")
}

/// Whether the machine has such pages, or such a node has them.
#[must_use]
pub fn exist(sys: &Path, page_bytes: u64, node: Option<u32>) -> bool {
    folder(sys, page_bytes, node).is_dir()
}

/// The files with the counts of one page size, kept open.
#[derive(Debug)]
pub struct KeptCounts {
    total: KeptFile,
    free: KeptFile,
    /// A node has no such file.
    promised: Option<KeptFile>,
}

impl KeptCounts {
    /// Opens those in `sys`; `None` where the machine has no such pages, or no such node.
    ///
    /// # Errors
    /// Files that are there and cannot be opened.
    pub fn open(sys: &Path, page_bytes: u64, node: Option<u32>) -> io::Result<Option<Self>> {
        if !exist(sys, page_bytes, node) {
            return Ok(None);
        }
        let folder = folder(sys, page_bytes, node);
        Ok(Some(Self {
            total: KeptFile::open(&folder.join("nr_hugepages"))?,
            free: KeptFile::open(&folder.join("free_hugepages"))?,
            promised: KeptFile::open_if_there(&folder.join("resv_hugepages"))?,
        }))
    }

    /// What the kernel says now.
    ///
    /// # Errors
    /// Files that cannot be read, or make no sense.
    pub fn counts(&self) -> io::Result<Counts> {
        let promised = self.promised.as_ref();
        Ok(Counts {
            total_pages: self.total.number()?,
            free_pages: self.free.number()?,
            promised_pages: promised.map_or(Ok(0), KeptFile::number)?,
        })
    }
}

/// What `sys` says of huge pages of `page_bytes`; `None` where the machine has
/// no such pages, or no such node.
///
/// # Errors
/// Files that are there and cannot be read, or make no sense.
pub fn counts(sys: &Path, page_bytes: u64, node: Option<u32>) -> io::Result<Option<Counts>> {
    let kept = KeptCounts::open(sys, page_bytes, node)?;
    kept.map(|kept| kept.counts()).transpose()
}

/// Whether the machine has this node.
#[must_use]
pub fn node_exists(sys: &Path, node: u32) -> bool {
    sys.join(format!("devices/system/node/node{node}")).is_dir()
}

/// Huge pages set aside until this value is dropped.
#[derive(Debug)]
pub struct SetAside {
    file: PathBuf,
    /// Without surplus pages: those are used still, and go when they are free.
    before_pages: u64,
    /// Held while the value lives.
    _lock: OwnedFd,
}

impl SetAside {
    /// At least `pages` free huge pages of `page_bytes`; waits while another
    /// process on this machine holds some.
    ///
    /// # Errors
    /// No root, no such pages, or not enough memory in one piece; what was
    /// raised is put back.
    pub fn new(page_bytes: u64, pages: u64) -> io::Result<Self> {
        let sys = Path::new(SYS);
        let missing = || {
            let text = format!("this machine has no huge pages of {page_bytes} bytes");
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let file = setting(sys, page_bytes, None);
        if !file.exists() {
            return Err(missing());
        }
        let lock = lock(&file)?;
        let seen = counts(sys, page_bytes, None)?.ok_or_else(missing)?;
        let wanted = seen.total_pages + pages.saturating_sub(seen.available_pages());
        let set_aside = Self {
            before_pages: persistent(&file)?,
            file,
            _lock: lock,
        };
        fs::write(&set_aside.file, wanted.to_string())?;
        let got = KeptFile::open(&set_aside.file)?.number()?;
        if got < wanted {
            // Dropping `set_aside` puts the old number back.
            let text = format!(
                "{wanted} huge pages of {page_bytes} bytes needed, the kernel found room for {got}"
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        Ok(set_aside)
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        // No caller is left to hear of it; the pages stay set aside.
        let _ = fs::write(&self.file, self.before_pages.to_string());
    }
}

/// The pages of `nr_hugepages` that are no surplus. Surplus pages may go at any time, which changes both numbers.
fn persistent(total: &Path) -> io::Result<u64> {
    let surplus = KeptFile::open(&total.with_file_name("surplus_hugepages"))?;
    let total = KeptFile::open(total)?;
    loop {
        let before = surplus.number()?;
        let pages = total.number()?;
        if surplus.number()? == before {
            return Ok(pages.saturating_sub(before));
        }
    }
}

/// An exclusive lock on the kernel's file itself; waits for it. So every process that
/// changes the number meets there, whatever folders they see, and no other process can
/// lay something in the lock's place.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, MemfdFlags};

    #[test]
    fn reads_machine_and_node_and_knows_what_is_missing() {
        let sys = tempfile::tempdir().unwrap();
        let machine = folder(sys.path(), 2 << 20, None);
        let node = folder(sys.path(), 2 << 20, Some(1));
        assert!(machine.ends_with("kernel/mm/hugepages/hugepages-2048kB"));
        fs::create_dir_all(&machine).unwrap();
        fs::create_dir_all(&node).unwrap();
        for (path, text) in [
            (machine.join("nr_hugepages"), "7\n"),
            (machine.join("free_hugepages"), "5\n"),
            (machine.join("resv_hugepages"), "2\n"),
            (node.join("nr_hugepages"), "3\n"),
            (node.join("free_hugepages"), "1\n"),
        ] {
            fs::write(path, text).unwrap();
        }
        let seen = |node| counts(sys.path(), 2 << 20, node).unwrap();
        let counts = |total_pages, free_pages, promised_pages| {
            Some(Counts {
                total_pages,
                free_pages,
                promised_pages,
            })
        };
        assert_eq!(seen(None), counts(7, 5, 2));
        assert_eq!(seen(Some(1)), counts(3, 1, 0));
        assert_eq!(seen(Some(0)), None);
        assert!(node_exists(sys.path(), 1) && !node_exists(sys.path(), 0));
        fs::write(machine.join("free_hugepages"), "many").unwrap();
        let error = super::counts(sys.path(), 2 << 20, None).unwrap_err();
        assert!(error.to_string().contains("\"many\" is no number"));
    }

    #[test]
    fn pages_set_aside_are_there_and_go_back() {
        let seen = || counts(Path::new(SYS), 2 << 20, None).unwrap();
        match SetAside::new(2 << 20, 4) {
            Ok(set_aside) => {
                assert!(seen().unwrap().free_pages >= 4);
                let before = set_aside.before_pages;
                drop(set_aside);
                let again = SetAside::new(2 << 20, 0).unwrap();
                assert_eq!(again.before_pages, before);
            }
            Err(error) => crate::os::need::skip("hugepages", error),
        }
    }

    /// They are surplus pages then, which the next one that sets pages aside sees in the total.
    #[test]
    fn pages_that_are_used_after_they_went_back_are_not_set_aside_for_good() {
        let set_aside = match SetAside::new(2 << 20, 4) {
            Ok(set_aside) => set_aside,
            Err(error) => return crate::os::need::skip("hugepages", error),
        };
        let before = set_aside.before_pages;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let used = rustix::fs::memfd_create("used", flags).unwrap();
        rustix::fs::fallocate(&used, FallocateFlags::empty(), 0, 8 << 20).unwrap();
        drop(set_aside);
        drop(SetAside::new(2 << 20, 4).unwrap());
        drop(used);
        assert_eq!(SetAside::new(2 << 20, 0).unwrap().before_pages, before);
    }
}
