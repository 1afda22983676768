//! `firstlight gate`: whether B is slower than A, and in what; the verdict is the
//! [lab's](firstlight_lab::gate), here are the options, the runs and the [report](render).

mod render;

use crate::compare::side::{Contestant, Runs};
use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use firstlight_lab::compare::{Comparison, Kind, Row, Told, compare};
use firstlight_lab::gate::{Evidence, Method, State, Verdict, judge, of_comparison, of_runs};
use firstlight_lab::records::{self, Stored};
use std::fs;
use std::path::{Path, PathBuf};

/// Judge whether B is slower than A, phase by phase; exit code 10 if it is
///
/// A and B are folders of records, or quoted options of `boot`, records or logs as for
/// `compare`; A alone is what `compare --json` printed. On the instruction clock one run
/// each is exact. On the wall clock a figure has moved if p < 0.01, by 5 % or more, and
/// if other runs say so too: boots made again, or the other half of 20 runs a side.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A folder of records, options of boot in quotes, a record, or a comparison
    #[arg(value_name = "A", allow_hyphen_values = true)]
    a: String,
    /// What is judged
    #[arg(value_name = "B", allow_hyphen_values = true, required_unless_present_any = ["itself", "a"])]
    b: Option<String>,
    /// Judge A against itself: the noise floor
    #[arg(long = "self", conflicts_with = "b")]
    itself: bool,
    /// Boots of each; else 10 to 200, as the spread wants it, and 1 on the instruction clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Write the verdict in JUnit's form, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Show every figure
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight gate before/ after/                     two folders of records
  firstlight gate before/ after/ --junit gate.xml    for continuous integration
  firstlight gate \"--clock instructions --kernel old\" \"--clock instructions --kernel new\"
  firstlight compare A B --runs 20 --json > c.json; firstlight gate c.json
  firstlight gate --self \"--memory 1G\"              how much this host differs from itself

Exit codes: 10 if B is slower, else see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let evidence = evidence(options)?;
    let verdict = judge(&evidence, options.itself);
    if let Some(path) = &options.junit {
        fs::write(path, verdict.junit())
            .map_err(|error| Failure::Io(format!("cannot write {}: {error}", path.display())))?;
    }
    output.print::<_, Failure>(&verdict, |verdict| render::report(verdict, options.full))?;
    match verdict.moved.first() {
        Some(first) if verdict.verdict == "regressed" => {
            let more = verdict.moved.len() - 1;
            let more = if more > 0 {
                format!(", and {more} more")
            } else {
                String::new()
            };
            Err(Failure::Regressed(format!("B is slower: {first}{more}")))
        }
        _ => Ok(()),
    }
}

fn evidence(options: &Options) -> Result<Vec<Evidence>, Failure> {
    let a = Path::new(options.a.trim());
    let folder = |path: &Path| path.is_dir() || path.extension().is_some_and(|end| end == "jsonl");
    match &options.b {
        _ if options.itself && folder(a) => {
            let runs = told(&records::read(a).map_err(|error| Failure::records(&error))?)?;
            let (even, odd) = halves(&runs);
            of_runs((&options.a, &even), (&options.a, &odd)).map_err(unlike)
        }
        Some(b) if folder(a) || folder(Path::new(b.trim())) => {
            let read = |path: &str| -> Result<Vec<Told>, Failure> {
                let records = records::read(Path::new(path.trim()));
                told(&records.map_err(|error| Failure::records(&error))?)
            };
            of_runs((&options.a, &read(&options.a)?), (b, &read(b)?)).map_err(unlike)
        }
        None if !options.itself => Ok(vec![of_comparison(comparison(a)?)]),
        b => boots(&options.a, b.as_deref().unwrap_or(&options.a), options.runs),
    }
}

fn unlike(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}

fn told(records: &[Stored]) -> Result<Vec<Told>, Failure> {
    let told = |stored: &Stored| {
        let file = stored.path.display().to_string();
        stored
            .told()
            .map_err(|error| Failure::machine(&file, error))
    };
    records.iter().map(told).collect()
}

fn halves(runs: &[Told]) -> (Vec<Told>, Vec<Told>) {
    let half = |odd| runs.iter().skip(odd).step_by(2).cloned().collect();
    (half(0), half(1))
}

fn comparison(path: &Path) -> Result<Comparison, Failure> {
    let wanted = "expected what `firstlight compare --json` prints, or B beside A";
    let value = records::document(path).map_err(|error| Failure::records(&error))?;
    let value = value.ok_or_else(|| Failure::Usage(format!("{}: {wanted}", path.display())))?;
    let schema = value["schema"].as_str().unwrap_or_default().to_owned();
    if schema != firstlight_lab::compare::SCHEMA {
        let text = format!("{}: its schema is {schema:?}; {wanted}", path.display());
        return Err(Failure::Machine(text));
    }
    serde_json::from_value(value)
        .map_err(|error| Failure::machine(&path.display().to_string(), error))
}

/// Boots both in turns, as often as their spread wants it, and all of it once more if
/// something seems to have moved.
fn boots(a: &str, b: &str, runs: Option<u32>) -> Result<Vec<Evidence>, Failure> {
    let contestants = || -> Result<[Contestant; 2], Failure> {
        Ok([Contestant::new("A", a)?, Contestant::new("B", b)?])
    };
    let method = Method::of(contestants()?[0].clock());
    let count = |runs: usize| u32::try_from(runs).unwrap_or(u32::MAX);
    let compare = |[of_a, of_b]: &[Vec<Told>; 2]| compare((a, of_a), (b, of_b)).map_err(unlike);
    let mut all = Runs::make(
        contestants()?,
        Some(runs.unwrap_or(count(method.least_runs))),
    )?;
    let mut first = compare(&all)?;
    let needed = method.runs_needed(&longest(&first));
    let more = needed.saturating_sub(method.least_runs);
    if runs.is_none() && more > 0 {
        let others = Runs::make(contestants()?, Some(count(more)))?;
        for (all, others) in all.iter_mut().zip(others) {
            all.extend(others);
        }
        first = compare(&all)?;
    }
    let alone = Evidence { first, again: None };
    if !has_moved(&judge(std::slice::from_ref(&alone), false)) {
        return Ok(vec![alone]);
    }
    let again = Runs::make(contestants()?, Some(runs.unwrap_or(count(needed))))?;
    let again = Some(compare(&again)?);
    Ok(vec![Evidence { again, ..alone }])
}

/// The longest milestone of both sides, run by run.
fn longest(comparison: &Comparison) -> Vec<&[u64]> {
    let rows = comparison
        .rows
        .iter()
        .filter(|row| row.kind == Kind::Milestone);
    let middle = |row: &&Row| row.a.as_ref().map_or(0, |a| a.max_ns);
    let Some(row) = rows.max_by_key(middle) else {
        return Vec::new();
    };
    let sides = [row.a.as_ref(), row.b.as_ref()];
    sides
        .into_iter()
        .flatten()
        .map(|side| side.ns.as_slice())
        .collect()
}

/// Whether something waits to be confirmed.
fn has_moved(verdict: &Verdict) -> bool {
    let mut rows = verdict.groups.iter().flat_map(|group| &group.rows);
    rows.any(|row| row.state == State::Unconfirmed)
}
