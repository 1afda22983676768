//! Leases of an earlier daemon: known from the journal, found again by their pipes and,
//! where a service manager kept it, by their memory.
//!
//! | memory | pipe | what it is now |
//! |---|---|---|
//! | kept | open | a lease as before |
//! | kept | closed, or revoked | on its way back: emptied, and charged while it can be reached |
//! | not kept | open | unknown: counted and charged until the pipe is closed |
//! | not kept | closed | over |

use super::broker::Broker;
use crate::lease::journal::Record;
use crate::lease::{Lease, Serial};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds of the machine's clock.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

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

impl Broker {
    /// Takes up the leases of an earlier daemon; `files` are those that were kept.
    pub(super) fn restore(&mut self, mut files: BTreeMap<Serial, OwnedFd>) -> Found {
        let mut found = Found::default();
        let records: Vec<Record> = self.journal.records().cloned().collect();
        for record in records {
            let file = files.remove(&record.serial);
            if file.is_some() {
                self.keeper.had_lease(record.serial);
            }
            self.restore_one(record, file, &mut found);
        }
        // Files of leases that are over: their memory goes with the last holder.
        for serial in files.into_keys() {
            self.keeper.forget_lease(serial);
        }
        // Those that cannot be removed cost a name each.
        let journal = &self.journal;
        let is_live = |serial| journal.records().any(|record| record.serial == serial);
        let _ = self.pipes.retain(is_live);
        found
    }

    fn restore_one(&mut self, record: Record, file: Option<OwnedFd>, found: &mut Found) {
        let (serial, key) = (record.serial, record.key());
        // A pipe that cannot be looked at counts as closed only where there is the memory
        // itself to look at.
        let pipe = self.pipes.find(serial).ok().flatten();
        if file.is_none() && pipe.is_none() {
            found.ended += 1;
            return self.lease_is_over(serial);
        }
        self.ledger.book(&record.charge);
        let (slab_id, slab) = self.store.adopt_lent(key, record.bytes, file, record.memfd);
        match (slab, pipe) {
            (None, None) => {
                found.ended += 1;
                self.store.forget_unknown(slab_id);
                self.ledger.credit(record.charge);
                self.lease_is_over(serial);
            }
            (slab, Some(pipe)) if slab.is_none() || !record.revoked => {
                found.whole += usize::from(slab.is_some());
                found.unknown += usize::from(slab.is_none());
                let age = Duration::from_millis(now_ms().saturating_sub(record.since_ms));
                let now = Instant::now();
                let lease = Lease {
                    slab,
                    bytes: record.bytes,
                    slab_id,
                    key,
                    charge: record.charge,
                    uid: record.uid,
                    pid: record.pid,
                    connection: None,
                    pipe,
                    since: now.checked_sub(age).unwrap_or(now),
                };
                let budget_bytes = self.store.refill_bytes(&key);
                self.refills.begin(serial, &lease, budget_bytes);
                self.leases.insert(serial, lease);
            }
            (Some(slab), _) => {
                found.ended += 1;
                self.end_restored(serial, key, slab, record.charge);
            }
            (None, Some(_)) => {}
        }
    }
}
