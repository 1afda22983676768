//! Starts of QEMU: on little memory, on memory that the kernel zeroes meanwhile, on the pool's.

use super::guest::{Bench, Timed};
use super::own_daemon::OwnDaemon;
use super::record::{Run, Variant};
use crate::failure::Failure;
use firstlight_pool::launch::{AllocateOptions, Backing, Need, Plan, Start, allocate};
use firstlight_pool::os::{hugepages, memory_file};
use firstlight_pool::protocol::PageSize;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory of the floor.
pub(super) const FLOOR_BYTES: u64 = 64 << 20;

/// QEMU with little memory, of the kernel and touched by nothing: what no pool can beat.
pub(super) fn floor(bench: &Bench) -> Result<Timed, Failure> {
    let start = Start::new(bench.qemu(), bench.arguments(FLOOR_BYTES));
    bench.time(start, Instant::now())
}

/// A guest on memory that the kernel zeroes meanwhile.
pub(super) fn fresh_start(
    bench: &Bench,
    page: PageSize,
    bytes: u64,
    threads: u32,
    mut arguments: Vec<OsString>,
) -> Start {
    let pages = match page {
        PageSize::Huge => "memory-backend-memfd,hugetlb=on,hugetlbsize=2M,",
        PageSize::Giant => "memory-backend-memfd,hugetlb=on,hugetlbsize=1G,",
        PageSize::Transparent => "memory-backend-memfd,",
    };
    arguments.extend(["-machine", "memory-backend=fresh", "-object"].map(OsString::from));
    // One thread is what QEMU takes where nothing is said.
    let threads = match threads {
        1 => String::new(),
        more => format!(",prealloc-threads={more}"),
    };
    arguments.push(format!("{pages}id=fresh,size={bytes},share=on,prealloc=on{threads}").into());
    Start::new(bench.qemu(), arguments)
}

/// A start with fresh memory, timed: with one thread that zeroes, or one a CPU.
pub(super) fn fresh(
    bench: &Bench,
    page: PageSize,
    bytes: u64,
    variant: Variant,
) -> Result<Run, Failure> {
    let threads = if variant == Variant::PreallocThreads {
        cpus()
    } else {
        1
    };
    let start = fresh_start(bench, page, bytes, threads, bench.arguments(bytes));
    let timed = bench.time(start, Instant::now())?;
    Ok(Run::new(variant, timed, None))
}

/// CPUs of this machine, as a thread for each is started.
pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1))
}

/// Bytes that a thread has zeroed at once: few, so that all are done at the same time.
const CHUNK_BYTES: u64 = 32 << 20;

/// A guest on memory that the kernel zeroes for all CPUs at once before it is started: what a VMM can do
/// that prefaults as fast as the machine allows.
pub(super) fn prefaulted(bench: &Bench, page: PageSize, bytes: u64) -> Result<Run, Failure> {
    let begin = Instant::now();
    let file = prefault(page, bytes).map_err(Failure::pool_at("prefault"))?;
    let mut arguments = bench.arguments(bytes);
    arguments.extend(["-machine", "memory-backend=fresh", "-object"].map(OsString::from));
    let number = file.as_raw_fd();
    arguments.push(
        format!(
            "memory-backend-file,id=fresh,size={bytes},share=on,mem-path=/proc/self/fd/{number}"
        )
        .into(),
    );
    let start = Start::new(bench.qemu(), arguments).with(file);
    let timed = bench.time(start, begin)?;
    Ok(Run::new(Variant::Prefault, timed, None))
}

/// Has so much memory zeroed, and gives it back.
pub(super) fn touch(page: PageSize, bytes: u64) -> Result<(), Failure> {
    prefault(page, bytes)
        .map(drop)
        .map_err(Failure::pool_at("prefault"))
}

fn prefault(page: PageSize, bytes: u64) -> io::Result<OwnedFd> {
    let huge = (page != PageSize::Transparent).then(|| page.bytes());
    let file = memory_file::unnamed(c"prefault", huge)?;
    memory_file::set_length(&file, bytes)?;
    // A file of huge pages is mapped from a whole page on.
    let chunk = CHUNK_BYTES.max(huge.unwrap_or(0));
    let next = AtomicU64::new(0);
    let work = || -> io::Result<()> {
        loop {
            let at = next.fetch_add(chunk, Ordering::Relaxed);
            if at >= bytes {
                return Ok(());
            }
            let length = usize::try_from((bytes - at).min(chunk));
            let length = length.map_err(|_| io::ErrorKind::InvalidInput)?;
            memory_file::populate(&file, at, length)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus()).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(|thread| {
            let died = |_| Err(io::Error::other("a thread that prefaults died"));
            thread.join().unwrap_or_else(died)
        });
        done.collect::<io::Result<()>>()
    })?;
    Ok(file)
}

/// A guest on memory of the pool, which is taken here.
pub(super) fn pooled_start(
    bench: &Bench,
    daemon: &mut OwnDaemon,
    arguments: Vec<OsString>,
) -> Result<Start, Failure> {
    let plan = Plan::new(bench.qemu(), &arguments, &[], &|_| false).map_err(Failure::pool)?;
    let allocated = allocate(daemon.client(), plan.needs(), &AllocateOptions::default());
    let allocated = allocated.map_err(Failure::pool)?;
    let files: Vec<Backing> = allocated.iter().map(Start::backing).collect();
    let start = Start::new(bench.qemu(), plan.with_memory(&files));
    let each = allocated.into_iter();
    Ok(each.fold(start, |start, one| {
        start.with(one.memory).with(one.lease_pipe)
    }))
}

/// A start on the pool, timed; taking the memory is part of the time.
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
    let sys = Path::new(hugepages::SYS);
    hugepages::SetAside::new(page.bytes(), bytes / page.bytes()).map_err(|error| {
        let counts = hugepages::counts(sys, page.bytes(), None).ok().flatten();
        let need = Need { bytes, node: None };
        Failure::pool(format!(
            "{need} of {page} huge pages cannot be set aside: {error}{}",
            cure(error.kind(), counts.unwrap_or_default())
        ))
    })
}

/// What to do where pages cannot be set aside, beside those that are.
fn cure(kind: io::ErrorKind, there: hugepages::Counts) -> String {
    if kind == io::ErrorKind::PermissionDenied {
        return "; run it as root, or with --page thp".into();
    }
    let used = there.total_pages.saturating_sub(there.free_pages) + there.promised_pages;
    let others = match used {
        0 => String::new(),
        used => format!(
            "; {used} such pages are in use already: `firstlight pool drain` gives a pool's back"
        ),
    };
    format!("{others}; smaller --sizes, or --page thp, need less")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_pool_that_runs_are_named_and_what_gives_them_back() {
        let there = |total_pages, free_pages, promised_pages| hugepages::Counts {
            total_pages,
            free_pages,
            promised_pages,
        };
        let short = io::ErrorKind::OutOfMemory;
        for (kind, there, expected) in [
            (
                short,
                there(4096, 0, 0),
                "; 4096 such pages are in use already: `firstlight pool drain` gives a pool's back; \
                 smaller --sizes, or --page thp, need less",
            ),
            (
                short,
                there(4096, 4096, 0),
                "; smaller --sizes, or --page thp, need less",
            ),
            (
                io::ErrorKind::PermissionDenied,
                there(4096, 0, 0),
                "; run it as root, or with --page thp",
            ),
        ] {
            assert_eq!(cure(kind, there), expected);
        }
        assert!(cure(short, there(9, 4, 2)).starts_with("; 7 such pages"));
    }
}
