//! `firstlight bench pool`: real QEMU, from its start to QMP's greeting and to
//! the guest's first instruction, on fresh memory and on the pool's.
//!
//! All variants run in turn in each round, on as many huge pages as one of them
//! needs: the pool is emptied before the fresh start, and filled again, outside
//! the timing, before its own. Beside them the floor: the same QEMU with 64 MiB of
//! ordinary memory. `own_daemon` is the pool, `guest` the clock; `filling` the
//! same while a slab that came back is filled, `cost` what filling costs, `pin`
//! starts with all memory pinned; `load` what requests cost, and what one user waits beside
//! others.

mod cost;
mod filling;
mod guest;
pub(crate) mod load;
mod own_daemon;
pub(crate) mod pin;
pub(crate) mod record;
mod starts;

use crate::Program;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::text::bytes;
use clap::Args;
use firstlight_pool::launch::{AllocateOptions, Need, allocate, program_path};
use firstlight_pool::os::hugepages;
use firstlight_pool::protocol::PageSize;
use guest::Bench;
use load::Load;
use own_daemon::{Kind, OwnDaemon};
use record::{AtOnce, Record, Run, TakeRoundTrip, Variant};
use signal_hook::consts::{SIGINT, SIGTERM};
use starts::{floor, fresh, fresh_start, pooled, pooled_start, prefaulted, set_aside, touch};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much faster a virtual machine starts on memory of the pool
///
/// Starts QEMU on memory that the kernel zeroes while it waits, and on the
/// pool's, in turn. Needs QEMU, and root to set huge pages aside: as many as
/// the largest size has, beside those of a pool that runs. With the usual
/// sizes it takes a minute or two. It starts a daemon of its own and gives
/// everything back.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Memory of the guests
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = ["2G", "4G", "8G"])]
    sizes: Vec<Need>,
    /// Starts of each size and variant
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Guests of a further round, which together have the largest size: all at once; 0 for none
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u32).range(0..=64))]
    at_once: u32,
    /// Pages: 2M, 1G, or thp where none are set aside
    #[arg(long, value_name = "SIZE", default_value_t = PageSize::Huge)]
    page: PageSize,
    /// Also what filling costs: processor time, and what loops on another CPU lose
    #[arg(long)]
    cost: bool,
    /// Also starts while a slab that came back is filled again as fast as it goes
    #[arg(long)]
    filling: bool,
    /// Instead: start with all memory pinned, as for a passed-through device, on pages of
    /// 4K, thp and 2M, zeroed beforehand or not; of the largest size
    #[arg(long, conflicts_with_all = ["page", "cost", "filling", "at_once"])]
    pin: bool,
    /// Instead: requests and takes a second, and what a member waits for its memory beside
    /// strangers and beside another member that load the daemon; needs no QEMU
    #[arg(long, conflicts_with_all = ["sizes", "cost", "filling", "at_once", "pin", "qemu"])]
    load: bool,
    /// Takes of each row, of a slab each
    #[arg(long, value_name = "N", default_value_t = 200, requires = "load",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    takes: u32,
    /// Measure the daemon of this firstlight-pool too, in turns: an earlier one that speaks the
    /// same version of the protocol; may be given several times
    #[arg(long, value_name = "PROGRAM", requires = "load")]
    beside: Vec<PathBuf>,
    /// The VMM
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    qemu: OsString,
}

const EXAMPLES: &str = "\
Examples:
  firstlight bench pool                          2, 4 and 8 GiB in huge pages of 2 MiB
  firstlight bench pool --sizes 2G,64G --runs 11
  firstlight bench pool --cost --sizes 4G        what filling costs, too; on a quiet machine
  firstlight bench pool --filling --sizes 2G,12G starts while other memory is filled, too
  firstlight bench pool --pin --sizes 8G --runs 3
  firstlight bench pool --load --page thp --runs 10 --beside old/firstlight-pool
  firstlight bench pool --page thp --json        no huge pages to set aside; for programs

Exit codes: see firstlight --help";

