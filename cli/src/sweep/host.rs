//! A sweep by threads of this process.

use super::Options;
use crate::failure::Failure;
use firstlight::parallel::Chunking;
use firstlight_host::sweep::{Machine, Series, SweepError};
use firstlight_host::{sweep, threads};
use firstlight_lab::sweep::{Milliseconds, Record, Row, SweptPart, Where};

/// Rounds, where nobody says how many.
const RUNS: u32 = 11;

/// Measures, and makes a record of it.
pub(super) fn sweep(options: &Options) -> Result<Record, Failure> {
    let cpus = threads::allowed_cpus().map_or(1, |cpus| cpus.len().max(1));
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let asked = sweep::Options {
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
    let rows = options.shape.memory_rows().into_iter();
    let rows: Option<Vec<_>> = rows
        .map(|(node, start, bytes)| Some((u16::try_from(node).ok()?, start, bytes)))
        .collect();
    let rows = rows.ok_or_else(|| Failure::machine("shape", "more nodes than 65,536"))?;
    let series = sweep::sweep(&Machine::new(&rows), &asked).map_err(|error| match error {
        SweepError::Wrong { .. } => Failure::Check(error.to_string()),
        SweepError::Memory(_) => Failure::Io(error.to_string()),
        SweepError::Asked(_) | SweepError::Machine(_) => Failure::machine("sweep", error),
    })?;
    let rows = series
        .iter()
        .filter_map(|series| row(series, &asked, cpus))
        .collect();
    Ok(Record::new("wall", rows))
}

/// 1, 2, 4, ... and all.
fn doubles(cpus: u32) -> Vec<u32> {
    let smaller = (0..u32::BITS).map(|shift| 1 << shift);
    let smaller = smaller.take_while(|threads| *threads < cpus);
    smaller.chain([cpus]).collect()
}

fn row(series: &Series, asked: &sweep::Options, cpus: u32) -> Option<Row> {
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
        descriptor_bytes: asked.descriptor_bytes,
        threads: series.threads,
        percent_of_cpus: f64::from(series.threads) / f64::from(cpus) * 100.0,
        pages: series.pages,
        bytes_written: series.bytes_written,
        ms: Milliseconds::of(&series.ns)?,
        speedup_percent: 0.0,
        instructions_per_page: None,
        fraction_of_best_memset: series.best_rival.map(fraction),
        best_memset: series.best_rival.map(|(name, _)| name.to_owned()),
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
