//! What is to be seen of a broker: its status.

use super::broker::Broker;
use crate::lease::Viewer;
use crate::protocol::{Gauges, MOST_STATUS_ROWS, PoolRow, Status, StatusQuery};
use std::time::Instant;

impl Broker {
    /// What the pool holds, as far as `viewer` may see it.
    pub(super) fn status(&self, viewer: Viewer, query: StatusQuery) -> Status {
        let (pools, more_pools) = part(self.rows(), query.skip_pools);
        let (leases, more_leases) =
            part(self.leases.rows(viewer, Instant::now()), query.skip_leases);
        let mut counters = self.counters.clone();
        counters.take_times = self.times.summary();
        Status {
            daemon_pid: std::process::id(),
            uptime_ms: u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            draining: self.store.is_draining(),
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
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Gauges {
            connections: count(self.connections),
            former_slabs: count(self.formers.len()),
            former_bytes: self.formers.bytes(),
            pinned_bytes: self.formers.pinned_bytes(),
            stray_bytes: self.stray_bytes,
            paused: self.workers.is_paused(),
            fill: Some(self.workers.filling_now()),
        }
    }

    fn rows(&self) -> Vec<PoolRow> {
        let mut rows = self.store.rows();
        for row in &mut rows {
            self.refills.complete(row);
            if row.trouble.is_none() && row.filling_slabs > 0 && self.workers.is_paused() {
                row.trouble = Some("paused: the machine is short of memory".into());
            }
            if row.trouble.is_none() && row.filling_slabs > 0 && !self.workers.filling_now().on {
                row.trouble = Some("filling is turned off".into());
            }
        }
        rows
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
