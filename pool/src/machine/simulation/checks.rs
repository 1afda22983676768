//! What is true after each step.

use super::life::{Life, M};
use super::world::Mark;
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::BTreeSet;

impl Life {
    pub(super) fn check(&self) {
        self.no_inode_has_had_two_clients();
        self.clean_is_clean();
        self.all_slabs_are_known();
        self.charges_are_what_is_held_or_owed();
        self.grants_are_for_so_many();
        self.what_can_be_reached_is_watched();
        self.leases_last_until_they_are_ended();
        self.every_request_is_answered();
        self.what_is_given_back_is_left();
    }

    fn no_inode_has_had_two_clients(&self) {
        for (id, inode) in &self.world.inodes {
            let clients: BTreeSet<_> = inode.given_to.iter().collect();
            assert!(clients.len() <= 1, "inode {id} was given to {clients:?}");
        }
    }

    fn clean_is_clean(&self) {
        for (slab, key) in self.machine.core.slabs.clean() {
            let inode = self
                .world
                .files
                .get(&slab)
                .and_then(|id| self.world.inodes.get(id));
            let inode = inode.unwrap_or_else(|| panic!("clean {slab} has no file"));
            let is_whole = inode.bytes == key.bytes && inode.held_bytes == key.bytes;
            assert!(is_whole && inode.is_zero, "clean {slab} is not: {inode:?}");
            assert!(inode.holders.is_empty(), "clean {slab} is held: {inode:?}");
            let may_be = self.is_trusted(key) || !inode.ever_given;
            assert!(may_be, "clean {slab} was allocated before");
            assert!(
                self.is_trusted(key) || inode.mark == Mark::Clean,
                "{inode:?}"
            );
        }
    }

    fn all_slabs_are_known(&self) {
        let core = &self.machine.core;
        let mut known: Vec<_> = core.slabs.clean().map(|(slab, _)| slab).collect();
        known.extend(core.slabs.filling());
        let leases = core.leases.iter().filter(|(_, lease)| lease.has_memory);
        known.extend(leases.map(|(_, lease)| lease.slab));
        known.extend(self.machine.takes.slabs());
        known.extend(self.machine.returns.slabs());
        let once: BTreeSet<_> = known.iter().copied().collect();
        assert_eq!(
            once.len(),
            known.len(),
            "a slab is two things at once: {known:?}"
        );
        let files: BTreeSet<_> = self.world.files.keys().copied().collect();
        let lost: Vec<_> = files.symmetric_difference(&once).collect();
        assert!(
            lost.is_empty(),
            "no slab is lost, and none without a file: {lost:?}"
        );
        for row in core.slabs.rows() {
            // Besides those of an earlier daemon's leases.
            let present = row.clean_slabs + row.filling_slabs;
            let most = row.wanted_slabs.max(self.most_wanted());
            assert!(present <= most, "more slabs than were ever wanted: {row:?}");
            let is_wanted = row.clean_slabs <= row.wanted_slabs
                && (row.clean_slabs == 0 || !core.slabs.is_draining());
            assert!(is_wanted, "a clean slab that is not wanted: {row:?}");
        }
        let allocated: u64 = core
            .slabs
            .rows()
            .iter()
            .map(|row| u64::from(row.allocated_slabs))
            .sum();
        let out = core
            .leases
            .iter()
            .filter(|(_, lease)| lease.has_memory)
            .count();
        let out = out + self.machine.takes.slabs().count();
        assert_eq!(
            allocated, out as u64,
            "as many are allocated as leases have"
        );
    }

    fn charges_are_what_is_held_or_owed(&self) {
        let core = &self.machine.core;
        for (account, most) in &self.quotas {
            let used = core.ledger.used(account);
            let charged = self.books.charged(account);
            assert_eq!(
                used, charged,
                "{account}: charged, and what it holds or owes"
            );
            if !self.quotas_changed {
                assert!(used <= *most, "{account} has {used} of {most}");
                let since = self.books.since_clean(account);
                assert!(since <= *most, "{account} used up {since} of {most}");
            }
        }
        // What a client has pinned or keeps open is charged, as long as the daemon has its file.
        for (slab, id) in &self.world.files {
            let inode = &self.world.inodes[id];
            let Some(client) = inode.given_to.first() else {
                continue;
            };
            let reaches = inode.stray_bytes + inode.reserved_bytes > 0 || !inode.holders.is_empty();
            let accounts = self.accounts_of(*client);
            if reaches && !accounts.is_empty() {
                for account in accounts {
                    let least = inode.key.bytes.min(inode.bytes.max(1));
                    assert!(self.books.charged(&account) >= least, "{slab}: {account}");
                }
                let is_known = core.leases.iter().any(|(_, lease)| lease.slab == *slab)
                    || self.machine.returns.slabs().any(|known| known == *slab);
                assert!(is_known, "{slab} can be reached, and is forgotten");
            }
        }
    }

    /// What a client has open, or pinned, of a slab the daemon closes never: it watches it, and charges it.
    fn what_can_be_reached_is_watched(&self) {
        let watched: BTreeSet<_> = self.world.files.values().collect();
        for id in self.world.had.iter().filter(|id| !watched.contains(id)) {
            let reached = self.world.inodes.get(id).filter(|inode| {
                // What was zeroed in place is a trusted class's: who pinned it is not charged.
                let is_trusted = inode.ever_given && inode.given_to.is_empty();
                !is_trusted && !inode.is_memfd && inode.used_bytes() > 0
                    || !inode.holders.is_empty()
            });
            assert!(reached.is_none(), "it is closed, and in use: {reached:?}");
        }
    }

