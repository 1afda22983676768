//! The way back: from the end of a lease until nobody can reach its memory.
//!
//! Emptied at once, by a worker; then a revoked slab while another process still has it
//! open or pins its pages. It is charged as long, and until a clean slab has taken its place. In a trusted class a slab that
//! nobody else holds is zeroed in place instead.

use super::broker::Broker;
use super::workers::{Returning, Ticket};
use crate::fill::{Job, Tenure, Work};
use crate::lease::quota::Charge;
use crate::lease::{Former, Return, Serial};
use crate::store::Key;
use crate::store::slab::{Slab, SlabId};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A slab that is being emptied while no other such one is.
#[derive(Debug)]
pub(super) struct Measured {
    slab: SlabId,
    /// What the mounts counted as stray before.
    stray_before: u64,
    since: Instant,
}

/// After this long others are emptied too.
const STANDS_STILL: Duration = Duration::from_secs(1);

impl Broker {
    /// A lease is over: its memory is taken away, also from a client that still holds it.
    pub(super) fn end_lease(&mut self, serial: Serial) {
        let Some(lease) = self.leases.end(serial) else {
            return;
        };
        self.counters.returns += 1;
        // Before the slab is emptied: nothing is put back any more.
        let tenure = self.refills.end(serial).unwrap_or_default();
        match lease.slab {
            Some(slab) => self.revoke(serial, lease.key, slab, lease.charge, tenure),
            None => {
                self.store.forget_unknown(lease.slab_id);
                let returned = self.replacements.came_back(lease.key);
                self.out_of_reach(lease.key, returned, lease.charge);
                self.lease_is_over(serial);
            }
        }
    }

    /// A lease of an earlier daemon ended before this one began.
    pub(super) fn end_restored(&mut self, serial: Serial, key: Key, slab: Slab, charge: Charge) {
        self.revoke(serial, key, slab, charge, Arc::default());
    }

    fn revoke(
        &mut self,
        serial: Serial,
        key: Key,
        slab: Slab,
        charge: Charge,
        tenure: Arc<Tenure>,
    ) {
        // Not written, the next daemon finds its pipe closed, or takes it for a lease.
        let _ = self.journal.revoke(serial);
        self.take_back(key, slab, charge, Some((serial, tenure)));
    }

    /// Has what was taken out emptied; with its lease and the tenure of that, if it was allocated.
    pub(super) fn take_back(
        &mut self,
        key: Key,
        slab: Slab,
        charge: Charge,
        lease: Option<(Serial, Arc<Tenure>)>,
    ) {
        let was_lent = lease.is_some();
        let (serial, tenure) = lease.unzip();
        if !was_lent {
            // Not clean any more, whoever keeps it over a restart.
            self.keeper.forget(&slab);
        }
        let in_place = self.store.came_back(slab.id()) && was_lent && slab.bytes() == key.bytes;
        let returning = Box::new(Returning {
            key,
            slab,
            charge,
            returned: self.replacements.came_back(key),
            serial,
            tenure,
        });
        if in_place {
            self.zero_in_place(returning);
        } else {
            self.empty(returning);
        }
    }

    fn zero_in_place(&mut self, returning: Box<Returning>) {
        let (file, node) = (returning.slab.file(), returning.key.node);
        let (bytes, memfd) = (returning.key.bytes, returning.slab.is_memfd());
        let after = returning.tenure.clone();
        let work = Work::ZeroInPlace { bytes, memfd };
        let job = Job {
            after,
            ..Job::new(Ticket::ZeroInPlace(returning), file, work)
        };
        self.returning += 1;
        if self.workers.later(node, job).is_err() {
            self.returning -= 1;
        }
    }

    /// Has a slab emptied. Where it is to be seen what stays pinned of it, it is
    /// the only such one at the time, unless its client makes it stand still.
    pub(super) fn empty(&mut self, returning: Box<Returning>) {
        if returning.charge.is_free() || !returning.slab.is_counted() {
            return self.empty_now(returning);
        }
        self.to_empty.push_back(returning);
        self.empty_next();
    }

    pub(super) fn empty_next(&mut self) {
        let stands_still = |measured: &Measured| measured.since.elapsed() >= STANDS_STILL;
        if !self.measured.as_ref().is_none_or(stands_still) {
            return;
        }
        self.measured = None;
        if let Some(returning) = self.to_empty.pop_front() {
            self.measured = Some(Measured {
                slab: returning.slab.id(),
                stray_before: self.store.stray_bytes(),
                since: Instant::now(),
            });
            self.empty_now(returning);
        }
    }

