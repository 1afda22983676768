//! `firstlight bench alloc`: our frame allocator and others, the same loops for
//! all. [`firstlight_bench::alloc`] measures; [`render`] makes the tables.

mod render;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_bench::alloc::{self, Contestant, UnknownName, Workload};
use firstlight_figures::size;
use firstlight_pool_cli::progress::Progress;

/// How fast frames are allocated and freed, beside other allocators
///
/// Firstlight, a spin-locked list of frames (the yardstick), a plain list for each
/// thread (the floor) and the frame allocators of the Rust registry run the same loops,
/// in turns. The machine is synthetic: only the allocators' tables are real memory.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Options {
    /// Workloads: pair, bulk, random-free, cross-cpu, mixed, near-full, fragmentation, answers
    /// (described below); else all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Allocators: firstlight, spin-lifo, lifo, buddy_system_allocator, bitmap-allocator,
    /// buddy-slab-allocator, free-list, buddy-alloc; else all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = contestant)]
    contestant: Vec<Contestant>,
    /// Numbers of threads at the same time, up to 256, each thread on a CPU of its own as far as
    /// there are CPUs; else one thread, and two if there are two CPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Memory of the machine, 128M to 256G; answers have machines of their own
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = memory)]
    memory: u64,
    /// Most that a cell (a contestant, workload, order, number of threads) may take, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1700,
          value_parser = clap::value_parser!(u64).range(1..=2000))]
    cell_ms: u64,
    /// Most that the whole run should take, in milliseconds: later cells get what is left; else
    /// 220000, and 110000 more for each number of threads beyond two
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    run_ms: Option<u64>,
}

/// Time of a run: four minutes with its end.
const RUN_MS: u64 = 220_000;
/// And for each number of threads beyond this many.
const USUAL_THREADS: usize = 2;

const EXAMPLES: &str = "\
Workloads, of orders 0 (a page) and 9 (a huge frame) where no other is named:
  pair           a block is allocated and freed at once
  bulk           many blocks are allocated, then freed in the same order
  random-free    all of memory is allocated; only its freeing, in random order, is timed
  cross-cpu      one thread allocates, another frees
  mixed          blocks of orders 0 to 9 live for random times
  near-full      pages are freed and allocated while 99 and 99.9 % of memory are held
  fragmentation  not timed: huge and giant frames left when long-lived blocks are all over memory
  answers        firstlight only: requests that must fail, also while 1, 8 and 32 threads allocate
                 and free, and full memory beside empty

An operation is a block allocated and a block freed; of random-free a block freed. Times are CPU
time of the threads: the least of all rounds, the median, and the least divided by the yardstick's.
bytes/frame is the size of the tables. A cell that ran out of time is marked: its figure is of the
finished part. Cells without a figure are listed below the tables, with the reason.

Examples:
  firstlight bench alloc                                     all of it, within four minutes
  firstlight bench alloc --threads 1,2,4,8 --json            for programs
  firstlight bench alloc --workload pair,random-free         some of it
  firstlight bench alloc --contestant firstlight,spin-lifo   beside the yardstick only

Exit codes: see firstlight --help";

fn contestant(text: &str) -> Result<Contestant, UnknownName> {
    text.parse()
}

fn workload(text: &str) -> Result<Workload, UnknownName> {
    text.parse()
}

fn memory(text: &str) -> Result<u64, String> {
    size::parse(text)
        .ok()
        .filter(|bytes| (128 << 20..=256 << 30).contains(bytes))
        .ok_or_else(|| "expected a size from 128M to 256G".into())
}

/// The chosen items, each once and in order; `all` if none are.
fn chosen<T: Copy + PartialEq>(items: &[T], all: &[T]) -> Vec<T> {
    let mut list: Vec<T> = Vec::new();
    for item in if items.is_empty() { all } else { items } {
        if !list.contains(item) {
            list.push(*item);
        }
    }
    list
}

/// Time of a run with so many numbers of threads.
fn run_ms(numbers: usize) -> u64 {
    let more = numbers.saturating_sub(USUAL_THREADS) as u64;
    RUN_MS + more * RUN_MS / USUAL_THREADS as u64
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let threads = chosen(&options.threads, &[]);
    let numbers = threads.len();
    let settings = alloc::Options {
        threads: threads
            .into_iter()
            .map(|threads| threads as usize)
            .collect(),
        contestants: chosen(&options.contestant, &Contestant::ALL),
        workloads: chosen(&options.workload, &Workload::ALL),
        memory_bytes: options.memory,
        cell_ms: options.cell_ms,
        run_ms: options.run_ms.unwrap_or_else(|| run_ms(numbers)),
    };
    let progress = Progress::new();
    let measured = alloc::run(&settings, &mut |text| progress.say(text));
    drop(progress);
    let record = measured.map_err(|error| Failure::machine("bench alloc", error))?;
    if let Some(answers) = &record.answers {
        let refusals = answers.checkerboard.iter().chain(&answers.full);
        let refusals = refusals.map(|row| (row.order, row.refused));
        let under_churn = answers.under_churn.iter();
        let mut all = refusals.chain(under_churn.map(|row| (row.order, row.refused)));
        if let Some((order, _)) = all.find(|(_, refused)| !refused) {
            return Err(Failure::Check(format!(
                "a block of order {order} was handed out where none is free"
            )));
        }
    }
    output.print(&record, render::page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_numbers_of_threads_may_take_longer() {
        let expected = [(0, 220_000), (1, 220_000), (2, 220_000), (4, 440_000)];
        for (numbers, ms) in expected {
            assert_eq!(run_ms(numbers), ms, "{numbers}");
        }
    }
}
