//! `firstlight bench zero`: memory zeroed beforehand, beside memory zeroed on allocation.
//! [`firstlight_bench::zero`] measures; [`render`] makes the tables.

mod render;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_bench::zero;
use firstlight_figures::size;
use firstlight_pool_cli::progress::Progress;
use std::ops::RangeInclusive;

/// How fast zeroed memory is allocated with and without a known-zero stock, and what zeroing it
/// beforehand costs
///
/// Blocks of 4 KiB, 2 MiB and 1 GiB are requested zeroed: from memory that a worker has zeroed, and
/// from memory that is zeroed on the spot. The worker's rate stands beside the fastest stores past
/// the caches of one CPU. A neighbour, work that lives in the caches, takes turns with the worker on
/// one CPU, or has another one. All of it on this machine's memory.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Options {
    /// Memory to measure with, 64M to 1T in whole MiB, resident while it runs; 1 GiB blocks need 3G
    #[arg(long, value_name = "SIZE", default_value = "3G", value_parser = memory)]
    memory: u64,
    /// What neighbours read, 4K to 1G each: from a second-level cache's size to more than most
    /// third-level ones leave to a CPU
    #[arg(long, value_name = "LIST", default_value = "256K,1M,4M,16M", value_delimiter = ',', value_parser = working_set)]
    working_sets: Vec<usize>,
}

const EXAMPLES: &str = "\
Rows:
  allocate   nanoseconds a block, median of some at a time (least, most); 15 rounds with stock and
             without in turns
  worker     bytes a second, and its part of the fastest stores past the caches: 1 is as fast
  stores     the same of every way to write zeros by itself. The worker and all ways past the caches
             take 2000 turns of 2 MiB; the figure is the median turn, so a busy machine does no harm
  neighbour  how much longer a pass over its working set takes beside the worker. On the same CPU the
             worker zeroes 2 MiB before each pass; on another one it zeroes all the time. The worker
             stores past the caches (non-temporal), or through them (temporal)

The line \"300 MB first touched\" is an estimate: 300 MB in blocks of that size, at the medians above.

Examples:
  firstlight bench zero                   half a minute, on 3 GiB of memory
  firstlight bench zero --memory 512M     without blocks of 1 GiB
  firstlight bench zero --working-sets 2M one neighbour, as large as this CPU's second-level cache
  firstlight bench zero --json            for programs: schema firstlight.bench-zero/1

Exit codes: see firstlight --help";

fn memory(text: &str) -> Result<u64, String> {
    size_within(text, 64 << 20..=1 << 40, 2 << 20)
        .ok_or_else(|| "expected a size from 64M to 1T, a multiple of 2M".into())
}

fn working_set(text: &str) -> Result<usize, String> {
    size_within(text, 4 << 10..=1 << 30, 4 << 10)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| "expected sizes from 4K to 1G, multiples of 4K".into())
}

fn size_within(text: &str, range: RangeInclusive<u64>, unit: u64) -> Option<u64> {
    let bytes = size::parse(text).ok()?;
    (range.contains(&bytes) && bytes.is_multiple_of(unit)).then_some(bytes)
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let progress = Progress::new();
    let measured = zero::run(options.memory, &options.working_sets, &mut |text| {
        progress.say(text);
    });
    drop(progress);
    let record = measured.map_err(|error| Failure::machine("bench zero", error))?;
    output.print(&record, render::page)
}
