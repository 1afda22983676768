//! The files of slabs, by their numbers, and where they come from.
//!
//! What becomes of a slab is decided in [`crate::machine`]; here are its file, the mark on it
//! that outlives the daemon, and what of an earlier daemon's files is known to be clean. What
//! takes time (filling, emptying, zeroing in place) is work of [`crate::fill`].
//!
//! - [`directory`]: the daemon's folder, which has no slab;
//! - [`slab`]: one file and the mark on it; `adopt.rs`: those that a service manager kept;
//! - [`mount`], `sources.rs`: where files come from; `room.rs`: whether there is memory for one;
//! - [`recover`]: whether a slab in a mount is clean after a crash.

pub mod adopt;
pub mod directory;
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
pub use sources::{NewSlab, Prepared, available};

use crate::machine::Spec;
use crate::os::cgroup_memory::Limits;
use directory::Directory;
use room::Room;
use slab::{Slab, SlabId};
use sources::Sources;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What there was when the daemon started.
#[derive(Debug, Default)]
pub struct Found {
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

    /// Takes the folder over; `outlive` where a service manager keeps mounts when the daemon ends.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(
        directory: &Path,
        specs: &[Spec],
        outlive: bool,
    ) -> Result<(Self, Found), StoreError> {
        let (directory, note) = Directory::open(directory)?;
        let mut files = Self {
            sources: Sources::new(directory, outlive),
            room: Room::of_machine(),
            slabs: BTreeMap::new(),
        };
        let prepared = files.prepare(specs, specs)?;
        let notes = note.into_iter().chain(prepared.notes.iter().cloned());
        let mut found = Found {
            notes: notes.collect(),
            ..Found::default()
        };
        found.specs = files.install(prepared);
        Ok((files, found))
    }

    /// The daemon's folder.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.sources.directory().as_fd()
    }

    /// Looks whether this machine has what `specs` name beside `all`. Nothing has changed until [`Files::install`].
    ///
    /// # Errors
    /// A class that cannot be had on this machine.
    pub fn prepare(&self, specs: &[Spec], all: &[Spec]) -> Result<Prepared, StoreError> {
        self.sources.prepare(specs, all)
    }

    /// New slabs are so from now on; returns the classes.
    pub fn install(&mut self, prepared: Prepared) -> Vec<Spec> {
        let specs = self.sources.install(prepared);
        for spec in &specs {
            self.room.know(spec.key);
        }
        specs
    }

    /// Whether the kernel has free pages for `bytes` more of a slab of this class, beside what others that are
    /// being filled or replaced still lack.
    ///
    /// # Errors
    /// It has not: what there is, and what to do.
    pub fn has_room(
        &self,
        key: Key,
        bytes: u64,
        others: impl Iterator<Item = (Key, u64)>,
    ) -> Result<(), String> {
        self.room.allows(key, bytes, others)
    }

    /// Bytes that the kernel has free for slabs of this class beside what others lack, as far as is known.
    #[must_use]
    pub fn left_bytes(&self, key: Key, others: impl Iterator<Item = (Key, u64)>) -> u64 {
        self.room.left_bytes(key, others)
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

    /// How a new slab is made; it is to be [taken up](Files::insert) afterwards.
    #[must_use]
    pub fn new_slab(&self, id: SlabId, spec: &Spec) -> NewSlab {
        self.sources.new_slab(spec, id)
    }

    /// Takes a slab up that was made.
    pub fn insert(&mut self, slab: Slab) -> &Slab {
        self.slabs.remove(&slab.id());
        self.slabs.entry(slab.id()).or_insert(slab)
    }

    /// Descriptors of the daemon's for a slab that is clean, or will be.
    #[must_use]
    pub fn descriptors_of_ready(&self) -> usize {
        self.sources.descriptors_of_ready()
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
        self.slabs.get_mut(&id).ok_or_else(|| unknown(id))
    }

    /// Closes a slab's file: it is the caller's.
    pub fn remove(&mut self, id: SlabId) -> Option<Slab> {
        self.slabs.remove(&id)
    }

    /// Bytes of a slab that its mount counts: of pages in its file, or pinned or reserved by whoever has had it.
    ///
    /// Linux counts a page of a mount as used for good whenever an allocation in it found none (seen with 6.18): no more
    /// count here than the machine has in use.
    #[must_use]
    pub fn used_bytes(&self, id: SlabId) -> u64 {
        let Ok(slab) = self.get(id) else {
            return 0;
        };
        // Of one of which the kernel says nothing all may be in use.
        let used = slab.used_bytes().unwrap_or(slab.bytes());
        if used == 0 {
            return 0;
        }
        used.min(self.room.in_use_bytes(slab.page()))
    }
}

fn unknown(id: SlabId) -> io::Error {
    io::Error::other(format!("{id} is not there"))
}
