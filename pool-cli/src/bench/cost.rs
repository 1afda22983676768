//! `--cost`: what filling costs, and whom. The processor time of the daemon's
//! worker beside that of a plain thread that asks the kernel for the same pages;
//! and two loops on one CPU while the worker fills on another, at the rate a
//! daemon has unless told otherwise.
//!
//! Times of other programs fall into all of it, so variants take turns: of
//! processor times the smallest counts, of the loops' windows the median.

use super::own_daemon::{Kind, OwnDaemon, own_folder};
use super::record::{Cost, FillCost, Neighbour};
use crate::Program;
use crate::failure::Failure;
use firstlight_pool::os::memory_file;
use firstlight_pool::protocol::PageSize;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a loop runs at a time.
const WINDOW: Duration = Duration::from_millis(300);
/// Windows of each loop with and without filling, for each run.
const WINDOWS_A_RUN: u32 = 4;
/// What the memory-bound loop reads: more than caches hold.
const ARENA_BYTES: usize = 256 << 20;

/// Measures both; what was there when `stop` was set is left out.
pub(super) fn measure(
    program: Program,
    folder: &Path,
    page: PageSize,
    bytes: u64,
    runs: u32,
    stop: &AtomicBool,
) -> Result<Option<Cost>, Failure> {
    let folder = folder.join("cost");
    own_folder(&folder)?;
    let sizes = BTreeSet::from([bytes]);
    let mut daemon = OwnDaemon::start(program, &folder, Kind::of(page), &sizes, None)?;
    let fill = fill_cost(&mut daemon, page, bytes, runs, stop)?;
    let neighbours = neighbours(&mut daemon, bytes, runs, stop)?;
    daemon.stop()?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some(Cost { fill, neighbours }))
}

/// Processor time of a fill and of the kernel alone, in turn.
fn fill_cost(
    daemon: &mut OwnDaemon,
    page: PageSize,
    bytes: u64,
    runs: u32,
    stop: &AtomicBool,
) -> Result<Option<FillCost>, Failure> {
    let mut times = Vec::new();
    for _ in 0..runs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let alone = thread::scope(|scope| {
            let plain = scope.spawn(|| plain_fill(page, bytes));
            plain.join().map_err(|_| io::Error::other("it panicked"))
        });
        let alone = alone.and_then(|time| time);
        let alone = alone.map_err(Failure::pool_at("filling without a daemon"))?;
        let before = worker(daemon).map_or(Ok(Duration::ZERO), |task| spent(&task))?;
        daemon.fill(bytes, 1)?;
        let task = worker(daemon).ok_or_else(|| {
            Failure::pool_at("the daemon's worker")(io::Error::other("no thread has its name"))
        })?;
        let after = spent(&task)?;
        daemon.empty(bytes)?;
        times.push((alone, after.saturating_sub(before)));
    }
    Ok(FillCost::of(bytes, &times))
}

/// What this thread spends on having the kernel fill a file.
fn plain_fill(page: PageSize, bytes: u64) -> io::Result<Duration> {
    let reserved = (page != PageSize::Transparent).then(|| page.bytes());
    let file = memory_file::unnamed(c"firstlight-bench", reserved)?;
    memory_file::set_length(&file, bytes)?;
    let this = Path::new("/proc/thread-self");
    let before = on_cpu(this)?;
    if reserved.is_some() {
        memory_file::allocate(&file, 0, bytes)?;
    } else {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        memory_file::populate(&file, 0, length)?;
    }
    Ok(on_cpu(this)?.saturating_sub(before))
}

/// Time on a CPU, of the thread whose folder in `/proc` this is.
fn on_cpu(task: &Path) -> io::Result<Duration> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    ns.map(Duration::from_nanos)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn spent(task: &Path) -> Result<Duration, Failure> {
    on_cpu(task).map_err(Failure::pool_at("the daemon's worker"))
}

/// The folder of the daemon's thread that fills; it has none before its first slab.
fn worker(daemon: &OwnDaemon) -> Option<std::path::PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).ok()?;
    let mut tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    tasks.find(|task| {
        let name = fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim_end().starts_with("fill-"))
    })
}

/// Two loops on the first CPU, the worker on the second; none where there is no second.
fn neighbours(
    daemon: &mut OwnDaemon,
    bytes: u64,
    runs: u32,
    stop: &AtomicBool,
) -> Result<Vec<Neighbour>, Failure> {
    let allowed =
        sched_getaffinity(None).map_err(|error| Failure::pool_at("CPUs")(error.into()))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (Some(ours), Some(theirs)) = (cpus.next(), cpus.next()) else {
        return Ok(Vec::new());
    };
    let task = worker(daemon).and_then(|task| task.file_name()?.to_str()?.parse().ok());
    let Some(task) = task.and_then(Pid::from_raw) else {
        return Ok(Vec::new());
    };
    let pin = |task, cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(task, &set).map_err(|error| Failure::pool_at("CPUs")(error.into()))
    };
    pin(Some(task), theirs)?;
    pin(None, ours)?;
    let arena = vec![1_u64; ARENA_BYTES / size_of::<u64>()];
    let mut seen = Vec::new();
    let loops: [(&str, &dyn Fn() -> u64); 2] = [
        ("memory", &|| read_for(&arena, WINDOW)),
        ("processor", &|| count_for(WINDOW)),
    ];
    for (name, turn) in loops {
        let mut windows = Vec::new();
        let mut filled = Vec::new();
        for _ in 0..runs * WINDOWS_A_RUN {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let quiet = turn();
            daemon.begin_fill(bytes)?;
            let begin = Instant::now();
            let filling = turn();
            filled.push(rate(daemon.filled_bytes(bytes)?, begin.elapsed()));
            daemon.empty(bytes)?;
            windows.push((quiet, filling));
        }
        filled.sort_unstable();
        let filled = filled.get(filled.len() / 2).copied().unwrap_or(0);
        seen.extend(Neighbour::of(name, filled, &windows));
    }
    sched_setaffinity(None, &allowed).map_err(|error| Failure::pool_at("CPUs")(error.into()))?;
    Ok(seen)
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let ns = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
}

/// Reads the arena again and again; how many bytes in that time.
fn read_for(arena: &[u64], time: Duration) -> u64 {
    const PART: usize = 1 << 15;
    let begin = Instant::now();
    let mut bytes = 0;
    for part in arena.chunks(PART).cycle() {
        black_box(part.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
        bytes += size_of_val(part) as u64;
        if begin.elapsed() >= time {
            break;
        }
    }
    bytes
}

/// Computes without memory; how many steps in that time.
fn count_for(time: Duration) -> u64 {
    const PART: u64 = 1 << 14;
    let begin = Instant::now();
    let (mut steps, mut state) = (0, 1_u64);
    while begin.elapsed() < time {
        for _ in 0..PART {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        black_box(state);
        steps += PART;
    }
    steps
}
