//! What each user is to be charged, counted without the machine: everything that left, until no
//! process can reach it and a slab of its class was filled in its user's turn.

use super::world::Node;
use crate::lease::quota::Account;
use crate::lease::{Serial, Whose};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::BTreeMap;

/// Something that is charged.
#[derive(Debug, Clone)]
struct Entry {
    accounts: Vec<Account>,
    whose: Whose,
    key: Key,
    bytes: u64,
    /// Whether it is on its way back, and another is to take its place.
    is_back: bool,
    /// Whether its pages were seen to come back, once no process can reach it.
    has_pages: bool,
}

/// The books.
#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    entries: BTreeMap<SlabId, Entry>,
    /// Slabs that took the places of a user's that it can still reach.
    replaced: BTreeMap<(Key, Whose), usize>,
    /// Out of reach, and not replaced yet; the oldest first.
    owed: Vec<Entry>,
    /// Bytes that were given on each account of a class since a slab of it last became clean.
    since_clean: BTreeMap<(Account, Key), u64>,
    /// What each lease is charged to, as no daemon may forget.
    leases: BTreeMap<Serial, (Vec<Account>, Whose)>,
}

impl Books {
    /// A slab is taken out for a user; for one without limits on no account.
    pub(super) fn took(
        &mut self,
        slab: SlabId,
        (accounts, whose): (Vec<Account>, Whose),
        key: Key,
        bytes: u64,
    ) {
        let entry = Entry {
            accounts,
            whose,
            key,
            bytes,
            is_back: false,
            has_pages: true,
        };
        self.entries.insert(slab, entry);
    }

    /// A user has its slab.
    pub(super) fn gave(&mut self, slab: SlabId) {
        let Some(entry) = self.entries.get(&slab) else {
            return;
        };
        for account in &entry.accounts {
            let since = self.since_clean.entry((account.clone(), entry.key));
            *since.or_default() += entry.bytes;
        }
    }

    /// A lease begins.
    pub(super) fn begins(&mut self, serial: Serial, whose: (Vec<Account>, Whose)) {
        self.leases.insert(serial, whose);
    }

    /// A lease of an earlier daemon is found again.
    pub(super) fn found(&mut self, serial: Serial, slab: SlabId, key: Key, bytes: u64) {
        let whose = self.leases.get(&serial).cloned();
        self.took(slab, whose.unwrap_or_default(), key, bytes);
    }

    /// A lease of an earlier daemon has neither memory nor pipe: a slab is to take its place.
    pub(super) fn owes(&mut self, serial: Serial, key: Key, bytes: u64, has_pages: bool) {
        let Some((accounts, whose)) = self.leases.get(&serial).cloned() else {
            return;
        };
        self.owed.push(Entry {
            accounts,
            whose,
            key,
            bytes,
            is_back: true,
            has_pages,
        });
    }

    /// Whether a slab is known to be out.
    pub(super) fn has(&self, slab: SlabId) -> bool {
        self.entries.contains_key(&slab)
    }

    /// A slab was zeroed in place: its user used none up.
    pub(super) fn zeroed(&mut self, key: Key) {
        self.since_clean.retain(|(_, class), _| *class != key);
    }

    /// A slab that was taken out was not touched.
    pub(super) fn untook(&mut self, slab: SlabId) {
        self.entries.remove(&slab);
    }

    /// A slab is on its way back.
    pub(super) fn came_back(&mut self, slab: SlabId) {
        if let Some(entry) = self.entries.get_mut(&slab) {
            entry.is_back = true;
        }
    }

    /// It is zeroed in place: none is to take its place, unless that fails.
    pub(super) fn is_being_zeroed(&mut self, slab: SlabId) {
        if let Some(entry) = self.entries.get_mut(&slab) {
            entry.is_back = false;
        }
    }