/// Runs the subcommand, as one of `program`.
///
/// # Errors
/// What it could not do.
pub fn run(options: &Options, program: Program, output: &mut Output) -> Result<(), Failure> {
    // From here on an interruption must not keep anything from being given back.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(Failure::pool_at("signals"))?;
    }
    if options.load {
        let load = Load {
            page: options.page,
            takes: options.takes,
            runs: options.runs,
            beside: &options.beside,
            stop: &stop,
        };
        let record = {
            let _pages = pages(options.page, load.bytes())?;
            load::measure(program, load)
        };
        not_interrupted(&stop)?;
        return output.print(&record?, load::Record::table);
    }
    let largest = options.sizes.iter().map(|size| size.bytes).max();
    let largest = largest.ok_or_else(|| Failure::pool("no sizes"))?;
    for size in &options.sizes {
        let unit = options.page.bytes();
        if !size.bytes.is_multiple_of(unit) || size.node.is_some() {
            return Err(Failure::pool(format!(
                "--sizes {size}: expected a multiple of {unit} bytes, on no node in particular"
            )));
        }
    }
    if program_path(&options.qemu).is_none() {
        let qemu = options.qemu.to_string_lossy();
        return Err(Failure::pool(format!(
            "{qemu} is not installed; the Debian package qemu-system-x86 has QEMU, and --qemu names another"
        )));
    }
    if options.pin {
        let record = pin::measure(program, &options.qemu, largest, options.runs, &stop);
        not_interrupted(&stop)?;
        return output.print(&record?, pin::Record::table);
    }
    let beside = if options.filling { filling::BYTES } else { 0 };
    let pages = pages(options.page, largest + beside)?;
    if !output.is_json() {
        // The reader may be gone: no reason not to measure.
        let _ = writeln!(io::stderr(), "{}", begins(options, largest, beside));
    }
    let record = measure(options, program, largest, &stop);
    drop(pages);
    not_interrupted(&stop)?;
    output.print(&record?, Record::table)
}

/// What is about to be done, since nothing more is printed for a while.
fn begins(options: &Options, largest: u64, beside: u64) -> String {
    let sizes = options.sizes.iter().map(|size| size.bytes);
    let sizes = sizes.fold(0, u64::saturating_add);
    // Of each size three starts on the kernel's memory and one from the pool, of the crowd one each.
    let crowd = if options.at_once > 0 { largest } else { 0 };
    let round = sizes
        .saturating_mul(4)
        .saturating_add(crowd)
        .saturating_add(crowd);
    let all = round
        .saturating_mul(options.runs.into())
        .saturating_add(largest);
    format!(
        "firstlight bench pool: {} of {} pages, to be zeroed {} times: {} s where the machine \
         zeroes 4 GiB a second",
        bytes(largest.saturating_add(beside)),
        options.page,
        all.div_ceil(largest.max(1)),
        all.div_ceil(4 << 30),
    )
}

fn not_interrupted(stop: &AtomicBool) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) {
        let text = "interrupted; everything was given back";
        return Err(Failure::pool(text));
    }
    Ok(())
}

/// As many pages as `bytes` need, where they are to be set aside.
fn pages(page: PageSize, bytes: u64) -> Result<Option<hugepages::SetAside>, Failure> {
    match page {
        PageSize::Transparent => Ok(None),
        page => set_aside(page, bytes).map(Some),
    }
}

/// Largest number of takes whose round trip is measured.
const MOST_TAKES: u64 = 200;

