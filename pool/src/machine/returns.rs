//! The way back: from the end of a lease until no process can reach its memory.
//!
//! Emptied at once, by a worker; then a revoked slab while another process still has it open
//! or pins its pages. It is charged as long, and until a clean slab has taken its place. In a
//! trusted class a slab that no other process holds is zeroed in place instead.
//!
//! A client that kept a descriptor or a mapping can draw or reserve new pages through it, at least on
//! hugetlbfs, where mapping a file makes it longer even if it is sealed. The kernel cannot be
//! told to refuse that. So a revoked slab is emptied again whenever it holds pages, and once more when none has it
//! any longer. Pages that were pinned when it was emptied are in no file any more, but its mount still counts them:
//! as long as it counts any, the slab stays charged.

use super::action::{Action, Seen};
use super::core::Core;
use crate::config::Size;
use crate::lease::quota::{Account, Charge};
use crate::lease::{Owed, OwedTo, Replacements, Serial, Whose};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet};

/// A slab that comes back.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) slab: SlabId,
    pub(super) key: Key,
    pub(super) bytes: u64,
    pub(super) charge: Charge,
    /// Whose it was, or was to be.
    pub(super) whose: Whose,
    /// The lease it had, if a client has had it.
    pub(super) lease: Option<Serial>,
}

/// A slab that is being emptied or zeroed.
#[derive(Debug)]
struct Dirty {
    key: Key,
    bytes: u64,
    charge: Charge,
    whose: Whose,
    lease: Option<Serial>,
    /// Whether it is being emptied, and another is to take its place; if not, it is being zeroed in place.
    is_emptied: bool,
}

/// A slab that was emptied, and that its client may still reach.
#[derive(Debug)]
struct Revoked {
    of: Dirty,
    /// Bytes of it that were in use when it was last looked at.
    used_bytes: u64,
    /// Whether it is being emptied once more.
    under_way: bool,
    /// Whether no other process has had it since before it was last emptied.
    was_alone: bool,
}

/// The service that takes slabs back.
#[derive(Debug, Default)]
pub(super) struct Returns {
    dirty: BTreeMap<SlabId, Dirty>,
    /// Slabs that were emptied, and that their clients may still reach.
    revoked: BTreeMap<SlabId, Revoked>,
    /// Clean slabs that go back to the kernel.
    discarding: BTreeSet<SlabId>,
    replacements: Replacements,
}

impl Returns {
    /// A lease is over: its memory is taken away, also from a client that still holds it.
    pub(super) fn end_lease(&mut self, core: &mut Core, serial: Serial) {
        let Some(lease) = core.leases.end(serial) else {
            return;
        };
        core.counters.returns += 1;
        // Before the slab is emptied: nothing is put back any more.
        core.act(Action::EndTenure(serial));
        if lease.has_memory {
            let returned = Returned {
                slab: lease.slab,
                key: lease.key,
                bytes: lease.bytes,
                charge: lease.charge,
                whose: lease.whose,
                lease: Some(serial),
            };
            return self.revoke(core, serial, returned);
        }
        core.slabs.forget_unknown(lease.slab);
        let owed = Owed {
            charge: lease.charge,
            lease: Some(serial),
        };
        self.came_back_before(core, lease.key, lease.whose, owed, false);
    }

    /// A lease of an earlier daemon is over, and its memory was not found, or that daemon had it back.
    pub(super) fn came_back_before(
        &mut self,
        core: &mut Core,
        key: Key,
        whose: Whose,
        owed: Owed,
        has_pages: bool,
    ) {
        self.replacements.came_back(key, whose);
        if has_pages {
            self.replacements.has_pages(key, whose, true);
        }
        self.out_of_reach(core, key, whose, owed, has_pages);
    }

    pub(super) fn revoke(&mut self, core: &mut Core, serial: Serial, returned: Returned) {
        // Not written, the next daemon finds its pipe closed, or takes it for a lease.
        core.act(Action::RecordRevoked(serial));
        self.take_back(core, returned);
    }

    /// Has what was taken out emptied; with its lease, if a client has had it.
    pub(super) fn take_back(&mut self, core: &mut Core, returned: Returned) {
        let Returned {
            slab,
            key,
            bytes,
            charge,
            whose,
            lease,
        } = returned;
        if lease.is_none() {
            // Not clean any more, whatever keeps it over a restart.
            core.unkeep_clean(slab);
        }
        let may_be_zeroed = core.slabs.came_back(slab, key) && bytes == key.bytes;
        // While nothing is filled nothing is zeroed either.
        let zeroed = lease.filter(|_| may_be_zeroed && core.fills_now());
        let dirty = Dirty {
            key,
            bytes,
            charge,
            whose,
            lease,
            is_emptied: false,
        };
        self.dirty.insert(slab, dirty);
        match zeroed {
            Some(lease) => {
                core.slabs.begin_zeroing(slab, key);
                core.act(Action::ZeroInPlace {
                    slab,
                    node: key.node,
                    lease,
                });
            }
            None => self.empty(core, slab),
        }
    }