    /// The memory of a lease that is over was not found: what takes its place has no pages that came back, and none
    /// that `others` of its user, which are back and can be reached, were replaced with.
    pub(super) fn is_lost(&mut self, slab: SlabId, others: usize, is_credited: bool) {
        let Some(mut entry) = self.entries.remove(&slab) else {
            return;
        };
        let replaced = self.replaced.entry((entry.key, entry.whose)).or_default();
        if *replaced > others {
            *replaced -= 1;
        } else if !is_credited {
            entry.has_pages = false;
            self.owed.push(entry);
        }
    }

    /// No process can reach a slab any more.
    pub(super) fn out_of_reach(&mut self, slab: SlabId, is_credited: bool) {
        let Some(entry) = self.entries.remove(&slab) else {
            return;
        };
        let replaced = self.replaced.entry((entry.key, entry.whose)).or_default();
        if entry.is_back && *replaced > 0 {
            *replaced -= 1;
        } else if !is_credited {
            self.owed.push(entry);
        }
    }

    /// Slabs that a user gave back and can still reach.
    fn reachable(&self, key: Key, whose: Whose) -> usize {
        let back = self.entries.values().filter(|entry| entry.is_back);
        back.filter(|entry| (entry.key, entry.whose) == (key, whose))
            .count()
    }

    /// A slab of a class is clean, in a user's turn, for which pages were back or not.
    pub(super) fn clean(&mut self, key: Key, whose: Option<Whose>, had_pages: bool) {
        self.since_clean.retain(|(_, class), _| *class != key);
        let Some(whose) = whose else { return };
        let is_its =
            |entry: &Entry| (entry.key, entry.whose, entry.has_pages) == (key, whose, had_pages);
        if let Some(oldest) = self.owed.iter().position(is_its) {
            self.owed.remove(oldest);
            return;
        }
        let reachable = self.reachable(key, whose);
        let replaced = self.replaced.entry((key, whose)).or_default();
        *replaced = reachable.min(*replaced + 1);
    }

    /// A class lacks nothing.
    pub(super) fn full(&mut self, key: Key) {
        self.since_clean.retain(|(_, class), _| *class != key);
        self.owed.retain(|entry| entry.key != key);
        self.replaced.retain(|(class, _), _| *class != key);
        for entry in self
            .entries
            .values()
            .filter(|entry| entry.is_back && entry.key == key)
        {
            *self.replaced.entry((key, entry.whose)).or_default() += 1;
        }
    }

    /// Nothing is filled any more.
    pub(super) fn filling_is_off(&mut self) {
        self.owed.clear();
        self.since_clean.clear();
    }

    /// Users with slabs of a class that none can reach any more, whose pages are back, and that wait for clean ones.
    pub(super) fn waiting(&self, key: Key) -> impl Iterator<Item = Whose> {
        let is_its = move |entry: &&Entry| entry.key == key && entry.has_pages;
        let owed = self.owed.iter().filter(is_its);
        owed.map(|entry| entry.whose)
    }

    /// Bytes of a node that are to be left for what waits so.
    pub(super) fn waiting_bytes(&self, node: Node) -> u64 {
        let is_its = |entry: &&Entry| entry.key.node == node && entry.has_pages;
        let owed = self.owed.iter().filter(is_its);
        owed.map(|entry| entry.key.bytes).sum()
    }

    /// What is to be charged to an account.
    pub(super) fn charged(&self, account: &Account) -> u64 {
        let held = self.entries.values().chain(&self.owed);
        held.filter(|entry| entry.accounts.contains(account))
            .map(|entry| entry.bytes)
            .sum()
    }

    /// What was given on an account since slabs last became clean.
    pub(super) fn since_clean(&self, account: &Account) -> u64 {
        let since = self.since_clean.iter();
        since
            .filter(|((given, _), _)| given == account)
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// The daemon has ended: what is charged for leases is known from the journal, all else is credited. What was
    /// used up is not there again.
    pub(super) fn restarted(&mut self) {
        self.entries.clear();
        self.owed.clear();
        self.replaced.clear();
    }
}
