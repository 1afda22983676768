//! Leases: memory that is out, to whom, and since when.

use super::action::ConnectionId;
use crate::lease::quota::Charge;
use crate::lease::{Serial, Whose};
use crate::protocol::{GrantId, Label, LeaseId, LeaseRow};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Memory that is out.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The slab.
    pub slab: SlabId,
    /// Whether its memory is known: that of a lease from an earlier daemon may not have been
    /// found again. Its bytes count until the lease ends.
    pub has_memory: bool,
    /// Bytes of the slab.
    pub bytes: u64,
    /// The class it came from.
    pub key: Key,
    /// What it is charged as.
    pub charge: Charge,
    /// The user it was allocated to.
    pub uid: u32,
    /// For whom it counts.
    pub whose: Whose,
    /// The process that requested it.
    pub pid: u32,
    /// The connection it was taken on, if it was on one to this daemon.
    pub connection: Option<ConnectionId>,
    /// Since when.
    pub since: Instant,
    /// What its client calls the guest.
    pub label: Option<Label>,
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
        connection: ConnectionId,
    },
    /// Leases of this grant, whichever users took them; with a name those that were taken on this connection.
    Grant {
        /// The grant.
        grant: GrantId,
        /// The connection.
        connection: ConnectionId,
    },
}

impl Viewer {
    fn sees(self, lease: &Lease) -> bool {
        match self {
            Self::Owner | Self::Observer => true,
            // What was taken by a grant is the grant's, whichever user took it.
            Self::User { uid, .. } => lease.uid == uid && lease.whose.grant().is_none(),
            Self::Grant { grant, .. } => lease.whose == Whose::Grant(grant),
        }
    }

    /// Whether it sees this grant.
    pub(super) fn sees_grant(self, id: GrantId) -> bool {
        match self {
            Self::Owner | Self::Observer => true,
            Self::User { .. } => false,
            Self::Grant { grant, .. } => grant == id,
        }
    }

    /// Whether it may end the lease by its name. The user is not enough:
    /// under libvirt all VMMs are one user's.
    #[must_use]
    pub fn may_end(self, lease: &Lease) -> bool {
        match self {
            Self::Owner => true,
            Self::Observer => false,
            Self::User { connection, .. } | Self::Grant { connection, .. } => {
                lease.connection == Some(connection)
            }
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

    /// What the names of this daemon's leases begin with.
    pub(super) fn prefix(&self) -> u32 {
        self.prefix
    }

    pub(super) fn new_serial(&mut self) -> Serial {
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

    pub(super) fn insert(&mut self, serial: Serial, lease: Lease) {
        self.live.insert(serial, lease);
    }

    /// A lease.
    #[must_use]
    pub fn get(&self, serial: Serial) -> Option<&Lease> {
        self.live.get(&serial)
    }

    pub(super) fn end(&mut self, serial: Serial) -> Option<Lease> {
        self.live.remove(&serial)
    }

    /// Connections on which leases were taken that still last.
    #[must_use]
    pub fn connections(&self) -> BTreeSet<ConnectionId> {
        let leases = self.live.values();
        leases.filter_map(|lease| lease.connection).collect()
    }

    /// How many were taken by a grant.
    pub(super) fn by_grant(&self, id: GrantId) -> u32 {
        let leases = self.live.values();
        let own = leases.filter(|lease| lease.whose == Whose::Grant(id));
        u32::try_from(own.count()).unwrap_or(u32::MAX)
    }

    /// How many were taken by each grant.
    pub(super) fn by_grants(&self) -> BTreeMap<GrantId, u32> {
        let mut held = BTreeMap::new();
        for grant in self.live.values().filter_map(|lease| lease.whose.grant()) {
            *held.entry(grant).or_default() += 1;
        }
        held
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
            let reads_names = viewer.may_end(lease);
            let name = reads_names.then(|| self.id(serial));
            Some(LeaseRow {
                lease: name.transpose().ok()?,
                bytes: lease.bytes,
                page: lease.key.page,
                node: lease.key.node,
                pid: lease.pid,
                uid: lease.uid,
                age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
                label: lease.label.clone().filter(|_| reads_names),
                grant: lease.whose.grant(),
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
