//! The files of slabs, by their numbers, and where they come from.
//!
//! What becomes of a slab is decided in [`crate::machine`]; here are its file, the mark on it
//! that outlives the daemon, and what of an earlier daemon's files is known to be clean. What
//! takes time (filling, emptying, zeroing in place) is work of [`crate::fill`].
//!
//! - [`slab`]: one file and the mark on it; `adopt.rs`: those that a service manager kept;
//! - [`mount`], `sources.rs`: where files come from; `room.rs`: whether there is memory for one;
//! - [`recover`]: what is clean after a crash.

pub mod adopt;
mod error;
mod key;
pub mod mount;
pub mod recover;
mod room;
pub mod slab;
mod sources;
#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use key::Key;
pub(crate) use sources::make_passable;
pub use sources::{Prepared, available};

use crate::machine::Spec;
use crate::os::cgroup_memory::Limits;
use crate::os::memory_file;
use crate::protocol::PageSize;
use room::Room;
use slab::{Slab, SlabId};
use sources::Sources;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

/// What there was when the daemon started.
#[derive(Debug, Default)]
pub struct Found {
    /// Slabs that are known to be clean.
    pub clean: Vec<(SlabId, Key)>,
    /// Files emptied, and why.
    pub emptied: Vec<(String, &'static str)>,
    /// The classes, with the sources of their files.
    pub specs: Vec<Spec>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// The files of all slabs.
#[derive(Debug)]
pub struct Files {
    sources: Sources,
    room: Room,
    slabs: BTreeMap<SlabId, Slab>,
    /// Every file in a mount whose pages may be other ones now, whichever client has its slab.
    moving: BTreeMap<SlabId, Weak<OwnedFd>>,
    /// Bytes of all others in mounts: slabs that are clean.
    still_bytes: u64,
}

impl Files {
    /// How many slabs have a file here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slabs.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// Takes the folder over, and of `mounts` of an earlier daemon what is known to be clean;
    /// `None` where nothing keeps mounts when the daemon ends.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        directory: &Path,
        specs: &[Spec],
        mounts: Option<Vec<(PageSize, OwnedFd)>>,
    ) -> Result<(Self, Found), StoreError> {
        let mut files = Self {
            sources: Sources::open(directory, mounts)?,
            room: Room::of_machine(),
            slabs: BTreeMap::new(),
            moving: BTreeMap::new(),
            still_bytes: 0,
        };
        let prepared = files.prepare(specs, specs)?;
        let mut found = Found {
            notes: prepared.notes.clone(),
            ..Found::default()
        };
        found.specs = files.install(prepared);
        for recovered in files.sources.recover()? {
            found.emptied.extend(recovered.emptied);
            for (key, slab) in recovered.clean {
                // Two mounts may have the same number: a later one is not needed.
                if files.slabs.contains_key(&slab.id()) {
                    let name = slab.id().to_string();
                    if slab.discard().is_ok() {
                        found.emptied.push((name, "another one has its number"));
                    }
                    continue;
                }
                found.clean.push((slab.id(), key));
                files.insert(slab);
            }
        }
        Ok((files, found))
    }

    /// Looks whether this machine has what `specs` name beside `all`, and makes the mounts they
    /// need. Nothing has changed until [`Files::install`].
    ///
    /// # Errors
    /// A class that cannot be had on this machine.
    pub fn prepare(&self, specs: &[Spec], all: &[Spec]) -> Result<Prepared, StoreError> {
        self.sources.prepare(specs, all)
    }

    /// Uses the mounts that were prepared from now on; returns the classes.
    pub fn install(&mut self, prepared: Prepared) -> Vec<Spec> {
        let specs = self.sources.install(prepared);
        for spec in &specs {
            self.room.know(spec.key);
        }
        specs
    }

    /// Whether the kernel has free pages for `bytes` more of a slab of this class, beside what others that are
    /// being filled still lack.
    ///
    /// # Errors
    /// It has not: what there is, and what to do.
    pub fn has_room(
        &self,
        key: Key,
        bytes: u64,
        under_way: impl Iterator<Item = (Key, u64)>,
    ) -> Result<(), String> {
        self.room.allows(key, bytes, under_way)
    }

    /// The limits of memory that slabs must be within.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.room.limits
    }