    fn empty_now(&mut self, returning: Box<Returning>) {
        let file = returning.slab.file();
        let after = returning.tenure.clone();
        let job = Job {
            after,
            ..Job::new(Ticket::Empty(returning), file, Work::Empty)
        };
        self.returning += 1;
        if self.workers.take_away(job).is_err() {
            self.returning -= 1;
        }
    }

    pub(super) fn discard(&mut self, slabs: Vec<Slab>) -> u64 {
        let mut bytes = 0;
        for slab in slabs {
            self.keeper.forget(&slab);
            bytes += slab.bytes();
            let file = slab.file();
            let job = Job::new(Ticket::Discard(slab), file, Work::Empty);
            self.returning += 1;
            if self.workers.take_away(job).is_err() {
                self.returning -= 1;
            }
        }
        bytes
    }

    pub(super) fn emptied(&mut self, returning: Returning) {
        let Returning {
            key,
            slab,
            charge,
            returned,
            serial,
            ..
        } = returning;
        let bytes = slab.bytes();
        let mut pinned_bytes = 0;
        if !charge.is_free() && slab.is_counted() {
            let measured = self.measured.take_if(|measured| measured.slab == slab.id());
            // Of one that stood still all may be pinned; the next look knows better.
            pinned_bytes = measured.map_or(bytes, |measured| {
                let stray_bytes = self.store.stray_bytes();
                stray_bytes.saturating_sub(measured.stray_before).min(bytes)
            });
        }
        self.store.cleaned(&key, bytes, None);
        let former = Former {
            slab,
            key,
            charge,
            returned,
            serial,
            pinned_bytes,
            under_way: false,
        };
        if let Some(free) = self.formers.add(former) {
            self.forget(free);
        }
        self.empty_next();
    }

    pub(super) fn zeroed_in_place(&mut self, returning: Box<Returning>, result: io::Result<()>) {
        // Nobody may have come to hold it meanwhile either.
        if result.is_err() || !returning.slab.is_ours_alone().unwrap_or(false) {
            self.empty(returning);
            return;
        }
        let Returning {
            key,
            slab,
            charge,
            serial,
            ..
        } = *returning;
        if let Some(serial) = serial {
            self.lease_is_over(serial);
        }
        self.ledger.credit(charge);
        self.store.cleaned(&key, key.bytes, Some(slab));
        self.became_clean(key);
    }

    /// Looks at what revoked clients may still reach.
    pub(super) fn sweep_formers(&mut self) {
        if self.formers.is_empty() {
            return;
        }
        let swept = self.formers.sweep(self.store.stray_bytes());
        for former in swept.free {
            self.forget(former);
        }
        for (id, file) in swept.to_empty {
            let job = Job::new(Ticket::EmptyAgain(id), file, Work::Empty);
            if self.workers.take_away(job).is_err() {
                // Tried again at the next look.
                self.formers.emptied(id);
            }
        }
    }

    /// A client made its slab longer than what it was allocated: the rest goes back.
    pub(super) fn shorten(&mut self, serial: Serial) {
        let lease = self.leases.get(serial);
        let Some(slab) = lease.and_then(|lease| lease.slab.as_ref()) else {
            return;
        };
        let work = Work::Shorten {
            bytes: slab.bytes(),
        };
        let job = Job::new(Ticket::Shorten(serial), slab.file(), work);
        if self.workers.take_away(job).is_ok() {
            self.shortening.insert(serial);
        }
    }

    /// Nobody can reach it any more.
    pub(super) fn forget(&mut self, former: Former) {
        let Former {
            slab,
            key,
            charge,
            returned,
            serial,
            ..
        } = former;
        if let Some(serial) = serial {
            self.lease_is_over(serial);
        }
        self.out_of_reach(key, returned, charge);
        let _ = slab.discard();
    }

    /// Credits a charge, now or when a clean slab has taken the place of what is back.
    fn out_of_reach(&mut self, key: Key, returned: Return, charge: Charge) {
        let credited = self.replacements.out_of_reach(key, returned, charge);
        self.credit(credited);
    }

    /// A slab of the class is clean: one that came back is replaced.
    pub(super) fn became_clean(&mut self, key: Key) {
        let credited = self.replacements.became_clean(key);
        self.credit(credited);
    }

    /// Where a class lacks nothing, all that came back is replaced.
    pub(super) fn credit_full_classes(&mut self) {
        for key in self.store.full() {
            let credited = self.replacements.is_full(key);
            self.credit(credited);
        }
    }

    fn credit(&mut self, charges: impl IntoIterator<Item = Charge>) {
        for charge in charges {
            self.ledger.credit(charge);
        }
    }
}
