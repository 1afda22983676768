//! `--filling`: starts while a slab that just came back is emptied and filled again.

use super::guest::Bench;
use super::own_daemon::OwnDaemon;
use super::record::{Run, Variant};
use super::starts::{floor, timed_on_pool};
use crate::failure::Failure;
use firstlight_pool::launch::{AllocateOptions, Need, allocate};

/// Of the slab that comes back; of no size that anything else here has.
pub(super) const BYTES: u64 = (2 << 30) - (2 << 20);

/// The floor and a start from the pool, each while the slab is filled.
pub(super) fn starts(
    bench: &Bench,
    daemon: &mut OwnDaemon,
    bytes: u64,
) -> Result<[Run; 2], Failure> {
    daemon.fill(bytes, 1)?;
    come_back(daemon)?;
    let floor = Run::new(Variant::FloorFilling, floor(bench)?, None);
    come_back(daemon)?;
    let (timed, take) = timed_on_pool(bench, daemon, bytes)?;
    daemon.empty(bytes)?;
    daemon.empty(BYTES)?;
    Ok([floor, Run::new(Variant::PoolFilling, timed, Some(take))])
}

/// A slab is allocated, comes back, and is being filled when this returns.
fn come_back(daemon: &mut OwnDaemon) -> Result<(), Failure> {
    daemon.fill(BYTES, 1)?;
    let need = [Need {
        bytes: BYTES,
        node: None,
    }];
    let allocated = allocate(daemon.client(), &need, &AllocateOptions::default());
    drop(allocated.map_err(Failure::pool)?);
    daemon.wait_for_filling(BYTES)
}
