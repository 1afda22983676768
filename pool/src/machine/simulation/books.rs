//! What each user is to be charged, counted without the machine: everything that left, until no
//! process can reach it and as many slabs of its class were filled for its user as that user's came back before.

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
    /// Its place among its user's returns of its class.
    returned: Option<u64>,
}

/// A user's returns of a class, and slabs that took their places.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    returned: u64,
    replaced: u64,
}

/// The books.
#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    entries: BTreeMap<SlabId, Entry>,
    settled_by: BTreeMap<(Key, Whose), Class>,
    /// Out of reach, and not replaced yet.
    owed: Vec<Entry>,
    /// Bytes that were given on each account of a class since a slab of it last became clean.
    since_clean: BTreeMap<(Account, Key), u64>,
    /// What each lease is charged to, as no daemon may forget.
    leases: BTreeMap<Serial, (Vec<Account>, Whose)>,
}

impl Books {
    /// A slab is taken out for a user that has limits.
    pub(super) fn took(
        &mut self,
        slab: SlabId,
        (accounts, whose): (Vec<Account>, Whose),
        key: Key,
        bytes: u64,
    ) {
        if accounts.is_empty() {
            return;
        }
        let entry = Entry {
            accounts,
            whose,
            key,
            bytes,
            returned: None,
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
    pub(super) fn owes(&mut self, serial: Serial, key: Key, bytes: u64) {
        let Some((accounts, whose)) = self.leases.get(&serial).cloned() else {
            return;
        };
        if accounts.is_empty() {
            return;
        }
        let class = self.settled_by.entry((key, whose)).or_default();
        class.returned += 1;
        self.owed.push(Entry {
            accounts,
            whose,
            key,
            bytes,
            returned: Some(class.returned),
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
    pub(super) fn came_back(&mut self, slab: SlabId, key: Key) {
        if let Some(entry) = self.entries.get_mut(&slab) {
            let class = self.settled_by.entry((key, entry.whose)).or_default();
            class.returned += 1;
            entry.returned = Some(class.returned);
        }
    }

    /// It is zeroed in place: none is to take its place, unless that fails.
    pub(super) fn is_being_zeroed(&mut self, slab: SlabId) {
        let Some(entry) = self.entries.get_mut(&slab) else {
            return;
        };
        if entry.returned.take().is_some()
            && let Some(class) = self.settled_by.get_mut(&(entry.key, entry.whose))
        {
            class.returned -= 1;
        }
    }

    /// No process can reach a slab any more.
    pub(super) fn out_of_reach(&mut self, slab: SlabId, is_credited: bool) {
        let Some(entry) = self.entries.remove(&slab) else {
            return;
        };
        if !is_credited {
            self.owed.push(entry);
        }
        self.settle();
    }

    /// A slab of a class is clean, in a user's turn.
    pub(super) fn clean(&mut self, key: Key, whose: Option<Whose>) {
        if let Some(class) = whose.and_then(|whose| self.settled_by.get_mut(&(key, whose))) {
            class.replaced = (class.replaced + 1).min(class.returned);
        }
        self.since_clean.retain(|(_, class), _| *class != key);
        self.settle();
    }

    /// A class lacks nothing.
    pub(super) fn full(&mut self, key: Key) {
        for (_, class) in self
            .settled_by
            .range_mut((key, Whose::FIRST)..=(key, Whose::LAST))
        {
            class.replaced = class.returned;
        }
        self.since_clean.retain(|(_, class), _| *class != key);
        self.settle();
    }

    /// Nothing is filled any more.
    pub(super) fn filling_is_off(&mut self) {
        self.owed.clear();
        self.since_clean.clear();
    }

    fn settle(&mut self) {
        let settled_by = &self.settled_by;
        self.owed.retain(|entry| {
            let class = settled_by.get(&(entry.key, entry.whose));
            let class = class.copied().unwrap_or_default();
            entry
                .returned
                .is_some_and(|returned| returned > class.replaced)
        });
    }

    /// Users with limits for whom slabs of a class are to be filled yet.
    pub(super) fn owed(&self, key: Key) -> impl Iterator<Item = Whose> {
        let of_class = self
            .settled_by
            .range((key, Whose::FIRST)..=(key, Whose::LAST));
        let owed = of_class.filter(|(_, class)| class.replaced < class.returned);
        owed.map(|((_, whose), _)| *whose)
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
        self.settled_by.clear();
    }
}
