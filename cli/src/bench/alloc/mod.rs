//! `firstlight bench alloc`: our frame allocator and others, the same loops for
//! all. [`firstlight_bench::alloc`] measures; [`render`] makes the tables.

mod render;

use crate::failure::Failure;
use crate::output::Output;
use crate::size;
use clap::Args;
use firstlight_bench::alloc::{self, Contestant, UnknownName, Workload};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How fast frames are allocated and freed, beside other allocators
///
/// The same loops are run by firstlight, by a spin-locked list of frames (the
/// yardstick), by a plain list for each thread (the floor), and by the frame
/// allocators of the Rust registry, in turns. A made-up machine is allocated from:
/// only the allocators' own tables are real memory.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Numbers of threads, each thread on a CPU of its own as far as there are CPUs; else 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Who takes part: firstlight, spin-lifo, lifo, buddy_system_allocator, bitmap-allocator,
    /// buddy-slab-allocator, free-list, buddy-alloc; else all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = contestant)]
    contestant: Vec<Contestant>,
    /// What is measured: pair, bulk, random-free, cross-cpu, mixed, near-full, fragmentation,
    /// answers; else all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Memory of the machine, 128M to 256G; answers have machines of their own
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = memory)]
    memory: u64,
    /// Most that a cell (a contestant, workload, order, number of threads) may take, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1700,
          value_parser = clap::value_parser!(u64).range(1..=2000))]
    cell_ms: u64,
}

const EXAMPLES: &str = "\
An operation is a block allocated and a block freed; of random-free a block freed. Times are CPU
time of the threads: the least of all rounds, the median, and how many times the yardstick's least
that is. bytes/frame is what the tables take. A cell that ran out of time is marked: its figure is
of what was done.

Examples:
  firstlight bench alloc                                     all of it, two to four minutes
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
        .filter(|bytes| (128 << 20..=256 << 30).contains(bytes))
        .ok_or_else(|| "expected a size from 128M to 256G".into())
}

/// What was asked for, each once and in its order; `all` if nothing was.
fn chosen<T: Copy + PartialEq>(asked: &[T], all: &[T]) -> Vec<T> {
    let mut list: Vec<T> = Vec::new();
    for item in if asked.is_empty() { all } else { asked } {
        if !list.contains(item) {
            list.push(*item);
        }
    }
    list
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let threads = chosen(&options.threads, &[]);
    let asked = alloc::Options {
        threads: threads
            .into_iter()
            .map(|threads| threads as usize)
            .collect(),
        contestants: chosen(&options.contestant, &Contestant::ALL),
        workloads: chosen(&options.workload, &Workload::ALL),
        memory_bytes: options.memory,
        cell_ms: options.cell_ms,
    };
    // Nothing where there is no terminal.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4}  {wide_msg}") {
        bar.set_style(style);
    }
    let measured = alloc::run(&asked, &mut |text| bar.set_message(text.to_owned()));
    bar.finish_and_clear();
    let record = measured.map_err(|error| Failure::machine("bench alloc", error))?;
    if let Some(answers) = &record.answers {
        let refusals = answers.checkerboard.iter().chain(&answers.full);
        if let Some(wrong) = refusals.into_iter().find(|refusal| !refusal.refused) {
            return Err(Failure::Check(format!(
                "a block of order {} was handed out where none is free",
                wrong.order
            )));
        }
    }
    output.print(&record, render::page)
}
