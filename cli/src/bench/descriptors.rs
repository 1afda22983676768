//! `firstlight bench descriptors`: how long descriptors take with one thread, two, and so on; the
//! record and its table are the [lab's](firstlight_lab::sweep).

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight::parallel::Chunking;
use firstlight_bench::machine::{Machine, Shape, ShapeError};
use firstlight_bench::sweep::{self, Series, SweepError};
use firstlight_host::threads;
use firstlight_lab::sweep::{Milliseconds, Record, Row, SweptPart, Where};
use firstlight_pool_cli::progress::Progress;

/// Write descriptors for every page with 1, 2, ... threads and show the speed-up
///
/// The descriptors of a synthetic machine are written, into memory of this process
/// that is mapped already, and all of them checked. The ways in which this machine
/// can fill memory are measured in the same rounds. Our image does it in a guest with
/// boot --append sweep.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The machine to describe: memory=SIZE[,nodes=N]
    #[arg(long, value_name = "SHAPE", default_value = "memory=64G", value_parser = shape)]
    shape: Shape,
    /// Bytes of a descriptor: 8, 16, 32 or 64
    #[arg(long, value_name = "N", default_value_t = 64)]
    descriptor_bytes: u32,
    /// Numbers of threads, as 1,2,4; else 1 and its doubles up to all CPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Vec<u32>,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 11)]
    runs: u32,
    /// Cut the work as Linux's padata does
    #[arg(long)]
    padata: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight bench descriptors                           64 GiB, 64 bytes a page
  firstlight bench descriptors --descriptor-bytes 8 --threads 1,2
  firstlight bench descriptors --shape memory=16G,nodes=2 --runs 21 --json
  firstlight boot --memory 64G --cpus 4 --append sweep   in a guest of 64 GiB

Exit codes: see firstlight --help";

fn shape(text: &str) -> Result<Shape, ShapeError> {
    text.parse()
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let record = measured(options)?;
    output.print(&record, Record::table)
}

/// Measures, and makes a record of it.
fn measured(options: &Options) -> Result<Record, Failure> {
    let cpus = threads::allowed_cpus().map_or(1, |cpus| cpus.len().max(1));
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let settings = sweep::Options {
        descriptor_bytes: options.descriptor_bytes,
        threads: if options.threads.is_empty() {
            doubles(cpus)
        } else {
            options.threads.clone()
        },
        runs: options.runs,
        chunking: if options.padata {
            Chunking::Padata
        } else {
            Chunking::Stealing
        },
    };
    let progress = Progress::new();
    progress.say(format!(
        "descriptors with {:?} threads, {} runs each",
        settings.threads, settings.runs
    ));
    let series =
        sweep::sweep(&Machine::of(&options.shape), &settings).map_err(|error| match error {
            SweepError::Wrong { .. } => Failure::Check(error.to_string()),
            SweepError::Memory(_) => Failure::Io(error.to_string()),
            SweepError::Options(_) | SweepError::Machine(_) => {
                Failure::machine("bench descriptors", error)
            }
        })?;
    let rows = series
        .iter()
        .filter_map(|series| row(series, &settings, cpus))
        .collect();
    Ok(Record::new("wall", rows))
}

/// 1, 2, 4, ... and all.
fn doubles(cpus: u32) -> Vec<u32> {
    let smaller = (0..u32::BITS).map(|shift| 1 << shift);
    let smaller = smaller.take_while(|threads| *threads < cpus);
    smaller.chain([cpus]).collect()
}

fn row(series: &Series, settings: &sweep::Options, cpus: u32) -> Option<Row> {
    let fastest_ns = *series.ns.iter().min()?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio to print")]
    let fraction = |(_, ns): (&str, u64)| ns as f64 / fastest_ns.max(1) as f64;
    Some(Row {
        place: Where::Host,
        node: series.node,
        part: if series.node.is_some() {
            SweptPart::Deferred
        } else {
            SweptPart::Whole
        },
        descriptor_bytes: settings.descriptor_bytes,
        threads: series.threads,
        percent_of_cpus: f64::from(series.threads) / f64::from(cpus) * 100.0,
        pages: series.pages,
        bytes_written: series.bytes_written,
        ms: Milliseconds::of(&series.ns)?,
        speedup_percent: 0.0,
        instructions_per_page: None,
        fraction_of_best_memset: series.best_fill.map(fraction),
        best_memset: series.best_fill.map(|(name, _)| name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all() {
        assert_eq!(doubles(1), [1]);
        assert_eq!(doubles(2), [1, 2]);
        assert_eq!(doubles(52), [1, 2, 4, 8, 16, 32, 52]);
    }
}
