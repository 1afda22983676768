//! What is to be seen of the machine.

use super::Machine;
use super::action::ConnectionId;
use super::leases::{Leases, Viewer};
use crate::lease::quota::{Account, Rules, Standing};
use crate::os::peer::Peer;
use crate::protocol::{
    Counters, Gauges, MOST_GRANT_ROWS, MOST_QUOTA_NAME, MOST_QUOTA_ROWS, MOST_STATUS_ROWS, PoolRow,
    QuotaOf, QuotaRow, Status, StatusQuery,
};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::BTreeMap;
use std::time::Instant;

/// Rows of leases in one status for a user: a reply that it leaves unread is the daemon's memory.
const MOST_ROWS_OF_A_USER: usize = 40;

/// Rows of pools and leases beside which rows of quotas come.
const MOST_ROWS_BESIDE_QUOTAS: usize = 100;

impl Machine {
    /// What the pool holds, as far as `viewer` may see it: the owner of the machine fills in
    /// what the machine does not know, the process and its connections.
    pub(super) fn status(&self, viewer: Viewer, query: StatusQuery, now: Instant) -> Status {
        let (pools, more_pools) = part(self.rows(), query.skip_pools, MOST_STATUS_ROWS);
        let most = match viewer {
            Viewer::User { .. } | Viewer::Grant { .. } => MOST_ROWS_OF_A_USER,
            Viewer::Owner | Viewer::Observer => MOST_STATUS_ROWS,
        };
        let rows = self.core.leases.rows(viewer, now);
        let (leases, more_leases) = part(rows, query.skip_leases, most);
        // They are long: behind the others, if those are many.
        let has_space = pools.len() + leases.len() <= MOST_ROWS_BESIDE_QUOTAS;
        let most = |rows| if has_space { rows } else { 0 };
        let (quotas, more_quotas) = part(
            self.quotas(viewer),
            query.skip_quotas,
            most(MOST_QUOTA_ROWS),
        );
        let (grants, more_grants) = part(
            self.grants_seen(viewer),
            query.skip_grants,
            most(MOST_GRANT_ROWS),
        );
        let grants = self.grant_rows(&grants);
        let mut counters = self.core.counters.clone();
        counters.take_times = self.takes.times().summary();
        let uptime = now.saturating_duration_since(self.begin);
        Status {
            daemon_pid: 0,
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            draining: self.core.slabs.is_draining(),
            pools,
            more_pools,
            leases,
            more_leases,
            quotas,
            more_quotas,
            grants,
            more_grants,
            counters,
            version: env!("CARGO_PKG_VERSION").into(),
            gauges: self.gauges(),
        }
    }

    /// What accounts are charged, for those that see all figures.
    fn quotas(&self, viewer: Viewer) -> Vec<QuotaRow> {
        if let Viewer::User { .. } | Viewer::Grant { .. } = viewer {
            return Vec::new();
        }
        let mut held: BTreeMap<&Account, u64> = BTreeMap::new();
        for lease in self.core.leases.iter().map(|(_, lease)| lease) {
            for account in lease.charge.accounts() {
                *held.entry(account).or_default() += lease.charge.bytes();
            }
        }
        let row = |(account, most_bytes, charged_bytes): (&Account, _, u64)| {
            let held_bytes = held.get(account).copied().unwrap_or(0);
            let (of, name) = match account {
                Account::Uid(uid) => (QuotaOf::User, uid.to_string()),
                Account::Group(gid) => (QuotaOf::Group, gid.to_string()),
                Account::Cgroup(path) => (
                    QuotaOf::Cgroup,
                    path.chars().take(MOST_QUOTA_NAME).collect(),
                ),
                Account::Member(uid) => (QuotaOf::Member, uid.to_string()),
                // These have rows of their own.
                Account::Grant(_) => return None,
            };
            Some(QuotaRow {
                of,
                name,
                most_bytes,
                charged_bytes,
                held_bytes,
                owed_bytes: charged_bytes.saturating_sub(held_bytes),
            })
        };
        self.core
            .ledger
            .accounts(&self.core.rules)
            .filter_map(row)
            .collect()
    }

    fn gauges(&self) -> Gauges {
        let revoked = self.returns.revoked().count();
        Gauges {
            connections: 0,
            revoked_slabs: u32::try_from(revoked).unwrap_or(u32::MAX),
            revoked_bytes: self.returns.revoked_bytes(),
            pinned_bytes: self.returns.pinned_bytes(),
            topping_up_slabs: u32::try_from(self.takes.topping_up()).unwrap_or(u32::MAX),
            paused: self.core.is_paused,
            fill: Some(self.core.filling.clone()),
        }
    }

