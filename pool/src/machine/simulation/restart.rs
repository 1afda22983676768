//! A daemon was killed or has ended: the next one takes over what is left.

use super::life::{Faults, Life};
use super::users::counts_as;
use super::world::Mark;
use crate::lease::Whose;
use crate::lease::journal::Record;
use crate::machine::{Before, Restored};
use std::collections::BTreeSet;

impl Life {
    /// The next daemon takes over what the last one left.
    pub(super) fn restart(&mut self) {
        self.is_killed = false;
        self.jobs.clear();
        self.pending.clear();
        self.world.files.clear();
        self.world.had.clear();
        for client in &mut self.clients {
            client.connection = None;
        }
        self.books.restarted();
        self.passed_over.clear();
        self.begun_beside.clear();
        self.some_is_forgotten();
        self.world.records = self.world.journal.clone();
        self.world.is_torn = self.world.is_full;
        // What could not be written is not known: such a lease lasts, unless its pipe is gone too.
        let (journal, pipes) = (&self.world.journal, &self.world.pipes);
        self.given.retain(|serial| {
            let is_over =
                |record: &Record| record.revoked || record.owed || !pipes.contains_key(serial);
            journal.get(serial).is_none_or(is_over)
        });
        self.new_daemon();
        self.world.collect();
        self.take_over_slabs();
        self.what_was_left_is_clean();
        self.take_over_grants();
        self.take_over_leases();
        self.world.collect();
        let grants = &self.world.grants;
        for client in &mut self.clients {
            self.next_connection += 1;
            let may = client.grant.is_none_or(|id| grants.contains_key(&id));
            client.connection = may.then_some(self.next_connection);
        }
        self.tick(std::time::Duration::ZERO);
    }

    fn some_is_forgotten(&mut self) {
        if self.now_and_then(Faults::FORGOTTEN, 3) {
            self.world.kept_leases.pop_first();
            if let Some((_, id)) = self.world.kept_slabs.pop_first() {
                self.left.remove(&id);
            }
        }
        if !self.world.has_manager {
            self.world.kept_leases.clear();
        }
    }

    fn take_over_slabs(&mut self) {
        for id in std::mem::take(&mut self.world.kept_slabs).into_values() {
            let slab = self.machine.new_slab();
            let inode = self.world.inodes[&id].clone();
            let is_whole = inode.held_bytes == inode.bytes && inode.bytes == inode.key.bytes;
            if inode.mark != Mark::Clean || !is_whole || !inode.holders.is_empty() {
                continue;
            }
            self.world.files.insert(slab, id);
            let (kept, actions) = self.machine.found(slab, inode.key);
            self.carry_out(actions);
            if !kept {
                self.close(slab);
            }
        }
    }

    /// What a daemon left that was stopped, as far as it is wanted.
    fn what_was_left_is_clean(&mut self) {
        let left = std::mem::take(&mut self.left);
        if self.is_killed {
            return;
        }
        let clean = self.machine.core.slabs.clean();
        let clean: BTreeSet<_> = clean.map(|(slab, _)| self.world.files[&slab]).collect();
        let rows = self.machine.core.slabs.rows();
        let specs = self.machine.core.slabs.specs();
        for id in left.difference(&clean) {
            let inode = self.world.inodes.get(id);
            let inode = inode.unwrap_or_else(|| panic!("inode {id} was left, and is gone"));
            let mut both = specs.iter().zip(&rows);
            let row = both.find(|(spec, _)| spec.key == inode.key);
            let is_wanted = row.is_some_and(|(_, row)| row.clean_slabs < row.wanted_slabs);
            assert!(!is_wanted, "{inode:?} was left, and is not taken over");
        }
    }

    fn take_over_leases(&mut self) {
        let records: Vec<_> = self.world.records.values().cloned().collect();
        for record in records {
            let serial = record.serial;
            let file = self.world.kept_leases.get(&serial).copied();
            let file = file.filter(|_| !record.owed);
            let pipe = self.world.pipes.get(&serial).filter(|_| !record.owed);
            let before = Before {
                has_memory: file.is_some(),
                has_pipe: pipe.is_some_and(|writers| !writers.is_empty()),
                whose: record
                    .grant
                    .map_or(Whose::User(counts_as(record.uid)), Whose::Grant),
                record: record.clone(),
            };
            let (restored, actions) = self.machine.restore(self.now(), before);
            let slab = match restored {
                Restored::Whole(slab) | Restored::Ended(Some(slab)) => Some(slab),
                Restored::Unknown => self.machine.leases().get(serial).map(|lease| lease.slab),
                Restored::Ended(None) => None,
            };
            if let (Some(slab), Some(file)) = (slab, file) {
                self.world.files.insert(slab, file);
            }
            if let Some(slab) = slab {
                self.books.found(serial, slab, record.key(), record.bytes);
            }
            match restored {
                Restored::Ended(Some(slab)) => self.books.came_back(slab),
                Restored::Ended(None) => {
                    let (key, bytes) = (record.key(), record.bytes);
                    self.books
                        .owes(serial, key, bytes, record.owed && !record.lost);
                }
                Restored::Whole(_) | Restored::Unknown => {}
            }
            self.carry_out(actions);
            if self.is_killed {
                return;
            }
        }
        let records = &self.world.records;
        self.world
            .kept_leases
            .retain(|serial, _| records.contains_key(serial));
        self.world
            .pipes
            .retain(|serial, _| records.contains_key(serial));
    }
}
