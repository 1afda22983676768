//! Slabs of an earlier daemon that its service manager kept: clean ones, and allocated ones.

use super::Files;
use super::key::Key;
use super::recover;
use super::slab::{Slab, SlabId};
use crate::os::memory_file;
use std::io;
use std::os::fd::OwnedFd;

impl Files {
    /// A clean file without a name, if it is what it should be: never allocated, complete, and
    /// held by no other process. Any other is let go of.
    pub fn adopt_clean(&mut self, id: SlabId, key: Key, file: OwnedFd) -> bool {
        let slab = Slab::memfd(id, key.page, key.bytes, file);
        if memory_file::is_sealed(&slab).unwrap_or(true) {
            // Allocated, and the manager was not told or did not hear: its client
            // goes on. Without one, its memory goes with the file.
            slab.leave();
            return false;
        }
        let known_clean = || -> io::Result<bool> {
            Ok(slab.length()? == key.bytes
                && slab.held_bytes()? == key.bytes
                && is_of(&key, &slab.file())
                && slab.is_ours_alone()?)
        };
        if known_clean().unwrap_or(false) {
            self.insert(slab);
            return true;
        }
        // Whatever it is, it is none of ours any more.
        let _ = slab.discard();
        false
    }

    /// The clean slab in a mount, and its class.
    ///
    /// # Errors
    /// Why there is none, or it is not known to be clean.
    pub fn adopt_mount(&mut self, id: SlabId, folder: OwnedFd) -> io::Result<Key> {
        let (key, slab) = recover::recover(folder, id)?;
        self.insert(slab);
        Ok(key)
    }

    /// A slab that an earlier daemon allocated, in a file that is [of its class](is_of).
    pub fn adopt_allocated(&mut self, id: SlabId, key: Key, bytes: u64, file: OwnedFd) {
        self.insert(Slab::allocated(id, key, bytes, file));
    }
}

/// Whether a file has the pages of a class.
#[must_use]
pub fn is_of(key: &Key, file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| u64::try_from(stat.f_bsize) == Ok(key.block_bytes()))
}