    /// A node begins to fill a slab: between two that it fills for one user it fills no more for another than two of
    /// the largest, while slabs of that one wait that no process reaches any more.
    pub(super) fn is_in_turn(&mut self, slab: SlabId, key: Key) {
        let turn = self.machine.fills.turn(slab);
        let (mut waiting, node) = (BTreeSet::new(), key.node);
        for row in self.machine.core.slabs.rows() {
            let lacks =
                row.clean_slabs + row.filling_slabs + row.allocated_slabs + row.unknown_slabs
                    < row.wanted_slabs;
            let key = Key {
                page: row.page,
                node: row.node,
                bytes: row.size_class_bytes,
            };
            let fails = self.machine.core.slabs.fails_with_pages(key);
            if row.node == node && lacks && !fails {
                waiting.extend(self.books.waiting(key));
            }
        }
        self.passed_over.retain(|(node, whose), _| {
            *node != key.node || (waiting.contains(whose) && turn != Some(*whose))
        });
        for whose in waiting.into_iter().filter(|whose| turn != Some(*whose)) {
            let passed = self.passed_over.entry((key.node, whose)).or_default();
            let bytes = passed.entry(turn).or_default();
            *bytes += key.bytes;
            assert!(
                *bytes <= 16 * M,
                "{whose:?} waits, and {bytes} bytes were filled for {turn:?}"
            );
        }
    }

    /// What is not filled with pages that its user gave back leaves those that others gave back.
    fn what_is_given_back_is_left(&self) {
        for (node, left) in &self.begun_beside {
            let waiting = self.books.waiting_bytes(*node) + self.bytes_on_their_way(*node);
            assert!(
                *left >= waiting,
                "{waiting} bytes were given back, and {left} are left once another is filled"
            );
        }
    }

    fn leases_last_until_they_are_ended(&self) {
        for (serial, lease) in self.machine.core.leases.iter() {
            let is_over = lease.has_memory && self.given.contains(&serial);
            assert!(!is_over, "lease {serial} was given back");
        }
        for serial in self.given.iter().filter(|_| !self.world.is_torn) {
            let record = self.world.journal.get(serial);
            let is_known = record.is_none_or(|record| record.revoked || record.owed);
            assert!(
                is_known,
                "the next daemon takes lease {serial} for one that lasts"
            );
        }
        for (at, client) in self.clients.iter().enumerate() {
            for lease in client.leases.iter().filter(|lease| lease.has_pipe) {
                let known = self.machine.core.leases.get(lease.serial);
                let lasts = known.is_some();
                let label = known.map(|known| known.label.clone());
                assert!(
                    label.is_none_or(|label| label == self.label(at)),
                    "lease {} is called as another client's",
                    lease.serial
                );
                assert!(
                    lasts || self.given.contains(&lease.serial),
                    "lease {} ended by itself",
                    lease.serial
                );
                let inode = &self.world.inodes[&lease.inode];
                let untouched = inode.held_bytes == inode.bytes && inode.bytes >= inode.key.bytes;
                assert!(
                    untouched || self.ever_given.contains(&lease.serial),
                    "memory of lease {} was taken away: {inode:?}",
                    lease.serial
                );
            }
        }
    }

    /// At once, or while its slab is topped up, no longer than it gave.
    fn every_request_is_answered(&self) {
        for connection in self.pending.keys() {
            let waits = self
                .jobs
                .iter()
                .any(|job| job.waits_for(*connection, self.clock()));
            assert!(waits, "connection {connection} was not answered");
        }
    }

    /// All clients are gone, and the daemon has had time: everything is as it was.
    pub(super) fn check_rest(&self) {
        let core = &self.machine.core;
        for account in self.quotas.keys() {
            let used = core.ledger.used(account);
            assert_eq!(
                used, 0,
                "all clients of {account} are gone, and it is charged"
            );
        }
        for grant in self.granted.values() {
            assert_eq!(core.ledger.used(&grant.account()), 0, "{grant:?}");
        }
        for row in core.slabs.rows() {
            assert_eq!(row.clean_slabs, row.wanted_slabs, "{row:?}");
            assert_eq!(row.dirty_bytes, 0, "{row:?}");
        }
        let all = (&self.world, &self.jobs, &self.machine.returns);
        for (node, pages) in &self.world.pages {
            let clean = core.slabs.clean().filter(|(_, key)| key.node == *node);
            let clean: u64 = clean.map(|(_, key)| key.bytes).sum();
            let free = self.world.free_bytes(*node);
            assert_eq!(free + clean, pages.total_bytes, "pages are lost: {all:?}");
        }
        assert!(self.world.records.is_empty(), "{:?}", self.world.records);
        assert!(self.world.pipes.is_empty(), "{:?}", self.world.pipes);
        assert!(
            self.world.kept_leases.is_empty(),
            "{:?}",
            self.world.kept_leases
        );
        assert!(self.pending.is_empty());
    }
}
