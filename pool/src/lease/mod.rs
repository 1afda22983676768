//! Leases: memory that is out, to whom, and when it is back.
//!
//! A lease lives until the last writing end of its lease pipe is closed, or it is
//! given back. What its client can still reach after that is a [`Former`]: it
//! stays charged, and is emptied again and again, until nobody else has it open.
//!
//! - [`quota`]: who may allocate, and how much;
//! - `pipe.rs`: the lease pipe; [`journal`]: leases on file, for the next daemon;
//! - `replace.rs`: what is charged until a clean slab takes the place of one that is back;
//! - `reserve.rs`: how much of what a guest gives back is kept ready for it.

mod former;
pub mod journal;
mod pipe;
pub mod quota;
mod replace;
mod reserve;

pub use former::{Former, Formers, Swept};
pub use pipe::{LeasePipe, Pipes};
pub use replace::{Replacements, Return};
pub use reserve::{Due, Reserve};

use crate::protocol::{LeaseId, LeaseRow};
use crate::store::Key;
use crate::store::slab::{Slab, SlabId};
use quota::Charge;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A lease's number, unique in the life of a daemon.
pub type Serial = u64;

/// Memory that is out.
#[derive(Debug)]
pub struct Lease {
    /// The slab; `None` where an earlier daemon allocated it and it was not found
    /// again: its bytes count until the lease ends.
    pub slab: Option<Slab>,
    /// Bytes of the slab.
    pub bytes: u64,
    /// The number of the slab.
    pub slab_id: SlabId,
    /// The class it came from.
    pub key: Key,
    /// What it is charged as.
    pub charge: Charge,
    /// The user it was allocated to.
    pub uid: u32,
    /// The process that asked.
    pub pid: u32,
    /// The connection it was taken on, if it was on one to this daemon.
    pub connection: Option<u64>,
    /// The reading end.
    pub pipe: LeasePipe,
    /// Since when.
    pub since: Instant,
}

/// The reader of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// Root or the daemon's user: all leases with their names.
    Owner,
    /// All leases, none with its name.
    Observer,
    /// Leases of this user; with a name those that were taken on this connection.
    User {
        /// The user.
        uid: u32,
        /// The connection.
        connection: u64,
    },
}

impl Viewer {
    fn sees(self, lease: &Lease) -> bool {
        match self {
            Self::Owner | Self::Observer => true,
            Self::User { uid, .. } => lease.uid == uid,
        }
    }

    /// Whether it may end the lease without showing the lease pipe. The user is not enough:
    /// under libvirt all VMMs are one user's.
    #[must_use]
    pub fn may_end(self, lease: &Lease) -> bool {
        match self {
            Self::Owner => true,
            Self::Observer => false,
            Self::User { connection, .. } => lease.connection == Some(connection),
        }
    }
}

/// All leases.
#[derive(Debug)]
pub struct Leases {
    /// What the names of this daemon's leases begin with.
    prefix: u32,
    next: Serial,
    live: BTreeMap<Serial, Lease>,
}

impl Leases {
    /// None yet; names of leases begin with `prefix`, and `next` is the next number: an
    /// earlier daemon on the same folder used others.
    #[must_use]
    pub fn new(prefix: u32, next: Serial) -> Self {
        Self {
            prefix,
            next,
            live: BTreeMap::new(),
        }
    }

    /// The number of the next lease.
    pub fn new_serial(&mut self) -> Serial {
        let serial = self.next;
        self.next += 1;
        serial
    }

    /// The name of a lease.
    ///
    /// # Errors
    /// Never, as long as a number is a name.
    pub fn id(&self, serial: Serial) -> Result<LeaseId, String> {
        LeaseId::new(format!("{:08x}-{serial}", self.prefix))
    }

    /// The number behind a name, if it is one of ours.
    #[must_use]
    pub fn serial(&self, id: &LeaseId) -> Option<Serial> {
        let (prefix, serial) = id.as_str().split_once('-')?;
        let serial: Serial = serial.parse().ok()?;
        // Compared as a whole, so that a lease has one name only.
        (format!("{:08x}", self.prefix) == prefix && self.id(serial).ok()? == *id).then_some(serial)
    }

    /// Begins a lease.
    pub fn insert(&mut self, serial: Serial, lease: Lease) {
        self.live.insert(serial, lease);
    }

    /// A lease.
    #[must_use]
    pub fn get(&self, serial: Serial) -> Option<&Lease> {
        self.live.get(&serial)
    }

    /// Ends a lease: it is the caller's to take the memory back.
    pub fn end(&mut self, serial: Serial) -> Option<Lease> {
        self.live.remove(&serial)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Connections on which leases were taken that still last.
    #[must_use]
    pub fn connections(&self) -> BTreeSet<u64> {
        let leases = self.live.values();
        leases.filter_map(|lease| lease.connection).collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Serial, &Lease)> {
        self.live.iter().map(|(serial, lease)| (*serial, lease))
    }

    /// A row for each lease that `viewer` may see.
    #[must_use]
    pub fn rows(&self, viewer: Viewer, now: Instant) -> Vec<LeaseRow> {
        let row = |(serial, lease): (Serial, &Lease)| {
            let age = now.saturating_duration_since(lease.since);
            let name = viewer.may_end(lease).then(|| self.id(serial));
            Some(LeaseRow {
                lease: name.transpose().ok()?,
                bytes: lease.bytes,
                page: lease.key.page,
                node: lease.key.node,
                pid: lease.pid,
                uid: lease.uid,
                age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            })
        };
        let seen = self.iter().filter(|(_, lease)| viewer.sees(lease));
        seen.filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_name() {
        let mut leases = Leases::new(0xabc, 1);
        let serial = leases.new_serial();
        let id = leases.id(serial).unwrap();
        assert_eq!(id.as_str(), "00000abc-1");
        assert_eq!(leases.serial(&id), Some(1));
        assert_eq!(leases.new_serial(), 2);
        for name in ["00000abd-1", "00000abc-01", "abc-1", "00000abc-", "1"] {
            let other = LeaseId::new(name).unwrap();
            assert_eq!(leases.serial(&other), None, "{name}");
        }
    }
}
