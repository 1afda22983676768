//! What an earlier daemon left: clean slabs, and leases, known from the journal, found again
//! by their pipes and, where a service manager kept it, by their memory.
//!
//! | memory | pipe | what it is now |
//! |---|---|---|
//! | kept | open | a lease as before |
//! | kept | closed, or revoked | on its way back: emptied, and charged while it can be reached |
//! | not kept | open, with a byte in it, too | unknown: counted and charged until the pipe is closed |
//! | not kept | closed | over, and charged until a clean slab is in its place |

use super::Machine;
use super::action::{Action, Now};
use super::leases::Lease;
use super::returns::Returned;
use crate::lease::journal::Record;
use crate::lease::{Owed, Whose};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::time::{Duration, Instant};

/// A lease of an earlier daemon, and what was found of it.
#[derive(Debug, Clone)]
pub struct Before {
    /// What the journal says. Of one that is owed neither memory nor pipe is looked for.
    pub record: Record,
    /// For whom it counts.
    pub whose: Whose,
    /// Whether its memory was found.
    pub has_memory: bool,
    /// Whether its pipe is open; where its memory was found, and without a byte in it.
    pub has_pipe: bool,
}

/// What it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// A lease as before, with this slab.
    Whole(SlabId),
    /// A lease whose memory was not found.
    Unknown,
    /// Over; this slab is on its way back, if its memory was found.
    Ended(Option<SlabId>),
}

impl Machine {
    /// A clean slab of an earlier daemon; whether it is kept. One that is not is closed.
    pub fn found(&mut self, slab: SlabId, key: Key) -> (bool, Vec<Action>) {
        let kept = self.core.slabs.found(slab, key);
        if kept {
            self.core.keep_clean(slab);
        }
        (kept, std::mem::take(&mut self.core.actions))
    }

    /// The number of a slab that an earlier daemon's service manager kept.
    pub fn new_slab(&mut self) -> SlabId {
        self.core.slabs.new_id()
    }

    /// The daemon was started by a client.
    pub fn activated(&mut self, now: Instant) {
        self.takes.activated(&self.core, now);
    }

    /// Takes a lease of an earlier daemon up. The actions are to be carried out once its file
    /// is known by the number of its slab.
    pub fn restore(&mut self, now: Now, before: Before) -> (Restored, Vec<Action>) {
        let restored = self.restore_one(now, before);
        (restored, std::mem::take(&mut self.core.actions))
    }

    fn restore_one(&mut self, now: Now, before: Before) -> Restored {
        let Before {
            record,
            whose,
            has_memory,
            has_pipe,
        } = before;
        let core = &mut self.core;
        let (serial, key) = (record.serial, record.key());
        core.ledger.book(&record.charge);
        if !has_memory && !has_pipe {
            core.slabs.know(key);
            let owed = Owed {
                charge: record.charge,
                lease: Some(serial),
            };
            self.returns
                .came_back_before(core, key, whose, owed, record.owed && !record.lost);
            return Restored::Ended(None);
        }
        let slab = core.slabs.allocated_before(key, record.bytes, has_memory);
        if has_memory && (!has_pipe || record.revoked) {
            let returned = Returned {
                slab,
                key,
                bytes: record.bytes,
                charge: record.charge,
                whose,
                lease: Some(serial),
            };
            self.returns.revoke(core, serial, returned);
            return Restored::Ended(Some(slab));
        }
        let age = Duration::from_millis(now.wall_ms.saturating_sub(record.since_ms));
        let lease = Lease {
            slab,
            has_memory,
            bytes: record.bytes,
            key,
            charge: record.charge,
            uid: record.uid,
            whose,
            pid: record.pid,
            connection: None,
            since: now.instant.checked_sub(age).unwrap_or(now.instant),
            label: record.label,
        };
        core.leases.insert(serial, lease);
        if has_memory {
            Restored::Whole(slab)
        } else {
            Restored::Unknown
        }
    }
}
