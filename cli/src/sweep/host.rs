//! A sweep by threads of this process.

use super::options::Options;
use crate::failure::Failure;
use firstlight::parallel::Chunking;
use firstlight_bench::machine::Machine;
use firstlight_bench::sweep::{self, Series, SweepError};
use firstlight_host::threads;
use firstlight_lab::sweep::{Milliseconds, Record, Row, SweptPart, Where};

/// Rounds without `--runs`.
const RUNS: u32 = 11;

/// Measures, and makes a record of it.
pub(super) fn sweep(options: &Options) -> Result<Record, Failure> {
    let cpus = threads::allowed_cpus().map_or(1, |cpus| cpus.len().max(1));
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let settings = sweep::Options {
        descriptor_bytes: options.descriptor_bytes,
        threads: if options.threads.is_empty() {
            doubles(cpus)
        } else {
            options.threads.clone()
        },
        runs: options.runs.unwrap_or(RUNS),
        chunking: if options.padata {
            Chunking::Padata
        } else {
            Chunking::Stealing
        },
    };
    let series =
        sweep::sweep(&Machine::of(&options.shape), &settings).map_err(|error| match error {
            SweepError::Wrong { .. } => Failure::Check(error.to_string()),
            SweepError::Memory(_) => Failure::Io(error.to_string()),
            SweepError::Options(_) | SweepError::Machine(_) => Failure::machine("sweep", error),
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
