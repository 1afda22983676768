//! Starts of QEMU: on little memory, on memory that the kernel zeroes meanwhile, on the pool's.

use super::guest::{Bench, Timed};
use super::own_daemon::OwnDaemon;
use super::record::{Run, Variant};
use crate::failure::Failure;
use firstlight_pool::launch::{AllocateOptions, Backing, Need, Plan, Start, allocate};
use firstlight_pool::os::hugepages;
use firstlight_pool::protocol::PageSize;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Memory of the floor.
pub(super) const FLOOR_BYTES: u64 = 64 << 20;

/// The same QEMU with little memory, of the kernel and touched by nothing: what no pool
/// can beat.
pub(super) fn floor(bench: &Bench) -> Result<Timed, Failure> {
    let start = Start::new(bench.qemu(), bench.arguments(FLOOR_BYTES));
    bench.time(start, Instant::now())
}

/// A guest on memory that the kernel zeroes meanwhile.
pub(super) fn fresh_start(
    bench: &Bench,
    page: PageSize,
    bytes: u64,
    mut arguments: Vec<OsString>,
) -> Start {
    let pages = match page {
        PageSize::Huge => "memory-backend-memfd,hugetlb=on,hugetlbsize=2M,",
        PageSize::Giant => "memory-backend-memfd,hugetlb=on,hugetlbsize=1G,",
        PageSize::Transparent => "memory-backend-memfd,",
    };
    arguments.extend(["-machine", "memory-backend=fresh", "-object"].map(OsString::from));
    arguments.push(format!("{pages}id=fresh,size={bytes},share=on,prealloc=on").into());
    Start::new(bench.qemu(), arguments)
}

/// The same, timed.
pub(super) fn fresh(bench: &Bench, page: PageSize, bytes: u64) -> Result<Run, Failure> {
    let start = fresh_start(bench, page, bytes, bench.arguments(bytes));
    let timed = bench.time(start, Instant::now())?;
    Ok(Run::new(Variant::Prealloc, timed, None))
}

/// A guest on memory of the pool, which is taken here.
pub(super) fn pooled_start(
    bench: &Bench,
    daemon: &mut OwnDaemon,
    arguments: Vec<OsString>,
) -> Result<Start, Failure> {
    let plan = Plan::new(bench.qemu(), &arguments, &[], &|_| false).map_err(Failure::pool)?;
    let allocated = allocate(daemon.client(), plan.needs(), AllocateOptions::default());
    let allocated = allocated.map_err(Failure::pool)?;
    let files: Vec<Backing> = allocated.iter().map(Start::backing).collect();
    let start = Start::new(bench.qemu(), plan.with_memory(&files));
    let each = allocated.into_iter();
    Ok(each.fold(start, |start, one| {
        start.with(one.memory).with(one.lease_pipe)
    }))
}

/// The same, timed; taking the memory is part of the time.
pub(super) fn pooled(bench: &Bench, daemon: &mut OwnDaemon, bytes: u64) -> Result<Run, Failure> {
    let (timed, take) = timed_on_pool(bench, daemon, bytes)?;
    Ok(Run::new(Variant::Pool, timed, Some(take)))
}

pub(super) fn timed_on_pool(
    bench: &Bench,
    daemon: &mut OwnDaemon,
    bytes: u64,
) -> Result<(Timed, Duration), Failure> {
    let arguments = bench.arguments(bytes);
    let begin = Instant::now();
    let start = pooled_start(bench, daemon, arguments)?;
    let take = begin.elapsed();
    Ok((bench.time(start, begin)?, take))
}

/// Huge pages for `bytes`, until they are dropped.
pub(super) fn set_aside(page: PageSize, bytes: u64) -> Result<hugepages::SetAside, Failure> {
    hugepages::SetAside::new(page.bytes(), bytes / page.bytes()).map_err(|error| {
        Failure::pool(format!(
            "{} of {page} huge pages cannot be set aside: {error}; smaller --sizes, or --page thp, \
             need less",
            Need { bytes, node: None }
        ))
    })
}