    fn empty(&mut self, core: &mut Core, slab: SlabId) {
        let Some(dirty) = self.dirty.get_mut(&slab) else {
            return;
        };
        dirty.is_emptied = true;
        self.replacements.came_back(dirty.key, dirty.whose);
        core.act(Action::Empty {
            slab,
            whose: dirty.whose,
            lease: dirty.lease,
        });
    }

    /// A slab's pages were taken away, but for `used_bytes` that are pinned or reserved.
    pub(super) fn emptied(
        &mut self,
        core: &mut Core,
        slab: SlabId,
        is_alone: bool,
        used_bytes: u64,
    ) {
        let Some(dirty) = self.dirty.remove(&slab) else {
            return;
        };
        core.slabs.emptied(dirty.key, dirty.bytes);
        if used_bytes == 0 {
            self.replacements.has_pages(dirty.key, dirty.whose, true);
        }
        if is_alone && used_bytes == 0 {
            self.forget(core, slab, dirty);
        } else {
            let revoked = Revoked {
                of: dirty,
                used_bytes,
                under_way: false,
                was_alone: false,
            };
            self.revoked.insert(slab, revoked);
        }
    }

    /// A slab was zeroed in place, and no other process has come to hold it meanwhile.
    pub(super) fn zeroed(&mut self, core: &mut Core, slab: SlabId, is_clean: bool) {
        if !is_clean {
            if let Some(dirty) = self.dirty.get(&slab) {
                core.slabs.not_zeroed(slab, dirty.key);
            }
            return self.empty(core, slab);
        }
        let Some(dirty) = self.dirty.remove(&slab) else {
            return;
        };
        if let Some(serial) = dirty.lease {
            core.forget_lease(serial);
        }
        core.settle([Owed {
            charge: dirty.charge,
            lease: dirty.lease,
        }]);
        if !core.slabs.zeroed(slab, dirty.key) {
            core.forget(slab, dirty.whose);
        }
    }

    /// What revoked clients can do at this moment.
    pub(super) fn look(&mut self, core: &mut Core, seen: &Seen) {
        // What was not looked at may be held.
        let mut unreachable = Vec::new();
        for reach in &seen.revoked {
            let Some(revoked) = self.revoked.get_mut(&reach.slab) else {
                continue;
            };
            if revoked.under_way {
                continue;
            }
            let (had_none, has_none) = (revoked.used_bytes == 0, reach.used_bytes == 0);
            if had_none != has_none {
                let Dirty { key, whose, .. } = revoked.of;
                self.replacements.has_pages(key, whose, has_none);
            }
            revoked.used_bytes = reach.used_bytes;
            revoked.was_alone &= reach.is_alone;
            // What was reserved goes with what was drawn, and none reserves anything once it is alone.
            let is_last = reach.is_alone && reach.used_bytes > 0 && !revoked.was_alone;
            if reach.holds_pages || is_last {
                revoked.under_way = true;
                revoked.was_alone = reach.is_alone;
                core.act(Action::EmptyAgain {
                    slab: reach.slab,
                    whose: revoked.of.whose,
                });
            } else if reach.is_alone && reach.used_bytes == 0 {
                unreachable.push(reach.slab);
            }
        }
        for slab in unreachable {
            if let Some(revoked) = self.revoked.remove(&slab) {
                self.forget(core, slab, revoked.of);
            }
        }
    }

    /// A revoked slab was emptied again.
    pub(super) fn emptied_again(&mut self, slab: SlabId) {
        if let Some(revoked) = self.revoked.get_mut(&slab) {
            revoked.under_way = false;
        }
    }

    /// No process can reach it any more.
    fn forget(&mut self, core: &mut Core, slab: SlabId, dirty: Dirty) {
        let Dirty {
            key,
            charge,
            whose,
            lease,
            ..
        } = dirty;
        self.out_of_reach(core, key, whose, Owed { charge, lease }, true);
        core.forget(slab, whose);
    }

    /// Credits a charge, now or when a clean slab has taken the place of what is back. Where
    /// filling is turned off none would ever.
    fn out_of_reach(
        &mut self,
        core: &mut Core,
        key: Key,
        whose: Whose,
        owed: Owed,
        has_pages: bool,
    ) {
        let lease = owed.lease;
        if let Some(serial) = lease {
            core.forget_lease(serial);
        }
        match self.replacements.out_of_reach(key, whose, owed, has_pages) {
            Some(owed) => core.settle([owed]),
            // Not written, the next daemon finds neither pipe nor file, and takes it for one whose pages were not seen.
            None => lease
                .into_iter()
                .for_each(|serial| core.act(Action::RecordOwed { serial, has_pages })),
        }
        if !core.filling.on {
            self.credit_all(core);
        }
    }

    /// For whom slabs of the class are to be filled yet.
    pub(super) fn owed(&self, key: Key) -> impl Iterator<Item = OwedTo> {
        self.replacements.owed(key)
    }