    /// They are other ones from now on; those of before.
    pub fn set_limits(&mut self, limits: Limits) -> Limits {
        std::mem::replace(&mut self.room.limits, limits)
    }

    /// With a file in the place of `/proc/meminfo`.
    #[cfg(test)]
    pub(crate) fn set_meminfo(&mut self, path: &Path) {
        self.room = Room::with(path, Limits::default());
    }

    /// A new slab without a page, as long as its class says.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn create(&mut self, id: SlabId, spec: &Spec) -> io::Result<&Slab> {
        let slab = self.sources.create(spec, id)?;
        Ok(self.insert(slab))
    }

    fn insert(&mut self, slab: Slab) -> &Slab {
        // From here on its pages are known to be the daemon's.
        if slab.is_still() {
            self.still_bytes += slab.bytes();
        } else if slab.is_counted() {
            self.moving.insert(slab.id(), Arc::downgrade(&slab.file()));
        }
        self.slabs.remove(&slab.id());
        self.slabs.entry(slab.id()).or_insert(slab)
    }

    /// Says on a slab's inode that the kernel has filled it.
    ///
    /// # Errors
    /// The operating system's refusal; that there is none of this number.
    pub fn mark_clean(&mut self, id: SlabId) -> io::Result<()> {
        let slab = self.get_mut(id)?;
        slab.mark_clean()?;
        if slab.is_still() {
            let bytes = slab.bytes();
            self.still_bytes += bytes;
            self.moving.remove(&id);
        }
        Ok(())
    }

    /// A slab.
    ///
    /// # Errors
    /// That there is none of this number.
    pub fn get(&self, id: SlabId) -> io::Result<&Slab> {
        self.slabs.get(&id).ok_or_else(|| unknown(id))
    }

    /// A slab with which something is to be done.
    ///
    /// # Errors
    /// That there is none of this number.
    pub fn get_mut(&mut self, id: SlabId) -> io::Result<&mut Slab> {
        let slab = self.slabs.get_mut(&id).ok_or_else(|| unknown(id))?;
        let was_still = slab.is_still();
        slab.touch();
        if was_still {
            self.still_bytes -= slab.bytes();
            self.moving.insert(id, Arc::downgrade(&slab.file()));
        }
        Ok(slab)
    }

    /// Closes a slab's file: it is the caller's.
    pub fn remove(&mut self, id: SlabId) -> Option<Slab> {
        self.get_mut(id).ok()?;
        self.slabs.remove(&id)
    }

    /// Bytes in the mounts that are in none of the daemon's files: pinned by
    /// revoked clients, or drawn into private copies. A page a worker is just
    /// being given shows here too.
    #[must_use]
    pub fn stray_bytes(&mut self) -> u64 {
        // Used first: what is filled in between is known, not stray.
        let used = |mount: &Arc<mount::Mount>| mount.used_bytes().ok().flatten();
        let used: u64 = self.sources.mounts().filter_map(used).sum();
        self.moving.retain(|_, file| file.strong_count() > 0);
        let held = |file: &Weak<OwnedFd>| memory_file::held_bytes(file.upgrade()?).ok();
        let moving: u64 = self.moving.values().filter_map(held).sum();
        used.saturating_sub(self.still_bytes + moving)
    }

    /// Files that this looks at each time.
    #[cfg(test)]
    fn looked_at(&self) -> usize {
        let files = self.moving.values();
        files.filter(|file| file.strong_count() > 0).count()
    }

    /// The mounts, for the service manager to keep.
    pub fn mounts(&self) -> impl Iterator<Item = (PageSize, BorrowedFd<'_>)> {
        let mounts = self.sources.mounts();
        mounts.map(|mount| (mount.page(), mount.as_fd()))
    }
}

fn unknown(id: SlabId) -> io::Error {
    io::Error::other(format!("{id} is not there"))
}
