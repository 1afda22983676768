//! The way back: from the end of a lease until no process can reach its memory.
//!
//! Emptied at once, by a worker; then a revoked slab while another process still has it open
//! or pins its pages. It is charged as long, and until a clean slab has taken its place. In a
//! trusted class a slab that no other process holds is zeroed in place instead.
//!
//! A client that kept a descriptor or a mapping can draw new pages through it, at least on
//! hugetlbfs, where mapping a file makes it longer even if it is sealed. The kernel cannot be
//! told to refuse that. So a revoked slab is emptied again whenever it holds pages. Pages that
//! were pinned when it was emptied are in no file any more, but a mount still counts them: as
//! long as it counts as many as its revoked slabs account for, these stay charged too. Where it
//! is not known how many of a slab are pinned, all are taken for pinned until the next look.

use super::action::{Action, Now, Seen};
use super::core::Core;
use super::revoked::AllRevoked;
use crate::config::Size;
use crate::lease::quota::{Account, Charge};
use crate::lease::{Replacements, Return, Serial};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// After this long others are emptied too.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// A slab that comes back.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) slab: SlabId,
    pub(super) key: Key,
    pub(super) bytes: u64,
    pub(super) charge: Charge,
    /// Whose it was, or was to be.
    pub(super) user: u32,
    /// The lease it had, if a client has had it.
    pub(super) lease: Option<Serial>,
    /// Whether an earlier daemon allocated it, and may have emptied it: what was pinned then would
    /// not be seen to stay behind now.
    pub(super) is_of_before: bool,
}

/// A slab that is being emptied or zeroed.
#[derive(Debug)]
struct Dirty {
    key: Key,
    bytes: u64,
    charge: Charge,
    returned: Return,
    lease: Option<Serial>,
    is_of_before: bool,
}

/// A slab that is being emptied while no other such one is.
#[derive(Debug)]
struct Measured {
    slab: SlabId,
    since: Instant,
    /// What revoked slabs accounted for then.
    pinned_bytes: u64,
}

/// The service that takes slabs back.
#[derive(Debug, Default)]
pub(super) struct Returns {
    dirty: BTreeMap<SlabId, Dirty>,
    /// Of these, slabs to be emptied one after the other, to see what stays pinned of each.
    queue: VecDeque<SlabId>,
    /// The one of these that is being emptied.
    measured: Option<Measured>,
    revoked: AllRevoked<Dirty>,
    /// Clean slabs that go back to the kernel.
    discarding: BTreeSet<SlabId>,
    replacements: Replacements,
}

