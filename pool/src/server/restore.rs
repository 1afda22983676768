//! Slabs and leases of an earlier daemon, as far as they are found again.

use super::keeper;
use super::pool::{Outgoing, Pool, now};
use crate::lease::Serial;
use crate::lease::journal::Record;
use crate::machine::{Before, Event, Restored};
use crate::store::slab::SlabId;
use crate::store::{Key, adopt};
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// What was found of an earlier daemon's leases.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Leases as before.
    pub(super) whole: usize,
    /// Leases whose memory was not found.
    pub(super) unknown: usize,
    /// Leases that ended meanwhile.
    pub(super) ended: usize,
}

impl Pool {
    /// Takes up clean slabs that the service manager kept.
    pub(super) fn adopt(&mut self, slabs: Vec<(String, OwnedFd)>, say: &mut dyn FnMut(&str)) {
        let (mut kept, mut emptied) = (0, 0);
        // New names follow, and one may be the old one of another.
        for (name, _) in &slabs {
            self.keeper.forget_old(name);
        }
        for (_, file) in slabs {
            let slab = self.machine.new_slab();
            let found = self.adopt_clean(slab, file);
            let found = found.map(|key| self.machine.found(slab, key));
            let (is_kept, actions) = found.unwrap_or_default();
            self.carry_out(actions);
            if is_kept {
                kept += 1;
                continue;
            }
            emptied += 1;
            if let Some(file) = self.files.remove(slab) {
                let _ = file.discard();
            }
        }
        if kept + emptied > 0 {
            say(&format!(
                "from the service manager: {kept} slabs kept, {emptied} let go"
            ));
        }
    }

    /// The class of a slab that was kept by its mount or by its file, if it is known to be clean.
    fn adopt_clean(&mut self, slab: SlabId, file: OwnedFd) -> Option<Key> {
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return self.files.adopt_mount(slab, file).ok();
        }
        let bytes = u64::try_from(stat.st_size).ok()?;
        let block = rustix::fs::fstatfs(&file).ok()?.f_bsize;
        let block = u64::try_from(block).ok()?;
        let key = keeper::class_of(&self.machine.keys(), bytes, block)?;
        self.files.adopt_clean(slab, key, file).then_some(key)
    }

    /// Finds the pipe of a lease from an earlier daemon: whether the lease lasts, or its client, whose memory was not
    /// found, has it still. One that cannot be looked at counts as open, and is looked at again: out of descriptors,
    /// which others may have used up, no lease is ended.
    pub(super) fn find_pipe(&mut self, serial: Serial, has_memory: bool) -> bool {
        match self.folder.find(serial) {
            Ok(None) => return false,
            Ok(Some(pipe)) if !has_memory => self.ends.found(serial, pipe.until_closed()),
            Ok(Some(pipe)) => match pipe.is_over() {
                Ok(true) => return false,
                Ok(false) => self.ends.found(serial, pipe),
                Err(_) => self.ends.not_seen(serial),
            },
            Err(_) => self.ends.not_seen(serial),
        }
        true
    }

    /// Looks again at pipes that could not be looked at.
    pub(super) fn look_for_pipes(&mut self) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        for serial in self.ends.unseen() {
            let lease = self.machine.leases().get(serial);
            let has_memory = lease.map(|lease| lease.has_memory);
            if has_memory.is_some_and(|has_memory| !self.find_pipe(serial, has_memory)) {
                outgoing.extend(self.step(Event::PipeClosed(serial)));
            }
        }
        outgoing
    }

    /// Takes up the leases of an earlier daemon; `files` are those that were kept.
    pub(super) fn restore(&mut self, mut files: BTreeMap<Serial, OwnedFd>) -> Found {
        let mut found = Found::default();
        let records: Vec<Record> = self.journal().records().cloned().collect();
        for record in records {
            let file = files.remove(&record.serial);
            if file.is_some() {
                self.keeper.had_lease(record.serial);
            }
            self.restore_one(record, file, &mut found);
        }
        // Files of leases that are over: their memory goes with the last holder.
        for serial in files.into_keys() {
            self.keeper.had_lease(serial);
            self.keeper.forget_lease(serial);
        }
        self.remove_other_pipes();
        found
    }

    fn restore_one(&mut self, record: Record, file: Option<OwnedFd>, found: &mut Found) {
        let (serial, key) = (record.serial, record.key());
        let bytes = record.bytes;
        let is_owed = record.owed;
        let file = file.filter(|file| !is_owed && adopt::is_of(&key, file));
        // Of a revoked lease whose memory is found the pipe says nothing any more.
        let is_known = file.is_some() && record.revoked;
        let before = Before {
            has_memory: file.is_some(),
            has_pipe: !is_owed && !is_known && self.find_pipe(serial, file.is_some()),
            whose: self.whose(&record),
            record,
        };
        let (restored, actions) = self.machine.restore(now(), before);
        match restored {
            Restored::Whole(slab) => {
                found.whole += 1;
                self.adopt_allocated(slab, key, bytes, file);
                let budget_bytes = self.machine.refill_bytes(key);
                self.refills.begin(serial, key, budget_bytes);
            }
            Restored::Unknown => found.unknown += 1,
            Restored::Ended(slab) => {
                found.ended += usize::from(!is_owed);
                if let Some(slab) = slab {
                    self.adopt_allocated(slab, key, bytes, file);
                }
            }
        }
        self.carry_out(actions);
    }
}
