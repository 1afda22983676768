//! `firstlight bench pool`: real QEMU, from its start to QMP's greeting and to
//! the guest's first instruction, on fresh memory and on the pool's.
//!
//! Both variants run in turn in each round, on as many huge pages as one of them
//! needs: the pool is emptied before the fresh start, and filled again, outside
//! the timing, before its own. [`own_daemon`] is the pool, [`guest`] the clock.

mod guest;
mod own_daemon;
mod record;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_host::hugepages;
use firstlight_pool::launch::{Backing, BorrowOptions, Need, Plan, Start, borrow, program_path};
use firstlight_pool::protocol::PageSize;
use guest::{Bench, Timed};
use own_daemon::OwnDaemon;
use record::{Record, Row, Run, Variant};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How much faster a virtual machine starts on memory of the pool
///
/// Starts QEMU on memory that the kernel zeroes while it waits, and on the
/// pool's, in turn. Needs QEMU, and root to set huge pages aside; it starts a
/// daemon of its own and gives everything back.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Memory of the guests
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = ["2G", "4G", "8G"])]
    sizes: Vec<Need>,
    /// Starts of each size and variant
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Pages: 2M, 1G, or thp where none are set aside
    #[arg(long, value_name = "SIZE", default_value_t = PageSize::Huge)]
    page: PageSize,
    /// The monitor
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    qemu: OsString,
}

const EXAMPLES: &str = "\
Examples:
  firstlight bench pool                          2, 4 and 8 GiB in huge pages of 2 MiB
  firstlight bench pool --sizes 2G,64G --runs 11
  firstlight bench pool --page thp --json        no huge pages to set aside; for programs

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(super) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let largest = options.sizes.iter().map(|size| size.bytes).max();
    let largest = largest.ok_or_else(|| Failure::Pool("no sizes".into()))?;
    for size in &options.sizes {
        let unit = options.page.bytes();
        if !size.bytes.is_multiple_of(unit) || size.node.is_some() {
            return Err(Failure::Pool(format!(
                "--sizes {size}: expected a multiple of {unit} bytes, on no node in particular"
            )));
        }
    }
    if program_path(&options.qemu).is_none() {
        let qemu = options.qemu.to_string_lossy();
        return Err(Failure::Pool(format!("{qemu} is not installed")));
    }
    // From here on an interruption must not keep anything from being given back.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed("signals"))?;
    }
    let pages = match options.page {
        PageSize::Transparent => None,
        page => Some(set_aside(page, largest)?),
    };
    let rows = measure(options, &stop);
    drop(pages);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Pool(
            "interrupted; everything was given back".into(),
        ));
    }
    let record = Record::new(options.page, rows?);
    output.print(&record, Record::table)
}

fn set_aside(page: PageSize, bytes: u64) -> Result<hugepages::Borrowed, Failure> {
    hugepages::Borrowed::new(page.bytes(), bytes / page.bytes()).map_err(|error| {
        Failure::Pool(format!(
            "{} of {page} huge pages cannot be set aside: {error}; smaller --sizes, or --page thp, \
             need less",
            Need { bytes, node: None }
        ))
    })
}

fn measure(options: &Options, stop: &AtomicBool) -> Result<Vec<Row>, Failure> {
    let bench = Bench::new(&options.qemu).map_err(failed("the guest"))?;
    let mut daemon = OwnDaemon::start(bench.folder(), options.page, &options.sizes)?;
    // The first start of all reads QEMU from the disk.
    fresh(&bench, options.page, options.page.bytes().max(64 << 20))?;
    let mut rows = Vec::new();
    for size in &options.sizes {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..options.runs {
            if stop.load(Ordering::Relaxed) {
                return Ok(rows);
            }
            runs.push(fresh(&bench, options.page, size.bytes)?);
            daemon.fill(size.bytes)?;
            runs.push(pooled(&bench, &mut daemon, size)?);
            daemon.empty(size.bytes)?;
        }
        for variant in [Variant::Prealloc, Variant::Pool] {
            rows.extend(Row::of(size.bytes, variant, &runs));
        }
    }
    daemon.stop()?;
    Ok(rows)
}

/// A start on memory that the kernel zeroes meanwhile.
fn fresh(bench: &Bench, page: PageSize, bytes: u64) -> Result<Run, Failure> {
    let pages = match page {
        PageSize::Huge => "memory-backend-memfd,hugetlb=on,hugetlbsize=2M,",
        PageSize::Giant => "memory-backend-memfd,hugetlb=on,hugetlbsize=1G,",
        PageSize::Transparent => "memory-backend-memfd,",
    };
    let mut arguments = bench.arguments(bytes);
    arguments.extend(["-machine", "memory-backend=fresh", "-object"].map(OsString::from));
    arguments.push(format!("{pages}id=fresh,size={bytes},share=on,prealloc=on").into());
    let begin = Instant::now();
    let timed = bench.time(Start::new(bench.qemu(), arguments), begin)?;
    Ok(Run::new(Variant::Prealloc, timed, None))
}

/// A start on memory of the pool; taking it is part of the time.
fn pooled(bench: &Bench, daemon: &mut OwnDaemon, size: &Need) -> Result<Run, Failure> {
    let arguments = bench.arguments(size.bytes);
    let plan = Plan::new(bench.qemu(), &arguments, &[], &|_| false).map_err(Failure::pool)?;
    let begin = Instant::now();
    let borrowed = borrow(daemon.client(), plan.needs(), BorrowOptions::default());
    let borrowed = borrowed.map_err(Failure::pool)?;
    let take = begin.elapsed();
    let files: Vec<Backing> = borrowed.iter().map(Start::backing).collect();
    let start = Start::new(bench.qemu(), plan.with_memory(&files));
    let start = borrowed.into_iter().fold(start, |start, one| {
        start.with(one.memory).with(one.lifeline)
    });
    let timed: Timed = bench.time(start, begin)?;
    Ok(Run::new(Variant::Pool, timed, Some(take)))
}

/// What could not be prepared.
fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Pool(format!("{what}: {error}"))
}

/// The name of a program for people.
fn shown(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}