impl Returns {
    /// A lease is over: its memory is taken away, also from a client that still holds it.
    pub(super) fn end_lease(&mut self, core: &mut Core, now: Now, serial: Serial) {
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
                user: lease.user,
                lease: Some(serial),
                is_of_before: lease.connection.is_none(),
            };
            return self.revoke(core, now, serial, returned);
        }
        core.slabs.forget_unknown(lease.slab);
        let returned = self.replacements.came_back(lease.key, lease.user);
        self.out_of_reach(core, lease.key, returned, lease.charge);
        core.lease_is_over(serial);
    }

    pub(super) fn revoke(&mut self, core: &mut Core, now: Now, serial: Serial, returned: Returned) {
        // Not written, the next daemon finds its pipe closed, or takes it for a lease.
        core.act(Action::RecordRevoked(serial));
        self.take_back(core, now, returned);
    }

    /// Has what was taken out emptied; with its lease, if a client has had it.
    pub(super) fn take_back(&mut self, core: &mut Core, now: Now, returned: Returned) {
        let Returned {
            slab,
            key,
            bytes,
            charge,
            user,
            lease,
            is_of_before,
        } = returned;
        if lease.is_none() {
            // Not clean any more, whatever keeps it over a restart.
            core.unkeep_clean(slab);
        }
        let may_be_zeroed = core.slabs.came_back(slab, key) && bytes == key.bytes;
        let dirty = Dirty {
            key,
            bytes,
            charge,
            returned: self.replacements.came_back(key, user),
            lease,
            is_of_before,
        };
        self.dirty.insert(slab, dirty);
        match lease {
            Some(lease) if may_be_zeroed => core.act(Action::ZeroInPlace {
                slab,
                node: key.node,
                lease,
            }),
            _ => self.empty(core, now, slab),
        }
    }

    /// Has a slab emptied. Where it is to be seen what stays pinned of it, it is the only such
    /// one at the time, unless its client makes it stand still.
    fn empty(&mut self, core: &mut Core, now: Now, slab: SlabId) {
        let Some(dirty) = self.dirty.get(&slab) else {
            return;
        };
        if dirty.charge.is_free() || core.memfds.contains(&slab) || dirty.is_of_before {
            return core.act(Action::Empty {
                slab,
                lease: dirty.lease,
                is_measured: false,
            });
        }
        self.queue.push_back(slab);
        self.empty_next(core, now);
    }

    pub(super) fn empty_next(&mut self, core: &mut Core, now: Now) {
        let stands_still = |measured: &Measured| {
            now.instant.saturating_duration_since(measured.since) >= STANDS_STILL
        };
        if !self.measured.as_ref().is_none_or(stands_still) {
            return;
        }
        self.measured = None;
        if let Some(slab) = self.queue.pop_front() {
            self.measured = Some(Measured {
                slab,
                since: now.instant,
                pinned_bytes: self.pinned_bytes(),
            });
            core.act(Action::Empty {
                slab,
                lease: self.dirty.get(&slab).and_then(|dirty| dirty.lease),
                is_measured: true,
            });
        }
    }

    /// The mounts are measured for the slab that is emptied: what revoked slabs account for is of the same moment.
    pub(super) fn is_measured(&mut self, slab: SlabId) {
        let pinned_bytes = self.pinned_bytes();
        if let Some(measured) = self.measured.as_mut().filter(|one| one.slab == slab) {
            measured.pinned_bytes = pinned_bytes;
        }
    }

    /// A slab's pages were taken away; `stray_bytes` stayed behind if that was measured.
    pub(super) fn emptied(
        &mut self,
        core: &mut Core,
        now: Now,
        slab: SlabId,
        is_alone: bool,
        stray_bytes: u64,
    ) {
        let Some(dirty) = self.dirty.remove(&slab) else {
            return;
        };
        let mut pinned_bytes = 0;
        if !dirty.charge.is_free() && !core.memfds.contains(&slab) {
            let measured = self.measured.take_if(|measured| measured.slab == slab);
            // What others unpinned meanwhile hides as much of what stayed behind. Of a slab that
            // stood still all may be pinned.
            let stayed = |measured: Measured| {
                let unpinned = measured.pinned_bytes.saturating_sub(self.pinned_bytes());
                (stray_bytes + unpinned).min(dirty.bytes)
            };
            pinned_bytes = measured.map_or(dirty.bytes, stayed);
        }
        core.slabs.emptied(dirty.key, dirty.bytes);
        if is_alone && pinned_bytes == 0 {
            self.forget(core, slab, dirty);
        } else {
            self.revoked.add(slab, dirty, pinned_bytes);
        }
        self.empty_next(core, now);
    }

    /// A slab was zeroed in place, and no other process has come to hold it meanwhile.
    pub(super) fn zeroed(&mut self, core: &mut Core, now: Now, slab: SlabId, is_clean: bool) {
        if !is_clean {
            return self.empty(core, now, slab);
        }
        let Some(dirty) = self.dirty.remove(&slab) else {
            return;
        };
        if let Some(serial) = dirty.lease {
            core.lease_is_over(serial);
        }
        core.credit([dirty.charge]);
        if core.slabs.zeroed(slab, dirty.key) {
            self.became_clean(core, dirty.key, dirty.returned.user());
        } else {
            core.forget(slab);
        }
    }

    /// What revoked clients can do at this moment.
    pub(super) fn look(&mut self, core: &mut Core, seen: &Seen) {
        // Pins that account for more than the mounts count are gone, the oldest first.
        let mut too_much = self.pinned_bytes().saturating_sub(seen.stray_bytes);
        for revoked in self.revoked.iter_mut() {
            let gone = revoked.pinned_bytes.min(too_much);
            revoked.pinned_bytes -= gone;
            too_much -= gone;
        }
        // What was not looked at may be held, and holds nothing.
        let mut unreachable = Vec::new();
        for reach in &seen.revoked {
            let Some(revoked) = self.revoked.get_mut(reach.slab) else {
                continue;
            };
            // What its client drew may be pinned.
            let is_empty = revoked.pinned_bytes == 0 && !reach.holds_pages;
            if revoked.under_way {
                continue;
            }
            if reach.is_alone && is_empty {
                unreachable.push(reach.slab);
            } else if reach.holds_pages {
                revoked.under_way = true;
                core.act(Action::EmptyAgain(reach.slab));
            }
        }
        for slab in unreachable {
            if let Some(revoked) = self.revoked.remove(slab) {
                self.forget(core, slab, revoked.of);
            }
        }
    }

    /// A revoked slab was emptied again: pages that its client drew may be pinned too.
    pub(super) fn emptied_again(&mut self, core: &Core, slab: SlabId) {
        let Some(revoked) = self.revoked.get_mut(slab) else {
            return;
        };
        revoked.under_way = false;
        if !revoked.of.charge.is_free() && !core.memfds.contains(&slab) {
            revoked.pinned_bytes = revoked.of.bytes;
        }
    }

    /// No process can reach it any more.
    fn forget(&mut self, core: &mut Core, slab: SlabId, dirty: Dirty) {
        if let Some(serial) = dirty.lease {
            core.lease_is_over(serial);
        }
        self.out_of_reach(core, dirty.key, dirty.returned, dirty.charge);
        core.forget(slab);
    }

    /// Credits a charge, now or when a clean slab has taken the place of what is back. Where
    /// filling is turned off none would ever.
    fn out_of_reach(&mut self, core: &mut Core, key: Key, returned: Return, charge: Charge) {
        let credited = self.replacements.out_of_reach(key, returned, charge);
        core.credit(credited);
        if !core.filling.on {
            self.credit_all(core);
        }
    }

    /// Users for whom slabs of the class are to be filled yet, and how many.
    pub(super) fn owed(&self, key: Key) -> impl Iterator<Item = (u32, u64)> {
        self.replacements.owed(key)
    }

    /// A slab of the class is clean, in this user's turn: one that it gave back is replaced.
    pub(super) fn became_clean(&mut self, core: &mut Core, key: Key, user: u32) {
        let credited = self.replacements.became_clean(key, user);
        core.credit(credited);
    }

    /// Where a class lacks nothing, all that came back is replaced.
    pub(super) fn credit_full_classes(&mut self, core: &mut Core) {
        for key in core.slabs.full() {
            let credited = self.replacements.is_full(key);
            core.credit(credited);
        }
    }

    /// Nothing is replaced any more: what no process can reach is credited.
    pub(super) fn credit_all(&mut self, core: &mut Core) {
        let credited = self.replacements.none_is_replaced();
        core.credit(credited);
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
        core.memfds.remove(&slab);
        self.discarding.insert(slab);
        core.act(Action::Discard(slab));
    }

    pub(super) fn discarded(&mut self, slab: SlabId) {
        self.discarding.remove(&slab);
    }

    /// Of what is charged to an account, the part that waits for clean slabs, and why those
    /// do not come.
    pub(super) fn why_charged(&self, core: &Core, account: &Account) -> Option<String> {
        let reachable = self
            .revoked
            .iter()
            .filter(|revoked| revoked.of.charge.is_on(account));
        let reachable: u64 = reachable.map(|revoked| revoked.of.bytes).sum();
        if reachable > 0 {
            return Some(format!(
                "; {} of it was given back and can still be reached: a process has the memory open",
                Size::new(reachable)
            ));
        }
        let (key, bytes) = self.replacements.waiting(account)?;
        let why = match core.slabs.trouble_of(key) {
            Some(trouble) => format!("and none is filled: {trouble}"),
            None if core.is_paused => {
                "and filling is paused: the machine is short of memory".into()
            }
            None => "which is being filled".into(),
        };
        let bytes = Size::new(bytes);
        Some(format!("; {bytes} of it waits for a clean slab, {why}"))
    }

    /// Slabs that are on their way back; the daemon does not end before they are.
    pub(super) fn under_way(&self) -> usize {
        self.dirty.len() + self.discarding.len()
    }

    /// Slabs that revoked clients may still reach.
    pub(super) fn revoked(&self) -> impl Iterator<Item = SlabId> {
        self.revoked.slabs()
    }

    /// Bytes that are charged for these.
    pub(super) fn revoked_bytes(&self) -> u64 {
        self.revoked.iter().map(|revoked| revoked.of.bytes).sum()
    }

    /// Bytes that revoked clients have pinned.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.revoked
            .iter()
            .map(|revoked| revoked.pinned_bytes)
            .sum()
    }

    /// All slabs that are back, for a check from outside.
    #[cfg(test)]
    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabId> {
        let dirty = self.dirty.keys().copied();
        dirty
            .chain(self.revoked())
            .chain(self.discarding.iter().copied())
    }

    /// Since when a slab waits for another to be emptied, for a check from outside.
    #[cfg(test)]
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let measured = self.measured.as_ref().filter(|_| !self.queue.is_empty());
        measured.map(|measured| measured.since)
    }
}
