//! What is to be seen of the machine.

use super::Machine;
use super::action::ConnectionId;
use super::leases::{Leases, Viewer};
use crate::lease::quota::{Rules, Standing};
use crate::os::peer::Peer;
use crate::protocol::{Counters, Gauges, MOST_STATUS_ROWS, PoolRow, Status, StatusQuery};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::time::Instant;

impl Machine {
    /// What the pool holds, as far as `viewer` may see it: the owner of the machine fills in
    /// what the machine does not know, the process and its connections.
    pub(super) fn status(&self, viewer: Viewer, query: StatusQuery, now: Instant) -> Status {
        let (pools, more_pools) = part(self.rows(), query.skip_pools);
        let (leases, more_leases) = part(self.core.leases.rows(viewer, now), query.skip_leases);
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
            counters,
            version: env!("CARGO_PKG_VERSION").into(),
            gauges: self.gauges(),
        }
    }

    fn gauges(&self) -> Gauges {
        let revoked = self.returns.revoked().count();
        Gauges {
            connections: 0,
            revoked_slabs: u32::try_from(revoked).unwrap_or(u32::MAX),
            revoked_bytes: self.returns.revoked_bytes(),
            pinned_bytes: self.returns.pinned_bytes(),
            stray_bytes: self.seen.stray_bytes,
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

    /// Slabs that revoked clients may still reach: to be looked at for the next tick.
    pub fn revoked(&self) -> impl Iterator<Item = SlabId> {
        self.returns.revoked()
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
fn part<T>(rows: Vec<T>, skip: u32) -> (Vec<T>, u32) {
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let left = rows.len().saturating_sub(skip);
    let part: Vec<T> = rows.into_iter().skip(skip).take(MOST_STATUS_ROWS).collect();
    let more = u32::try_from(left - part.len()).unwrap_or(u32::MAX);
    (part, more)
}