/// All rounds; fewer where `stop` is set meanwhile.
fn measure(
    options: &Options,
    program: Program,
    largest: u64,
    stop: &AtomicBool,
) -> Result<Record, Failure> {
    let page = options.page;
    let bench = Bench::new(&options.qemu).map_err(Failure::pool_at("the guest"))?;
    let mut sizes: BTreeSet<u64> = options.sizes.iter().map(|size| size.bytes).collect();
    let part = largest.checked_div(options.at_once.into()).unwrap_or(0);
    let part = part / page.bytes() * page.bytes();
    sizes.extend([part, page.bytes()].into_iter().filter(|bytes| *bytes > 0));
    if options.filling {
        sizes.insert(filling::BYTES);
    }
    let mut daemon = OwnDaemon::start(program, bench.folder(), Kind::of(page), &sizes, Some("0"))?;
    // The first start of all reads QEMU from the disk.
    floor(&bench)?;
    let progress = Progress::new();
    // Where this is a virtual machine its own host may have no memory for some pages before they are touched, which
    // would be in the time of the first start only.
    progress.say("memory is touched once");
    touch(page, largest)?;
    let mut record = Record::new(page, starts::cpus());
    for size in &options.sizes {
        let mut runs: Vec<Run> = Vec::new();
        for run in 1..=options.runs {
            if stop.load(Ordering::Relaxed) {
                return Ok(record);
            }
            progress.say(format!("starts with {size}, run {run} of {}", options.runs));
            runs.push(Run::new(Variant::Floor, floor(&bench)?, None));
            runs.push(fresh(&bench, page, size.bytes, Variant::Prealloc)?);
            runs.push(fresh(&bench, page, size.bytes, Variant::PreallocThreads)?);
            runs.push(prefaulted(&bench, page, size.bytes)?);
            daemon.fill(size.bytes, 1)?;
            runs.push(pooled(&bench, &mut daemon, size.bytes)?);
            daemon.empty(size.bytes)?;
            if options.filling {
                runs.extend(filling::starts(&bench, &mut daemon, size.bytes)?);
            }
        }
        record.add(size.bytes, &runs);
    }
    if part > 0 {
        progress.say(format!("{} starts at once", options.at_once));
        let guests = Crowd {
            guests: options.at_once,
            bytes: part,
        };
        let times = guests.times(&bench, &mut daemon, page, options.runs, stop)?;
        record.at_once = AtOnce::of(guests.guests, part, &times);
    }
    let takes = u32::try_from((largest / page.bytes()).min(MOST_TAKES)).unwrap_or(0);
    daemon.fill(page.bytes(), takes)?;
    record.take_round_trip = TakeRoundTrip::of(round_trips(&mut daemon, page, takes)?);
    daemon.stop()?;
    if options.cost {
        progress.say("what filling costs");
        record.cost = cost::measure(program, bench.folder(), page, largest, options.runs, stop)?;
    }
    Ok(record)
}

/// How long each of `takes` small takes takes, with its memory in hand.
fn round_trips(
    daemon: &mut OwnDaemon,
    page: PageSize,
    takes: u32,
) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    let need = [Need {
        bytes: page.bytes(),
        node: None,
    }];
    for _ in 0..takes {
        let begin = Instant::now();
        let allocated = allocate(daemon.client(), &need, &AllocateOptions::default());
        times.push(begin.elapsed());
        drop(allocated.map_err(Failure::pool)?);
    }
    Ok(times)
}

/// Guests that are started at once.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    guests: u32,
    /// Of each.
    bytes: u64,
}

impl Crowd {
    /// Until the last of them greets: on fresh memory and on the pool's, in turn.
    fn times(
        self,
        bench: &Bench,
        daemon: &mut OwnDaemon,
        page: PageSize,
        runs: u32,
        stop: &AtomicBool,
    ) -> Result<Vec<(Duration, Duration)>, Failure> {
        let mut times = Vec::new();
        for _ in 0..runs {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let arguments = || bench.silent_arguments(self.bytes);
            let starts =
                (0..self.guests).map(|_| Ok(fresh_start(bench, page, self.bytes, 1, arguments())));
            let fresh = bench.time_all(starts, Instant::now())?;
            daemon.fill(self.bytes, self.guests)?;
            let begin = Instant::now();
            let starts = (0..self.guests).map(|_| pooled_start(bench, daemon, arguments()));
            let pooled = bench.time_all(starts, begin)?;
            daemon.empty(self.bytes)?;
            times.push((fresh, pooled));
        }
        Ok(times)
    }
}
