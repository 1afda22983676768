//! A slab: one file of zeroed memory, and the mark on it that never comes off.
//!
//! A slab that was allocated must never be allocated again, whatever becomes of the
//! daemon. So the mark is on the inode, and it is set before a descriptor
//! leaves ([`Slab::allocate`]):
//!
//! - a file of a mount changes its mode and loses its name: nothing can give an
//!   inode without a name one again, and a daemon that starts sees names only;
//! - a file without a name is sealed, which cannot be undone, and against growth,
//!   so that a process that keeps a descriptor cannot make it larger by asking for it.
//!
//! [`super::recover`] is the other side: what counts as clean after a crash.

use super::key::Key;
use super::mount::{self, Mount};
use crate::os::memory_file;
use crate::protocol::PageSize;
use rustix::fs::Mode;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Modes of a slab's inode in a mount.
pub(super) mod mode {
    /// Being filled: worthless after a crash.
    pub(in super::super) const FILLING: u32 = 0o200;
    /// Filled by the kernel, never allocated.
    pub(in super::super) const CLEAN: u32 = 0o600;
    /// Allocated, or about to be. A process that holds a descriptor may open it again by the
    /// descriptor's name, as VMMs do; no other can.
    pub(in super::super) const ALLOCATED: u32 = 0o666;
}

/// A slab's number, unique in the life of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabId(pub u64);

impl fmt::Display for SlabId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slab {}", self.0)
    }
}

/// Where a slab's file is found again.
#[derive(Debug)]
enum Home {
    /// Under this name in a mount of its own.
    Named(Mount, String),
    /// In a mount, without a name any more.
    Unnamed,
    /// It never had a name.
    Memfd,
}

/// One file of memory.
#[derive(Debug)]
pub struct Slab {
    id: SlabId,
    page: PageSize,
    bytes: u64,
    file: Arc<OwnedFd>,
    home: Home,
}

impl Slab {
    /// A file under a name in a mount.
    pub(super) fn named(
        id: SlabId,
        page: PageSize,
        bytes: u64,
        file: OwnedFd,
        at: (Mount, String),
    ) -> Self {
        Self {
            id,
            page,
            bytes,
            file: Arc::new(file),
            home: Home::Named(at.0, at.1),
        }
    }

    /// A file of a mount that has no name.
    pub(super) fn unnamed(id: SlabId, page: PageSize, bytes: u64, file: OwnedFd) -> Self {
        Self {
            id,
            page,
            bytes,
            file: Arc::new(file),
            home: Home::Unnamed,
        }
    }

    /// A file that an earlier daemon allocated.
    pub(super) fn allocated(id: SlabId, key: Key, bytes: u64, file: OwnedFd) -> Self {
        // Of a mount's none is sealed so.
        if memory_file::is_sealed_against_growth(&file) {
            return Self::memfd(id, key.page, bytes, file);
        }
        Self::unnamed(id, key.page, bytes, file)
    }

    /// A file that never had a name. Where the daemon can have no opening of its own, it counts as
    /// held by others.
    pub(super) fn memfd(id: SlabId, page: PageSize, bytes: u64, file: OwnedFd) -> Self {
        let file = memory_file::own_opening(&file).unwrap_or(file);
        Self {
            id,
            page,
            bytes,
            file: Arc::new(file),
            home: Home::Memfd,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> SlabId {
        self.id
    }

    /// What backs it.
    #[must_use]
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, for a worker that fills or empties it meanwhile.
    #[must_use]
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.file)
    }

    /// What a service manager keeps over a restart of a clean one: its mount, or the file where that never had a name.
    #[must_use]
    pub fn kept(&self) -> Option<Arc<OwnedFd>> {
        match &self.home {
            Home::Named(mount, _) => Some(mount.folder()),
            Home::Memfd => Some(self.file()),
            Home::Unnamed => None,
        }
    }

    /// Says on the inode that the kernel has filled it.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn mark_clean(&self) -> io::Result<()> {
        if let Home::Named(..) = self.home {
            self.chmod(mode::CLEAN)?;
        }
        Ok(())
    }

    /// Makes the file longer; the new part has no pages yet.
    ///
    /// # Errors
    /// The operating system's refusal: the slab is not clean any more all the same.
    pub fn grow(&mut self, bytes: u64) -> io::Result<()> {
        if let Home::Named(..) = self.home {
            // Not whole until the new part is filled.
            self.chmod(mode::FILLING)?;
        }
        self.bytes = bytes;
        memory_file::set_length(&self.file, bytes)
    }

    /// Marks the inode as allocated, for good, and opens the descriptor that may
    /// then leave. After an error the slab must not be used for anything.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn allocate(&mut self) -> io::Result<OwnedFd> {
        match &self.home {
            Home::Named(mount, name) => {
                self.chmod(mode::ALLOCATED)?;
                mount.remove(name)?;
                self.home = Home::Unnamed;
            }
            Home::Memfd => {
                let sealed = memory_file::seal_against_growth(&self.file);
                if sealed.is_err() && memory_file::is_sealed(&self.file)? {
                    // It was closed to others when it came back.
                    self.chmod(mode::ALLOCATED)?;
                } else {
                    sealed?;
                }
            }
            Home::Unnamed => self.chmod(mode::ALLOCATED)?,
        }
        memory_file::reopen(&self.file)
    }

    /// Bytes that its mount counts: of pages in it, and pinned or reserved.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn used_bytes(&self) -> io::Result<u64> {
        match mount::used_bytes(&self.file)? {
            Some(bytes) => Ok(bytes),
            None => self.held_bytes(),
        }
    }

    /// Whether the daemon alone can reach the file, by descriptor
    /// or by mapping.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn is_ours_alone(&self) -> io::Result<bool> {
        memory_file::has_no_other_holder(&self.file)
    }

    /// Bytes of pages in the file now.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn held_bytes(&self) -> io::Result<u64> {
        memory_file::held_bytes(&self.file)
    }

    /// Length of the file now: a mapping of hugetlbfs can make it grow.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn length(&self) -> io::Result<u64> {
        memory_file::length(&self.file)
    }

    /// Gives the memory back to the kernel and forgets the file.
    ///
    /// # Errors
    /// The operating system's refusal to empty it; the name is gone all the same.
    pub fn discard(self) -> io::Result<()> {
        if let Home::Named(mount, name) = &self.home {
            mount.remove(name)?;
        }
        memory_file::set_length(&self.file, 0)
    }

    /// Leaves the file where it is, for the next daemon.
    pub fn leave(self) {}

    fn chmod(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }
}

impl AsFd for Slab {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
