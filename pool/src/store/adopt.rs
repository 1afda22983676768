//! Slabs of an earlier daemon: clean ones that are wanted, and allocated ones.

use super::class::{Class, Spec};
use super::key::Key;
use super::slab::{Slab, SlabId};
use super::{Found, Store, remember};
use crate::os::memory_file;
use std::io;
use std::os::fd::OwnedFd;

impl Store {
    /// A clean slab from before, if it is wanted.
    pub(super) fn take_over(&mut self, key: Key, slab: Slab, found: &mut Found) {
        self.next_id = self.next_id.max(slab.id().0.saturating_add(1));
        remember(&mut self.files, &slab);
        let class = self.classes.iter_mut().find(|class| class.spec.key == key);
        match class {
            Some(class) if class.present() < class.wanted() => {
                class.clean.push(slab);
                found.kept += 1;
            }
            _ => {
                let name = slab.id().to_string();
                if slab.discard().is_ok() {
                    found.emptied.push((name, "not wanted any more"));
                }
            }
        }
    }

    /// A clean file without a name that a service manager kept, if it is what
    /// it should be: never allocated, complete, and held by nobody else.
    pub fn adopt(&mut self, key: Key, file: OwnedFd) -> Option<&Slab> {
        let id = self.new_id();
        let class = self
            .classes
            .iter_mut()
            .find(|class| class.spec.key == key)?;
        let slab = Slab::memfd(id, key.page, key.bytes, file);
        if memory_file::is_sealed(&slab).unwrap_or(true) {
            // Allocated, and the manager was not told or did not hear: whoever
            // allocated it goes on. Without one, its memory goes with the file.
            slab.leave();
            return None;
        }
        let known_clean = || -> io::Result<bool> {
            Ok(slab.length()? == key.bytes
                && slab.held_bytes()? == key.bytes
                && rustix::fs::fstatfs(&slab)
                    .is_ok_and(|stat| u64::try_from(stat.f_bsize) == Ok(key.block_bytes()))
                && slab.is_ours_alone()?)
        };
        let wanted = class.present() < class.wanted();
        if wanted && known_clean().unwrap_or(false) {
            class.clean.push(slab);
            return class.clean.last();
        }
        // Whatever it is, it is none of ours any more.
        let _ = slab.discard();
        None
    }

    /// A slab that an earlier daemon allocated: its number here, and the slab itself if its
    /// `file` is what it should be. A class that is kept no more is there for it.
    pub fn adopt_lent(
        &mut self,
        key: Key,
        bytes: u64,
        file: Option<OwnedFd>,
        memfd: bool,
    ) -> (SlabId, Option<Slab>) {
        let id = self.new_id();
        let slab = file.and_then(|file| Slab::lent(id, &key, bytes, file, memfd).ok());
        if let Some(slab) = &slab {
            remember(&mut self.files, slab);
        }
        let at = self.classes.iter().position(|class| class.spec.key == key);
        let at = at.unwrap_or_else(|| {
            self.classes.push(Class::new(Spec::none(key)));
            self.classes.len() - 1
        });
        if let Some(class) = self.classes.get_mut(at) {
            match slab {
                Some(_) => class.lent.push((id, bytes)),
                None => class.unknown.push(id),
            }
        }
        (id, slab)
    }

    /// The lease of a slab that was not found again is over.
    pub fn forget_unknown(&mut self, id: SlabId) {
        for class in &mut self.classes {
            class.unknown.retain(|unknown| *unknown != id);
        }
    }
}
