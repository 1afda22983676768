//! Slabs that were emptied and that their clients may still reach, in the order in which that began.

use crate::store::slab::SlabId;
use std::collections::BTreeMap;

/// One of them.
#[derive(Debug)]
pub(super) struct Revoked<T> {
    /// What it was before.
    pub(super) of: T,
    /// Bytes that did not go back to the kernel when it was emptied.
    pub(super) pinned_bytes: u64,
    /// Whether it is being emptied once more.
    pub(super) under_way: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct AllRevoked<T> {
    next: u64,
    by_age: BTreeMap<u64, Revoked<T>>,
    ages: BTreeMap<SlabId, u64>,
}

impl<T> Default for AllRevoked<T> {
    fn default() -> Self {
        Self {
            next: 0,
            by_age: BTreeMap::new(),
            ages: BTreeMap::new(),
        }
    }
}

impl<T> AllRevoked<T> {
    pub(super) fn add(&mut self, slab: SlabId, of: T, pinned_bytes: u64) {
        let revoked = Revoked {
            of,
            pinned_bytes,
            under_way: false,
        };
        self.ages.insert(slab, self.next);
        self.by_age.insert(self.next, revoked);
        self.next += 1;
    }

    pub(super) fn get_mut(&mut self, slab: SlabId) -> Option<&mut Revoked<T>> {
        self.by_age.get_mut(self.ages.get(&slab)?)
    }

    pub(super) fn remove(&mut self, slab: SlabId) -> Option<Revoked<T>> {
        self.by_age.remove(&self.ages.remove(&slab)?)
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Revoked<T>> {
        self.by_age.values()
    }

    /// The oldest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Revoked<T>> {
        self.by_age.values_mut()
    }

    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabId> {
        self.ages.keys().copied()
    }
}