    fn rows(&self) -> Vec<PoolRow> {
        let mut rows = self.core.slabs.rows();
        for row in &mut rows {
            if row.trouble.is_none() && row.filling_slabs > 0 && self.core.is_paused {
                row.trouble = Some("paused: the machine is short of memory".into());
            }
            if row.trouble.is_none() && row.filling_slabs > 0 && !self.core.filling.on {
                row.trouble = Some("filling is turned off".into());
            }
        }
        rows
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.core.rules
    }

    /// What a peer may do.
    #[must_use]
    pub fn standing(&self, peer: &Peer) -> Standing {
        self.core.rules.standing(peer)
    }

    /// All leases.
    #[must_use]
    pub fn leases(&self) -> &Leases {
        &self.core.leases
    }

    /// What is charged to an account, for a check from outside.
    #[cfg(test)]
    pub(crate) fn charged(&self, account: &Account) -> u64 {
        self.core.ledger.used(account)
    }

    /// Slabs that revoked clients may still reach: to be looked at for the next tick.
    pub fn revoked(&self) -> impl Iterator<Item = SlabId> {
        self.returns.revoked()
    }

    /// Bytes of each class that are to be left for slabs that take the places of others: their pages are back, or coming
    /// back, but for so many bytes that a slab still uses. Those that are being filled have theirs.
    pub fn promised(&self, used_bytes: impl Fn(SlabId) -> u64) -> Vec<(Key, u64)> {
        let mut promised = self.returns.promised(used_bytes);
        for key in self.fills.with_pages() {
            let mut of_class = promised.iter_mut().filter(|(class, _)| *class == key);
            if let Some((_, bytes)) = of_class.find(|(_, bytes)| *bytes >= key.bytes) {
                *bytes -= key.bytes;
            }
        }
        promised
    }

    /// Slabs that are being filled: [`Machine::progress`] says how far they are.
    pub fn filling(&self) -> impl Iterator<Item = SlabId> {
        self.core.slabs.filling()
    }

    /// A slab that is being filled has so many bytes.
    pub fn progress(&mut self, slab: SlabId, bytes: u64) {
        self.core.slabs.progress(slab, bytes);
    }

    /// So many bytes of a slab that only the daemon reaches were zeroed in so long.
    pub fn zeroed(&mut self, bytes: u64, ns: u64) {
        self.core.speed.measured(bytes, ns);
    }

    /// What happened, for the owner of the machine to count in what it did itself.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.core.counters
    }

    /// Slabs that are allocated, unknown ones among them.
    #[must_use]
    pub fn allocated_slabs(&self) -> usize {
        self.core.slabs.allocated()
    }

    /// Slabs that are clean or being filled.
    #[must_use]
    pub fn ready_slabs(&self) -> usize {
        self.core.slabs.ready()
    }

    /// Bytes of slabs that are to be filled yet, and of those that are clean.
    #[must_use]
    pub fn fill_bytes(&self) -> (u64, u64) {
        self.core.slabs.fill_bytes()
    }

    /// Nodes that have classes.
    #[must_use]
    pub fn nodes(&self) -> Vec<Option<u32>> {
        self.core.slabs.nodes()
    }

    /// The names of all classes.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let specs = self.core.slabs.specs().into_iter();
        specs.map(|spec| spec.key).collect()
    }

    /// Of what a guest on a slab of this class gives back, how much is kept ready for it.
    #[must_use]
    pub fn refill_bytes(&self, key: Key) -> u64 {
        self.core.slabs.refill_bytes(key)
    }

    /// Whether it allocates no more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.core.slabs.is_draining()
    }

    /// Classes that do not grow, and why.
    pub fn troubles(&self) -> impl Iterator<Item = (Key, &str)> {
        self.core.slabs.troubles()
    }

    /// The connections on which leases were taken that still last.
    #[must_use]
    pub fn connections(&self) -> std::collections::BTreeSet<ConnectionId> {
        self.core.leases.connections()
    }
}

/// Rows from `skip` on, as many as go into one reply, and how many follow.
fn part<T>(rows: Vec<T>, skip: u32, most: usize) -> (Vec<T>, u32) {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let left = rows.len().saturating_sub(skip);
    let part: Vec<T> = rows.into_iter().skip(skip).take(most).collect();
    let more = u32::try_from(left - part.len()).unwrap_or(u32::MAX);
    (part, more)
}