    /// Bytes of each class that are promised to what takes the places of slabs whose pages are back, or those that are
    /// of one that is being emptied, of which `used_bytes` are not yet, or of which some are pinned.
    pub(super) fn promised(&self, used_bytes: impl Fn(SlabId) -> u64) -> Vec<(Key, u64)> {
        let without = |dirty: &Dirty, used_bytes: u64| {
            let back_bytes = dirty.bytes.saturating_sub(used_bytes);
            (dirty.key, back_bytes.min(dirty.key.bytes))
        };
        let mut promised: Vec<_> = self.replacements.promised().collect();
        let emptying = self.dirty.iter().filter(|(_, dirty)| dirty.is_emptied);
        promised.extend(emptying.map(|(slab, dirty)| without(dirty, used_bytes(*slab))));
        let mut replaced = BTreeMap::new();
        for Revoked { of, used_bytes, .. } in self.revoked.values().filter(|one| one.used_bytes > 0)
        {
            let user = (of.key, of.whose);
            let replaced = replaced
                .entry(user)
                .or_insert_with(|| self.replacements.replaced_without_pages(of.key, of.whose));
            if *replaced > 0 {
                *replaced -= 1;
            } else {
                promised.push(without(of, *used_bytes));
            }
        }
        promised
    }

    /// A slab of the class is clean, in this user's turn: one that it gave back is replaced.
    pub(super) fn became_clean(
        &mut self,
        core: &mut Core,
        key: Key,
        whose: Whose,
        had_pages: bool,
    ) {
        let credited = self.replacements.became_clean(key, whose, had_pages);
        core.settle(credited);
    }

    /// Where a class lacks nothing, all that came back is replaced.
    pub(super) fn credit_full_classes(&mut self, core: &mut Core) {
        for key in core.slabs.full() {
            let credited = self.replacements.is_full(key);
            core.settle(credited);
        }
    }

    /// Nothing is replaced any more: what no process can reach is credited.
    pub(super) fn credit_all(&mut self, core: &mut Core) {
        let credited = self.replacements.none_is_replaced();
        core.settle(credited);
    }

    /// Clean slabs that go back to the kernel; how many bytes.
    pub(super) fn discard(&mut self, core: &mut Core, slabs: Vec<(SlabId, u64)>) -> u64 {
        let mut total = 0;
        for (slab, bytes) in slabs {
            total += bytes;
            self.discard_one(core, slab);
        }
        total
    }

    /// A slab that goes back to the kernel: no other process can reach it.
    pub(super) fn discard_one(&mut self, core: &mut Core, slab: SlabId) {
        core.unkeep_clean(slab);
        self.discarding.insert(slab);
        core.act(Action::Discard(slab));
    }

    pub(super) fn discarded(&mut self, slab: SlabId) {
        self.discarding.remove(&slab);
    }

    /// Of what is charged to an account, the part that waits for clean slabs, and why those
    /// do not come.
    pub(super) fn why_charged(&self, core: &Core, account: &Account) -> Option<String> {
        let reachable = self.reachable_bytes(account);
        if reachable > 0 {
            return Some(format!(
                "; {} of it was given back and can still be reached: a process has the memory open",
                Size::new(reachable)
            ));
        }
        let (key, bytes) = self.replacements.waiting_bytes(account)?;
        let why = match core.slabs.trouble_of(key) {
            Some(_) if core.slabs.fills(key) => "which is being filled".into(),
            Some(trouble) => format!("and none is filled: {trouble}"),
            None if core.is_paused => {
                "and filling is paused: the machine is short of memory".into()
            }
            None => "which is being filled".into(),
        };
        let bytes = Size::new(bytes);
        Some(format!("; {bytes} of it waits for a clean slab, {why}"))
    }

    /// Of what is charged to an account, bytes that were given back and can still be reached.
    pub(super) fn reachable_bytes(&self, account: &Account) -> u64 {
        let own = self.revoked.values();
        let own = own.filter(|revoked| revoked.of.charge.is_on(account));
        own.map(|revoked| revoked.of.bytes).sum()
    }

    /// Slabs that are on their way back; the daemon does not end before they are.
    pub(super) fn under_way(&self) -> usize {
        self.dirty.len() + self.discarding.len()
    }

    /// Slabs that revoked clients may still reach.
    pub(super) fn revoked(&self) -> impl Iterator<Item = SlabId> {
        self.revoked.keys().copied()
    }

    /// Bytes that are charged for these.
    pub(super) fn revoked_bytes(&self) -> u64 {
        self.revoked.values().map(|revoked| revoked.of.bytes).sum()
    }

    /// Bytes of these that are in use.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.revoked
            .values()
            .map(|revoked| revoked.used_bytes)
            .sum()
    }

    /// What is back of a user's, for a check from outside.
    #[cfg(test)]
    pub(super) fn back(&self, key: Key, whose: Whose) -> (bool, bool, usize) {
        self.replacements.back(key, whose)
    }

    /// All slabs that are back, for a check from outside.
    #[cfg(test)]
    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabId> {
        let dirty = self.dirty.keys().copied();
        dirty
            .chain(self.revoked())
            .chain(self.discarding.iter().copied())
    }
}
